"""What stands when the history behind a recommendation is gone."""

from typing import Any

from msgspec.structs import replace

from podscale.core.selectors import selector
from podscale.kube.objects.vpa import Vpa, VpaCondition, VpaStatus, decode
from tests.unit.vpa.model.worlds import NOW, WEB, usage, vpa
from vpa.model.cluster import ClusterModel
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.checkpoints import Checkpoint, HistogramCheckpoint
from vpa.recommender.publishing.published import LostHistory, status_of

MINUTE, DAY = 60.0, 86400.0
WEEKS_AGO = NOW - 21 * DAY
LARGE = {"cpu": "2", "memory": "9Gi"}
EMPTY = HistogramCheckpoint({}, 0.0)


def published(since: float | None = WEEKS_AGO, uid: str = "one", **spec: Any) -> Vpa:
    """Return the VPA with a recommendation that was learned from weeks."""
    bounds = {"lowerBound": {"cpu": "1", "memory": "8Gi"},
              "upperBound": {"cpu": "3", "memory": "10Gi"}}  # fmt: skip
    entry = {"containerName": "app", "target": LARGE, "uncappedTarget": LARGE, **bounds}
    status = decode({"recommendation": {"containerRecommendations": [entry]}}, VpaStatus)
    if since is not None:
        provided = VpaCondition("RecommendationProvided", "True", last_transition_time=since)
        status = replace(status, conditions=(provided,))
    made = vpa(**spec)
    return replace(made, status=status, metadata=replace(made.metadata, uid=uid))


def saved(first: float, memory: HistogramCheckpoint | None = None) -> Checkpoint:
    """Return a checkpoint of small amounts that begins then, as upstream writes it."""
    small = HistogramCheckpoint({4: 10000}, 10.0, NOW)
    return Checkpoint(small, small if memory is None else memory, first, NOW, 100)


def told_lost(found: Vpa) -> Vpa:
    """Return the VPA as an earlier process left it, that had lost its history."""
    lost = VpaCondition("LowConfidence", "True", "HistoryLost")
    conditions = (*(found.status.conditions or ()), lost)
    return replace(found, status=replace(found.status, conditions=conditions))


class World:
    """A recommender that has just started."""

    def __init__(self, found: Vpa, checkpoint: Checkpoint | None = None) -> None:
        self.vpa = found
        self.cluster = ClusterModel()
        self.cluster.put_vpa(found, selector.parse("app=web"), NOW)
        if checkpoint is not None:
            self.cluster.load_checkpoint(WEB, "app", checkpoint, None, NOW)
        self.cluster.put_pod("shop", "web-0", {"app": "web"}, ["app"], NOW)
        self.reader = RecommendationReader(self.cluster)
        self.lost = LostHistory(self.cluster, self.reader)
        self.lost.meet([(WEB, found)], NOW)

    def status(self, now: float, cores: float = 0.05, memory: float = 2e8) -> dict[str, Any]:
        """Take a sample and return what is to be published."""
        self.cluster.take(usage(now, cores, memory))
        trace = self.reader.recommendation(self.reader.read(), WEB)
        return status_of(
            self.vpa, self.cluster.vpas[WEB], trace, now,
            pods_matched=True, unsupported=None, held=self.lost.held(now).get(WEB),
        )  # fmt: skip


def amounts(status: dict[str, Any], bound: str = "target") -> dict[str, str]:
    (entry,) = status["recommendation"]["containerRecommendations"]
    return dict(entry[bound])


def low_confidence(status: dict[str, Any]) -> str | None:
    found = (each for each in status["conditions"] if each["type"] == "LowConfidence")
    return next((each["message"] for each in found), None)


def test_a_first_sample_does_not_replace_what_was_learned_from_weeks() -> None:
    world = World(published())
    status = world.status(NOW + MINUTE)
    assert amounts(status) == amounts(status, "uncappedTarget") == LARGE
    assert amounts(status, "lowerBound") == {"cpu": "1", "memory": "8Gi"}
    # An upper bound of one sample has no end, and the larger of both counts.
    assert amounts(status, "upperBound") != {"cpu": "3", "memory": "10Gi"}
    message = low_confidence(status)
    assert message is not None
    assert "cpu of app until 2026-03-03T00:01Z" in message


def test_it_stands_for_a_day_and_not_longer() -> None:
    world = World(published())
    world.status(NOW + MINUTE)
    assert amounts(world.status(NOW + DAY)) == LARGE
    status = world.status(NOW + MINUTE + DAY)
    assert amounts(status)["cpu"] == "63m"
    assert low_confidence(status) is None
    assert world.lost.held(NOW + 2 * DAY) == {}


