"""How old a sample is that the feed serves, and what is too old."""

import math

import pytest

from tests.unit.feed.opened import NOW_S, queries, served
from tests.unit.feed.prometheus import pods_plan, want


class TestSampleAge:
    """Coalescing.md, section 4: a value without a recent sample behind it is stale."""

    async def test_the_samples_own_time_is_reported(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 20.5, ("n1", "p1"): NOW_S - 3}
        feed, plan = await opened(with_sample_timestamps=True), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", "p0", "p1")])
        assert outcome.time_s[outcome.row("p0")] == NOW_S - 20.5
        assert queries(feed) == {"batch": 1, "stamp": 1}

    async def test_a_value_whose_target_has_gone_is_stale(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 1}
        feed, plan = await opened(with_sample_timestamps=True), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", "p0", "p1")])
        assert served(outcome) == {"p0": 10.0}
        assert outcome.stale == {"p1": math.inf}
        assert feed.stats.stale == 1

    async def test_a_pod_that_has_just_gone_is_no_stale_answer(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 1}
        feed = await opened(with_sample_timestamps=True)
        plan = pods_plan()
        before, after = await feed.read([want(plan, "n1", "p0", "p1"), want(plan, "n1", "p0")])
        assert before.stale == after.stale == {"p1": math.inf}
        assert feed.stats.stale == 1, "the second asks for what is there"

    async def test_a_sample_older_than_the_limit_is_stale(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 61, ("n1", "p1"): NOW_S - 58}
        feed = await opened(with_sample_timestamps=True, max_sample_age_s=60.0)
        (outcome,) = await feed.read([want(pods_plan(), "n1", "p0", "p1")])
        assert served(outcome) == {"p1": 11.0}
        assert outcome.stale == {"p0": pytest.approx(60.75)}
        assert feed.stats.stale == 1

    async def test_a_request_by_itself_is_dated_as_well(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 1}
        feed = await opened(with_sample_timestamps=True, is_coalescing=False)
        (outcome,) = await feed.read([want(pods_plan(), "n1", "p0", "p1")])
        assert served(outcome) == {"p0": 10.0}
        assert outcome.stale == {"p1": math.inf}

    async def test_where_two_selectors_meet_the_age_is_unknown(self, fake, opened):
        plan = pods_plan(template="sum by (pod) (m{<M>}) / sum by (pod) (m{<M>})")
        feed = await opened(with_sample_timestamps=True)
        (outcome,) = await feed.read([want(plan, "n1", "p0")])
        assert math.isnan(outcome.time_s[outcome.row("p0")])
        assert queries(feed) == {"batch": 1}

    async def test_an_external_answer_of_gone_targets_is_stale_and_gets_no_default(
        self, fake, opened
    ):
        fake.times = {("n2", "p0"): NOW_S - 1}
        plan = pods_plan(template="sum(m{<M>}) or vector(0)", api="external")
        feed = await opened(with_sample_timestamps=True)
        gone, fresh, none = await feed.read([want(plan, n) for n in ("n1", "n2", "nowhere")])
        assert gone.stale == {"": math.inf}
        assert gone.values.tolist() == []
        assert fresh.values.tolist() == [20.0 + 21.0 + 22.0]
        assert none.values.tolist() == [0.0]  # the default that the rule's author wrote
        assert none.labels == ({},)
