"""Before anything is connected, a rules file is told all that is wrong with it, once."""

from pathlib import Path

import pytest

from adapter.errors import ConfigInvalid
from adapter.rules.precheck import check

WRONG = """\
rules:
- seriesQuery: x
  nam: {}
  name: {matches: "(a"}
  metricsQuery: "<<.Series"
"""


def test_keys_patterns_and_templates_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(WRONG)
    with pytest.raises(ConfigInvalid) as refused:
        check(file)
    assert [(p.line, p.path) for p in refused.value.problems] == [
        (3, "rules[0]"),
        (4, "rules[0].name.matches"),
        (5, "rules[0].metricsQuery"),
    ]


def test_a_resource_of_some_cluster_is_not_refused_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- seriesQuery: x\n  resources: {overrides: {t: {resource: kafkatopic}}}\n"
        "  metricsQuery: up\n"
    )
    check(file)
