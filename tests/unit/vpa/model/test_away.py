"""What is kept of a VPA whose target, or which itself, is out of sight for a while."""

import gc
import time

import pytest

from podscale.core.selectors import selector
from tests.unit.vpa.model.worlds import NOW, WEB, usage, vpa, web
from vpa.model.amounts import Windows
from vpa.model.checkpoint_selection import CheckpointSelection, SaveBand
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.annotations import HalfLives, VpaSettings
from vpa.model.estimation.recommendation import RecommenderSettings
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.checkpoints import Checkpoint, CheckpointError, Extra, HistogramCheckpoint
from vpa.model.samples.container_rows import OpenWindow
from vpa.model.samples.membership import Membership, VpaKey, canonical

MINUTE, DAY = 60.0, 86400.0
WEB_APP = selector.parse("app=web")
SMALL = HistogramCheckpoint({3: 10000}, 10.0, NOW - DAY)
STORED = Checkpoint(SMALL, SMALL, NOW - 2 * DAY, NOW - DAY, 576)


def learned() -> ClusterModel:
    """Return a model that began with a small checkpoint and has learned much since."""
    cluster = ClusterModel()
    web(cluster)
    cluster.load_checkpoint(WEB, "app", STORED, None, NOW)
    web(cluster, "web-0")
    for minute in range(600):
        cluster.take(usage(NOW + minute * MINUTE, 2.0, 9e9))
    return cluster


def target(cluster: ClusterModel) -> dict[str, str]:
    reader = RecommendationReader(cluster)
    found = reader.recommendation(reader.read(), WEB).recommendation.of("app")
    assert found is not None
    return {name: str(value) for name, value in (found.target or {}).items()}


def samples(cluster: ClusterModel) -> int:
    ((checkpoint, _),) = cluster.checkpoints([(WEB, "app")], NOW + DAY)
    return checkpoint.samples


def test_a_deployment_that_is_made_anew_keeps_what_was_learned_since_the_checkpoint() -> None:
    cluster = learned()
    before, count = target(cluster), samples(cluster)
    cluster.put_vpa(vpa(), None, NOW + DAY)
    assert target(cluster) == before, "while it is away"
    assert samples(cluster) == count
    CheckpointSelection(cluster).due(NOW + DAY, SaveBand())
    cluster.remove_pod("shop", "web-0")
    cluster.put_vpa(vpa(), WEB_APP, NOW + DAY)
    assert (target(cluster), samples(cluster)) == (before, count), "and after"


def test_a_target_that_is_away_matches_no_pods() -> None:
    cluster = learned()
    cluster.put_vpa(vpa(), None, NOW)
    assert cluster.matched() == {}
    cluster.put_vpa(vpa(), WEB_APP, NOW)
    assert cluster.matched() == {WEB: 1}


def test_what_expires_while_the_target_is_away_is_no_longer_read() -> None:
    cluster = learned()
    cluster.put_vpa(vpa(), None, NOW)
    cluster.remove_pod("shop", "web-0")
    cluster.collect(NOW + 9 * DAY)
    assert cluster.vpas[WEB].columns == {}
    assert samples(cluster) == 576


def test_a_vpa_that_is_away_for_a_pass_loses_nothing() -> None:
    cluster = learned()
    reader = RecommendationReader(cluster)
    reader.read()
    before, count = target(cluster), samples(cluster)
    cluster.remove_vpa(WEB, NOW + DAY)
    reader.read()
    cluster.collect(NOW + DAY)
    cluster.put_vpa(vpa(), WEB_APP, NOW + DAY)
    assert (target(cluster), samples(cluster)) == (before, count)
    found = reader.recommendation(reader.read(), WEB).recommendation.of("app")
    assert found is not None
    assert found.target is not None


def test_after_a_restart_it_loses_nothing_either_and_not_for_want_of_a_target() -> None:
    cluster = ClusterModel()
    web(cluster)
    cluster.load_checkpoint(WEB, "app", STORED, None, NOW)
    reader = RecommendationReader(cluster)
    reader.read()
    cluster.remove_vpa(WEB, NOW)
    reader.read()
    cluster.put_vpa(vpa(), None, NOW)
    assert reader.read().usages(WEB)
    assert samples(cluster) == 576


