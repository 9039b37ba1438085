"""The feed's reading of objects that are not pods."""

from podscale.core.metrics import Refused
from podscale.feed.plan import KeyLabels, QueryPlan
from tests.unit.feed.opened import queries, served
from tests.unit.feed.prometheus import pods_plan, refused, want


class TestOtherObjects:
    """Plans whose key is not (namespace, pod)."""

    @staticmethod
    def plan(labels, api="custom", **more):
        group = ",".join(label for label in (labels.object, labels.container) if label)

        def render(matchers, _):
            return f"sum by ({group}) (m{{{matchers}}})"

        return QueryPlan(api, "r", "m", labels, render, **more)

    async def test_cluster_scoped_objects_are_one_batch_without_namespace(self, fake, opened):
        feed, plan = await opened(), self.plan(KeyLabels("", "pod"), "node")
        one, two = await feed.read([want(plan, "", "p0", known=3), want(plan, "", "p2", known=3)])
        assert served(one) == served(two) == {"p0": 280.0, "p1": 288.0, "p2": 296.0}
        assert fake.queries[0].query == "sum by (pod) (m)"

    async def test_namespace_objects_are_always_read_by_name(self, fake, opened):
        plan = self.plan(KeyLabels("", "namespace"), is_namespace_object=True)
        feed = await opened()
        demands = [want(plan, "", f"n{n}", known=8) for n in range(8)]
        outcomes = await feed.read(demands)
        assert served(outcomes[0])["n3"] == 93.0
        assert fake.queries[0].values("namespace") == [f"n{n}" for n in range(8)]
        assert queries(feed) == {"batch": 1}

    async def test_of_cluster_scoped_names_the_failing_one_is_isolated(self, fake, opened):
        plan = self.plan(KeyLabels("", "namespace"), is_namespace_object=True)
        feed = await opened()
        fake.react = lambda asked: (
            refused(422, "execution") if "n5" in asked.values("namespace") else None
        )
        outcomes = await feed.read([want(plan, "", f"n{n}") for n in range(8)])
        # The pseudo namespace is read whole or not at all: all take their own query.
        assert [isinstance(outcome, Refused) for outcome in outcomes] == [n == 5 for n in range(8)]

    async def test_names_over_several_queries_are_one_answer(self, fake, opened):
        names = [f"a-rather-long-name-of-a-pod-{place:05}" for place in range(1500)]
        fake.rows |= {("n1", name): 1.0 for name in names}
        feed, plan = await opened(), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", *names)])
        assert len(served(outcome)) == 1500
        assert queries(feed)["batch"] == 4
