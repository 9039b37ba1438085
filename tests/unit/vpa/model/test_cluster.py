"""The recommender's model from object to recommendation."""

import msgspec
import pytest

from podscale.core.selectors import selector
from tests.unit.vpa.model.worlds import NOW, WEB, counts, usage, vpa, web
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.annotations import VpaSettings
from vpa.model.estimation.recommendation import RecommenderSettings
from vpa.model.groups import Oom
from vpa.model.histograms.matrix import ZERO_TIME
from vpa.model.recommendations import DeadBand, RecommendationReader
from vpa.model.samples import checkpoints
from vpa.model.samples.checkpoints import (
    Checkpoint,
    CheckpointError,
    HistogramCheckpoint,
    from_wire,
    to_wire,
)

MINUTE = 60.0
DAY = 86400.0
UPSTREAM = DeadBand(0.0, 0.0)


def fed(cluster: ClusterModel, minutes: int, cores: float = 0.2, memory: float = 5e8) -> float:
    at = NOW
    for minute in range(minutes):
        at = NOW + minute * MINUTE
        cluster.take(usage(at, cores, memory))
    return at


def target(cluster: ClusterModel) -> dict[str, str]:
    reader = RecommendationReader(cluster)
    found = reader.recommendation(reader.read(), WEB).recommendation
    entries = found.container_recommendations or ()
    return {name: str(value) for name, value in (entries[0].target or {}).items()}


def test_a_measured_container_is_recommended() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    fed(cluster, 61, memory=524288000.0)
    assert target(cluster) == {"cpu": "247m", "memory": "628694953"}


def test_a_container_that_was_never_measured_is_named_and_not_guessed() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    reader = RecommendationReader(cluster)
    trace = reader.recommendation(reader.read(), WEB)
    assert trace.recommendation.container_recommendations == ()
    assert trace.no_samples == ("app",)


def test_a_resource_that_was_never_measured_is_left_out() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, memory=5e8))
    assert set(target(cluster)) == {"memory"}


def test_usage_of_unknown_pods_is_ignored() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, 0.2, 5e8, pods=("web-0", "stranger")))
    assert counts(cluster) == (1, 1)


@pytest.mark.parametrize("value", [float("nan"), -0.1, float("inf")])
def test_a_value_that_is_no_usage_is_no_sample(value: float) -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, value, value))
    assert counts(cluster) == (0, 0)
    assert target_is_absent(cluster)


def target_is_absent(cluster: ClusterModel) -> bool:
    reader = RecommendationReader(cluster)
    return reader.recommendation(reader.read(), WEB).recommendation.container_recommendations == ()


def test_a_container_that_comes_twice_in_one_answer_counts_once() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, 0.2, 5e8, pods=("web-0", "web-0")))
    assert counts(cluster) == (1, 1)


def test_a_sample_without_a_time_gets_the_time_asked() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    batch = usage(NOW, 0.2, 5e8)
    batch.time_s[:] = float("nan")
    cluster.take(batch)
    assert cluster.aggregates.cpu_span.last.max() == NOW


def test_samples_that_say_what_they_cover_count_their_minutes() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    for step in range(12):
        cluster.take(usage(NOW + step * 300.0, 0.2, 5e8), minutes=5.0)
    assert cluster.aggregates.cpu_span.samples.max() == 60.0


def test_replicas_share_and_a_rollout_adds_up() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0", "web-1")
    cluster.take(usage(NOW, 0.2, 5e8, pods=("web-0", "web-1")))
    web(cluster, "web-2", version="v2")
    cluster.take(usage(NOW + 60, 2.0, 5e8, pods=("web-2",)))
    assert cluster.vpas[WEB].group("app").size == 2
    reader = RecommendationReader(cluster)
    assert reader.read().usages(WEB)[0].resources["cpu"].percentiles[2] > 2.0


def test_a_target_that_cannot_be_resolved_loses_nothing_that_a_checkpoint_brought() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    checkpoint = Checkpoint(
        HistogramCheckpoint({25: 10000}, 10.0, NOW),
        HistogramCheckpoint({30: 10000}, 8.0, NOW),
        NOW - DAY,
        NOW,
        1440,
    )
    cluster.load_checkpoint(WEB, "app", checkpoint, None, NOW)
    before = target(cluster)
    cluster.put_vpa(vpa(), None, NOW)
    cluster.put_vpa(vpa(), selector.parse("app=web"), NOW)
    assert target(cluster) == before


def test_a_vpa_finds_the_aggregates_of_pods_that_were_there_before_it() -> None:
    cluster = ClusterModel()
    cluster.put_pod("shop", "web-0", {"app": "web"}, ["app"], NOW)
    cluster.take(usage(NOW, 0.2, 5e8))
    cluster.put_vpa(vpa(), selector.parse("app=web"), NOW)
    assert target(cluster)["cpu"] == "247m"