def test_a_vpa_that_stays_away_is_forgotten_with_what_it_had() -> None:
    cluster = learned()
    cluster.remove_vpa(WEB, NOW)
    cluster.remove_pod("shop", "web-0")
    cluster.collect(NOW + 9 * DAY)
    assert cluster._parked == {}
    cluster.put_vpa(vpa(), WEB_APP, NOW)
    assert cluster.vpas[WEB].containers() == []


def test_a_checkpoint_that_comes_late_leaves_open_windows_as_they_are() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    cluster.take(usage(NOW, 0.2, 5e8))
    row = cluster.rows_of([("shop", "web-0", "app")])[0]
    before = cluster.rows.window(row, "web-0")
    extra = Extra("", (OpenWindow("web-0", NOW + MINUTE, 10**9, 0, NOW - MINUTE),))
    cluster.load_checkpoint(WEB, "app", STORED, extra, NOW)
    assert cluster.rows.window(row, "web-0") == before


@pytest.mark.parametrize("ahead_s", [10 * DAY, 7900 * 365 * DAY], ids=["days", "9999"])
def test_a_checkpoint_of_times_to_come_is_refused(ahead_s: float) -> None:
    ahead = HistogramCheckpoint({40: 10000}, 10.0, NOW + ahead_s)
    for bad in (
        Checkpoint(ahead, SMALL, NOW, NOW, 1),
        Checkpoint(SMALL, ahead, NOW, NOW, 1),
        Checkpoint(SMALL, SMALL, NOW, NOW + ahead_s, 1),
    ):
        cluster = ClusterModel()
        web(cluster, "web-0")
        with pytest.raises(CheckpointError) as error:
            cluster.load_checkpoint(WEB, "app", bad, None, NOW)
        assert error.value.reason == "future"
        assert cluster.vpas[WEB].initial == {}


@pytest.mark.parametrize("half_life_s", [DAY, 30 * DAY])
def test_a_reference_that_is_rounded_up_by_the_half_life_is_no_time_to_come(
    half_life_s: float,
) -> None:
    ahead = HistogramCheckpoint({40: 10000}, 10.0, NOW + half_life_s / 2 + 3600.0)
    windows = Windows(interval_s=3600.0, interval_count=1)
    defaults = VpaSettings(half_lives=HalfLives(half_life_s, half_life_s))
    cluster = ClusterModel(defaults, windows)
    web(cluster, "web-0")
    cluster.load_checkpoint(WEB, "app", Checkpoint(ahead, ahead, NOW, NOW, 1), None, NOW)
    assert "app" in cluster.vpas[WEB].initial


def test_windows_that_end_later_than_any_can_are_left_out() -> None:
    cluster = ClusterModel()
    web(cluster)
    extra = Extra("", (OpenWindow("web-0", NOW + 8000 * DAY, 10**10, 0, NOW),))
    cluster.load_checkpoint(WEB, "app", STORED, extra, NOW)
    column = cluster.vpas[WEB].initial["app"]
    assert cluster.aggregates.memory.reference[column] <= NOW + DAY
    assert cluster.vpas[WEB].pending["app"] == {}


def test_a_window_that_is_open_for_a_week_is_no_time_to_come() -> None:
    cluster = ClusterModel(VpaSettings(RecommenderSettings()))
    web(cluster)
    week = HistogramCheckpoint({40: 10000}, 10.0, NOW + 7 * DAY)
    cluster.load_checkpoint(WEB, "app", Checkpoint(SMALL, week, NOW, NOW, 1), None, NOW)
    assert cluster.vpas[WEB].initial


def labels(number: int, **more: str) -> tuple[tuple[str, str], ...]:
    return canonical({"app": f"web-{number}", "tier": "front", **more})


