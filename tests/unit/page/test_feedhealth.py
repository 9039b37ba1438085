"""The pill's numbers: a rules file that was refused is never "rules ok"."""

import pytest

from podscale.feed.stats import FeedStats
from podscale.page.health import FeedHealth, FeedSource


@pytest.mark.parametrize("looks", [0, 2])
def test_a_refused_rules_file_is_a_failing_rule_until_it_is_mended(looks):
    problem = ["rules.yaml:2:1: unknown key"]
    health = FeedHealth(FeedSource(FeedStats(), lambda: (), lambda: "".join(problem)))
    for now in range(looks):
        health.look(float(now))
    shown = health.answer(2.0)
    assert (shown.failing_rules, shown.rules[0].problem) == (1, problem[0])
    problem.clear()
    assert health.answer(3.0).failing_rules == 0