def test_a_container_with_mode_off_leaves_the_minimum_to_the_others() -> None:
    cluster = ClusterModel()
    policy = {"containerPolicies": [{"containerName": "side", "mode": "Off"}]}
    cluster.put_vpa(vpa(resourcePolicy=policy), selector.parse("app=web"), NOW)
    cluster.put_pod("shop", "web-0", {"app": "web"}, ["app", "side"], NOW)
    cluster.take(usage(NOW, 0.001, 1e6))
    assert target(cluster) == {"cpu": "25m", "memory": "250Mi"}


def test_annotations_replace_flags_for_one_vpa_and_mistakes_are_reported() -> None:
    cluster = ClusterModel()
    entry = cluster.put_vpa(
        vpa(
            annotations={
                "vpa.podscale.io/cpu-target-percentile": "0.5",
                "vpa.podscale.io/margin-fraction": "lots",
                "vpa.podscale.io/cpu-half-life": "12h",
            }
        ),
        selector.parse("app=web"),
        NOW,
    )
    assert entry.settings.recommender.cpu.percentiles.target == 0.5
    assert entry.settings.half_lives.cpu_s == 12 * 3600.0
    assert [mistake.annotation for mistake in entry.mistakes] == ["vpa.podscale.io/margin-fraction"]
    assert entry.settings.recommender.cpu.margin == 0.15


def test_percentiles_that_do_not_rise_are_refused_together() -> None:
    cluster = ClusterModel()
    entry = cluster.put_vpa(
        vpa(annotations={"vpa.podscale.io/cpu-target-percentile": "0.99"}),
        selector.parse("app=web"),
        NOW,
    )
    assert entry.settings.recommender.cpu.percentiles.target == 0.9
    assert entry.mistakes


def test_an_oom_counts_for_its_container_only() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    fed(cluster, 10)
    kill = Oom("shop", "web-0", "app", 629145600, NOW + 600)
    assert cluster.record_oom(kill)
    assert not cluster.record_oom(Oom("shop", "gone", "app", 1, kill.time_s))
    held = cluster.held(WEB, "app", 0.9)
    assert held is not None
    assert held.oom is not None
    assert (held.oom.requested, held.oom.bumped) == (629145600, 754974720)


def restarted(cluster: ClusterModel, at: float) -> ClusterModel:
    """Return a new process that has loaded what the first one wrote."""
    ((checkpoint, text),) = cluster.checkpoints([(WEB, "app")], at)
    status = to_wire(checkpoint)
    again = ClusterModel()
    web(again)
    extra = checkpoints.decode_extra(text, status["lastUpdateTime"])
    again.load_checkpoint(WEB, "app", from_wire(msgspec.json.encode(status)), extra, at)
    return again


def test_an_oom_bump_survives_a_restart_and_is_counted_once() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    at = fed(cluster, 120)
    cluster.record_oom(Oom("shop", "web-0", "app", 629145600, at))
    before = target(cluster)
    again = restarted(cluster, at)
    assert target(again) == before, "before its pod is seen again"
    again.put_pod("shop", "web-0", {"app": "web", "version": "v1"}, ["app"], at)
    assert target(again) == before, "after its pod is seen again"
    again.take(usage(at + MINUTE, 0.2, 5e8))
    assert target(again) == before, "after the next sample of the same window"
    column = again.vpas[WEB].group("app")
    factor = again.aggregates.memory.factors(
        column[-1:], again.aggregates.memory.reference[column[-1:]]
    )
    assert factor == 1.0
    kept = [float(again.aggregates.memory.total[c]) for c in column]
    once = float(cluster.aggregates.memory.total[cluster.vpas[WEB].group("app")[0]])
    assert sum(kept) == pytest.approx(once)


def test_a_pod_that_never_comes_back_leaves_its_peak_behind() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    at = fed(cluster, 120)
    before = target(cluster)
    again = restarted(cluster, at)
    assert target(again)["memory"] == before["memory"]


def test_open_windows_of_another_status_are_not_used() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    at = fed(cluster, 5)
    ((_, text),) = cluster.checkpoints([(WEB, "app")], at)
    assert checkpoints.decode_extra(text, "2030-01-01T00:00:00Z") is None
    assert checkpoints.decode_extra("{", "2030-01-01T00:00:00Z") is None