@pytest.mark.parametrize("count", [3, 300], ids=["few", "indexed"])
def test_a_vpa_is_told_the_label_sets_that_it_matches(count: int) -> None:
    members = Membership()
    for number in range(count):
        members.of("shop", labels(number))
        members.of("other", labels(number))
    key, all_of = VpaKey("shop", "two"), VpaKey("shop", "all")
    assert members.put(key, selector.parse("app=web-2")) == [labels(2)]
    assert members.put(key, selector.parse("app=web-2")) is None
    assert members.of("shop", labels(2, version="v2")) == {key}, "a new label set"
    early = members.put(VpaKey("shop", "early"), selector.parse("app=web-2"))
    assert early == [labels(2), labels(2, version="v2")]
    members.remove(VpaKey("shop", "early"))
    found = members.put(all_of, selector.parse("app"))
    assert found is not None
    assert len(found) == count + 1
    members.forget("shop", labels(2))
    assert members.put(VpaKey("shop", "third"), selector.parse("app=web-2")) == [
        labels(2, version="v2")
    ]
    members.remove(key)
    assert members.of("shop", labels(2, version="v2")) == {all_of, VpaKey("shop", "third")}
    assert members.of("other", labels(2)) == frozenset()


def test_a_container_that_goes_takes_no_other_of_the_same_labels_along() -> None:
    cluster = ClusterModel()
    cluster.put_pod("shop", "web-0", {"app": "web"}, ["app", "side"], NOW)
    cluster.take(usage(NOW, 0.2, 5e8))
    cluster.put_pod("shop", "web-0", {"app": "web"}, ["app"], NOW)
    assert cluster.collect(NOW + MINUTE) == 1
    cluster.put_vpa(vpa(), WEB_APP, NOW)
    assert cluster.vpas[WEB].containers() == ["app"]


def test_label_sets_that_were_only_asked_about_are_not_remembered() -> None:
    cluster = ClusterModel()
    web(cluster)
    for number in range(100):
        assert not cluster.matches("shop", {"job": str(number)})
    assert cluster.matches("shop", {"app": "web", "version": "v9"})
    assert cluster._membership._known == {}


def test_many_vpas_at_once_do_not_look_at_everything_for_each() -> None:
    def seconds(count: int) -> float:
        cluster = ClusterModel()
        for number in range(count):
            cluster.put_pod("shop", f"web-{number}", {"app": f"web-{number}"}, ["app"], NOW)
        parsed = [selector.parse(f"app=web-{number}") for number in range(count)]
        began = time.process_time()
        for number in range(count):
            cluster.put_vpa(vpa(f"vpa-{number}"), parsed[number], NOW)
        spent = time.process_time() - began
        assert all(len(entry.columns) == 1 for entry in cluster.vpas.values())
        return spent

    gc.disable()
    try:
        few, many = seconds(1000), seconds(8000)
    finally:
        gc.enable()
    assert many < few * 8 * 4, "eight times as many, and not eight times as long for each"


def test_a_vpa_that_moved_to_another_workload_begins_anew() -> None:
    cluster = learned()
    cluster.remove_vpa(WEB, NOW, is_for_good=True)
    cluster.put_vpa(vpa(), selector.parse("app=other"), NOW)
    assert cluster.vpas[WEB].containers() == []


OTHERS = [
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"},
    None,
]


@pytest.mark.parametrize("other", OTHERS, ids=["kind", "name", "none"])
def test_a_vpa_that_is_made_anew_for_another_workload_begins_anew(other: object) -> None:
    cluster = learned()
    (column,) = cluster.vpas[WEB].initial.values()
    cluster.remove_vpa(WEB, NOW)
    cluster.put_vpa(vpa(targetRef=other), selector.parse("app=db"), NOW + DAY)
    assert cluster.vpas[WEB].containers() == []
    assert cluster.vpas[WEB].pending == {}
    assert int(cluster.aggregates.open(1, NOW + DAY, cluster.windows)[0]) == column, "given back"


def test_a_vpa_that_is_made_anew_for_the_same_workload_goes_on() -> None:
    cluster = learned()
    count = samples(cluster)
    cluster.remove_vpa(WEB, NOW)
    same = {"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": "web"}
    cluster.put_vpa(vpa(targetRef=same), WEB_APP, NOW + DAY)
    assert samples(cluster) == count


def test_a_vpa_whose_pods_have_finished_does_not_run() -> None:
    cluster = learned()
    assert cluster.runs(WEB)
    cluster.put_pod("shop", "web-0", {"app": "web", "version": "v1"}, ["app"], NOW, is_active=False)
    assert not cluster.runs(WEB)