def test_what_needs_more_gets_more() -> None:
    world = World(published())
    assert amounts(world.status(NOW + MINUTE, cores=4.0)) == {"cpu": "4742m", "memory": "9Gi"}


def test_a_checkpoint_as_old_as_the_recommendation_is_believed_at_once() -> None:
    found = published(since=NOW - 7200.0)
    status = World(found, saved(NOW - 7200.0)).status(NOW + MINUTE)
    assert amounts(status) == {"cpu": "63m", "memory": "250Mi"}, "of both resources"
    differ = World(found, saved(NOW - 7200.0 + MINUTE)).status(NOW + MINUTE)
    assert amounts(differ)["cpu"] == "63m", "clocks differ"
    younger = World(found, saved(NOW - 3600.0)).status(NOW + MINUTE)
    assert amounts(younger)["cpu"] == "63m", "a container that came later"
    assert low_confidence(younger) is None


def test_a_checkpoint_of_the_first_samples_after_a_loss_shrinks_nothing_either() -> None:
    world = World(told_lost(published()), saved(NOW - 600.0))
    assert amounts(world.status(NOW + MINUTE)) == LARGE
    assert amounts(world.status(NOW - 600.0 + DAY))["cpu"] == "63m"


def test_a_short_history_is_believed_once_it_is_a_day_long() -> None:
    world = World(told_lost(published()), saved(NOW - DAY))
    assert amounts(world.status(NOW + MINUTE))["cpu"] == "63m"


def test_what_was_never_published_is_not_held() -> None:
    world = World(vpa())
    status = world.status(NOW + MINUTE)
    assert amounts(status)["cpu"] == "63m"
    assert low_confidence(status) is None


def test_a_resource_that_lost_its_history_is_held_alone() -> None:
    # The query of memory came back empty, that of CPU did not.
    world = World(published())
    world.cluster.take(usage(WEEKS_AGO, cores=0.05))
    world.lost = LostHistory(world.cluster, world.reader)
    world.lost.meet([(WEB, world.vpa)], NOW)
    found = amounts(world.status(NOW + MINUTE))
    assert found == {"cpu": "63m", "memory": "9Gi"}


def test_without_the_condition_only_an_empty_start_is_a_loss() -> None:
    loaded = World(published(since=None), saved(NOW - 7200.0))
    assert amounts(loaded.status(NOW + MINUTE))["cpu"] == "63m"
    empty = World(published(since=None))
    assert amounts(empty.status(NOW + MINUTE)) == LARGE


def test_a_recommendation_of_minutes_ago_is_lost_with_its_checkpoint() -> None:
    empty = World(published(since=NOW - MINUTE))
    assert amounts(empty.status(NOW + MINUTE)) == LARGE


def test_a_checkpoint_that_comes_late_ends_it() -> None:
    world = World(published(since=NOW - 7200.0))
    assert amounts(world.status(NOW + MINUTE)) == LARGE
    world.cluster.load_checkpoint(WEB, "app", saved(NOW - 7200.0), None, NOW)
    assert amounts(world.status(NOW + 2 * MINUTE))["cpu"] == "63m"


def test_a_policy_that_was_changed_meanwhile_is_heeded() -> None:
    policy = {"containerPolicies": [{"containerName": "app", "maxAllowed": {"cpu": "500m"},
                                     "controlledResources": ["cpu"]}]}  # fmt: skip
    status = World(published(resourcePolicy=policy)).status(NOW + MINUTE)
    assert amounts(status) == {"cpu": "500m"}


def test_a_vpa_that_was_made_anew_has_lost_nothing() -> None:
    world = World(published())
    again = vpa()
    world.vpa = replace(again, metadata=replace(again.metadata, uid="two"))
    world.lost.meet([(WEB, world.vpa)], NOW)
    assert amounts(world.status(NOW + MINUTE))["cpu"] == "63m"


def test_what_this_process_published_itself_is_not_held() -> None:
    world = World(vpa())
    world.status(NOW + MINUTE)
    world.lost.meet([(WEB, published(uid=""))], NOW + MINUTE)
    assert amounts(world.status(NOW + 2 * MINUTE))["cpu"] == "63m"


def test_what_was_published_of_another_workload_is_not_held() -> None:
    world = World(published())
    world.lost.moved(WEB)
    world.vpa = vpa()
    assert amounts(world.status(NOW + MINUTE))["cpu"] == "63m"