def test_an_empty_histogram_is_saved_as_upstream_saves_it() -> None:
    empty = HistogramCheckpoint({}, 0.0, 0.0)
    status = to_wire(
        Checkpoint(
            cpu=empty, memory=empty, first_sample_s=0.0, last_sample_s=0.0, samples=0, updated_s=0.0
        )
    )
    assert status["memoryHistogram"] == {"referenceTimestamp": "1970-01-01T00:00:00Z"}
    assert from_wire(msgspec.json.encode(status)).memory == empty


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"version": "v2"}, "version"),
        ({"version": "v3", "totalSamplesCount": -1}, "malformed"),
        ({"version": "v3", "cpuHistogram": {"bucketWeights": {"x": 1}}}, "malformed"),
        ({"version": "v3", "cpuHistogram": {"bucketWeights": {"1": 0.5}}}, "malformed"),
        ({"version": "v3", "cpuHistogram": {"referenceTimestamp": "soon"}}, "malformed"),
        ({"version": "v3", "cpuHistogram": []}, "malformed"),
        ("status", "malformed"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_says_why(status: object, reason: str) -> None:
    with pytest.raises(CheckpointError) as error:
        from_wire(msgspec.json.encode(status))
    assert error.value.reason == reason


@pytest.mark.parametrize(
    "bad",
    [
        HistogramCheckpoint({999: 1}, 1.0),
        HistogramCheckpoint({-1: 1}, 1.0),
        HistogramCheckpoint({1: -5}, 1.0),
        HistogramCheckpoint({1: 1}, -1.0),
        HistogramCheckpoint({1: 1}, float("nan")),
    ],
)
def test_a_bad_checkpoint_changes_nothing(bad: HistogramCheckpoint) -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    good = HistogramCheckpoint({30: 10000}, 8.0, NOW)
    with pytest.raises(CheckpointError):
        cluster.load_checkpoint(WEB, "app", Checkpoint(bad, good, NOW, NOW, 1), None, NOW)
    assert "app" not in cluster.vpas[WEB].initial
    assert target_is_absent(cluster)


def test_learned_memory_outlives_its_pod_and_expires_by_its_last_sample() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, memory=5e8))
    cluster.remove_pod("shop", "web-0")
    assert cluster.collect(NOW + 7 * DAY) == 0
    assert cluster.collect(NOW + 8 * DAY) == 1
    assert cluster.vpas[WEB].columns == {}


def test_an_empty_aggregate_goes_with_its_pod() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.remove_pod("shop", "web-0")
    assert cluster.collect(NOW + 1) == 1


def test_a_running_container_goes_on_after_its_aggregate_expired() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, 0.2, 5e8))
    assert cluster.collect(NOW + 8 * DAY) == 1
    assert target_is_absent(cluster)
    cluster.take(usage(NOW + 8 * DAY, 0.2, 5e8))
    assert target(cluster)["cpu"] == "247m"


def test_pods_are_counted_per_vpa_and_finished_ones_too() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0", "web-1")
    cluster.put_pod("shop", "web-1", {"app": "web", "version": "v1"}, ["app"], NOW, is_active=False)
    assert cluster.matched() == {WEB: 2}
    cluster.remove_pod("shop", "web-0")
    assert cluster.matched() == {WEB: 1}, "a CronJob between two runs"
    cluster.remove_pod("shop", "web-1")
    assert cluster.matched() == {}


def test_a_moved_target_is_due_at_once_and_young_bounds_are_not() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    at = fed(cluster, 2 * 1440)
    reader = RecommendationReader(cluster)
    estimates = reader.read()
    assert reader.due(estimates, at, DeadBand()) == [WEB], "never written"
    reader.published(estimates, WEB, at)
    cluster.take(usage(at + MINUTE, 0.2, 5e8))
    estimates = reader.read()
    assert reader.due(estimates, at + MINUTE, DeadBand()) == []
    assert reader.due(estimates, at + MINUTE, UPSTREAM) == [WEB]
    assert reader.due(estimates, at + 600, DeadBand()) == [WEB], "ten minutes old"
    cluster.record_oom(Oom("shop", "web-0", "app", 10**9, at))
    assert reader.due(reader.read(), at + MINUTE, DeadBand()) == [WEB]


def test_half_lives_of_one_vpa_do_not_touch_another() -> None:
    cluster = ClusterModel(VpaSettings(RecommenderSettings()))
    web(cluster, "web-0")
    cluster.put_vpa(
        vpa("fast", annotations={"vpa.podscale.io/cpu-half-life": "1h"}),
        selector.parse("app=fast"),
        NOW,
    )
    cluster.put_pod("shop", "fast-0", {"app": "fast"}, ["app"], NOW)
    for hour in range(12):
        value = 2.0 if hour < 3 else 0.1
        at = NOW + hour * 3600.0
        cluster.take(usage(at, value, 5e8, pods=("web-0", "fast-0")))
    reader = RecommendationReader(cluster)
    estimates = reader.read()
    slow = estimates.usages(WEB)[0].resources["cpu"].percentiles[1]
    fast = estimates.usages(type(WEB)("shop", "fast"))[0].resources["cpu"].percentiles[1]
    assert fast < 0.2 < 2.0 < slow


def test_the_zero_time_is_null_on_the_wire_and_back() -> None:
    empty = HistogramCheckpoint({}, 0.0)
    status = to_wire(Checkpoint(empty, empty, ZERO_TIME, ZERO_TIME, 0, NOW))
    assert status["firstSampleStart"] is None
    assert status["cpuHistogram"]["referenceTimestamp"] is None
    assert from_wire(msgspec.json.encode(status)).first_sample_s == ZERO_TIME
