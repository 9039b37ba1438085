"""What the updater does with one pod, gate by gate."""

from typing import Any

import pytest

from podscale.core import quantity
from podscale.kube.objects.vpa import LimitRangeItem, VpaRecommendation, decode
from tests.unit.vpa.updater.worlds import NOW, SETTINGS, YOUNG, decided, pod, vpa
from vpa.capping import LimitRanges
from vpa.updater.decide.decision import Pdb
from vpa.updater.decide.disruption_budget import OwnerSize
from vpa.updater.decide.priority import UpdaterSettings

PENDING = "PodResizePending"


def resizing(kind: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("given", "mode", "view", "action", "first"),
    [
        pytest.param({}, "Recreate", {}, "evict", "OutsideBounds", id="outside"),
        pytest.param({}, "Auto", {}, "evict", "OutsideBounds", id="auto-is-recreate"),
        pytest.param({}, "InPlaceOrRecreate", {}, "resize", "OutsideBounds", id="in-place"),
        pytest.param({}, "InPlace", {}, "resize", "OutsideBounds", id="in-place-only"),
        pytest.param({}, "Off", {}, "none", "UpdateModeOff", id="off"),
        pytest.param({}, "Initial", {}, "none", "UpdateModeInitial", id="initial"),
    ],
)
def test_modes(given: Any, mode: str, view: Any, action: str, first: str) -> None:
    found = decided(pod(**given), vpa(mode), **view)
    assert (found.action, found.reasons[0]) == (action, first)


def test_in_place_mode_without_its_gate_does_nothing() -> None:
    found = decided(pod(), vpa("InPlace"), settings=UpdaterSettings())
    assert found.action == "none"


@pytest.mark.parametrize(
    ("state", "since_s", "action", "reasons"),
    [
        pytest.param((PENDING, "Deferred"), 300.0, "none", ["ResizeDeferred"], id="waits"),
        pytest.param(
            (PENDING, "Deferred"), 301.0, "evict", ["ResizeDeferred", "FellBackToEviction"],
            id="gives-up-after-five-minutes",
        ),
        pytest.param(
            (PENDING, "Infeasible"), 0.0, "evict", ["ResizeInfeasible", "FellBackToEviction"],
            id="infeasible-at-once",
        ),
        pytest.param(("PodResizeInProgress", ""), 3600.0, "none", ["ResizeInProgress"], id="works"),
        pytest.param(
            ("PodResizeInProgress", ""), 3601.0, "evict",
            ["ResizeInProgress", "FellBackToEviction"], id="gives-up-after-an-hour",
        ),
        pytest.param(
            ("PodResizeInProgress", "Error", "below usage"), 0.0, "evict",
            ["ResizeError", "FellBackToEviction"], id="error-at-once",
        ),
        pytest.param(
            (PENDING, "Whatever"), 0.0, "evict", ["ResizeError", "FellBackToEviction"],
            id="an-unknown-reason-is-an-error",
        ),
    ],
)  # fmt: skip
def test_a_resize_under_way(
    state: tuple[str, ...], since_s: float, action: str, reasons: list[str]
) -> None:
    found = decided(pod(**resizing(*state)), vpa("InPlaceOrRecreate"), resize_since_s=since_s)
    assert found.action == action
    assert list(found.reasons[: len(reasons)]) == reasons
    asked = {"cpu": "500m", "memory": "512Mi"}
    in_place = decided(waiting(asked, *state), vpa("InPlace"), resize_since_s=since_s)
    assert in_place.action == ("resize" if state[1] == "Infeasible" else "none")
    assert in_place.record_infeasible == (state[1] == "Infeasible")
    assert "FellBackToEviction" not in in_place.reasons


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible", "Whatever"])
def test_a_pod_that_waits_to_start_is_not_evicted_for_its_resize(reason: str) -> None:
    waits = pod(phase="Pending", **resizing(PENDING, reason))
    for mode in ("InPlace", "InPlaceOrRecreate"):
        found = decided(waits, vpa(mode), resize_since_s=301.0)
        assert (found.action, found.reasons[0]) == ("none", "ResizeDeferred")
        assert found.facts["phase"] == "Pending"


def test_a_size_on_record_is_not_tried_again_until_something_is_lower() -> None:
    refused = vpa().status.recommendation
    found = decided(pod(), vpa("InPlace"), was_refused=refused)
    assert (found.action, found.reasons[0]) == ("none", "ResizeInfeasible")
    entry = {"containerName": "app", "target": {"cpu": "600m", "memory": "512Mi"}}
    larger = decode({"containerRecommendations": [entry]}, VpaRecommendation)
    assert decided(pod(), vpa("InPlace"), was_refused=larger).action == "resize"


def test_a_lower_recommendation_that_the_namespace_raises_again_is_not_worth_a_try() -> None:
    ranges = LimitRanges(container=decode({"min": {"cpu": "700m"}}, LimitRangeItem))
    for refused, action in (("600m", "none"), ("700m", "none"), ("701m", "resize")):
        entry = {"containerName": "app", "target": {"cpu": refused, "memory": "512Mi"}}
        record = decode({"containerRecommendations": [entry]}, VpaRecommendation)
        found = decided(pod(), vpa("InPlace"), was_refused=record, ranges=ranges)
        assert found.action == action


def test_a_node_that_cannot_give_it_is_known_before_the_resize() -> None:
    small = {"cpu": quantity.parse("400m"), "memory": quantity.parse("8Gi")}
    found = decided(pod(), vpa("InPlaceOrRecreate"), allocatable=small)
    assert (found.action, found.reasons[0]) == ("evict", "ResizeInfeasible")
    assert decided(pod(), vpa("InPlace"), allocatable=small).action == "none"


def test_guaranteed_pods_keep_their_class_by_moving_limits_too() -> None:
    same = {"cpu": "100m", "memory": "512Mi"}
    found = decided(pod(requests=same, limits=same), vpa("InPlace"))
    assert found.action == "resize"
    only = {"containerPolicies": [{"containerName": "*", "controlledValues": "RequestsOnly"}]}
    lowered = decided(
        pod(requests={"cpu": "2", "memory": "1Gi"}, limits={"cpu": "2", "memory": "1Gi"}),
        vpa("InPlace", resourcePolicy=only),
    )
    assert (lowered.action, lowered.reasons[0]) == ("none", "QosClassWouldChange")
    assert (lowered.facts["from"], lowered.facts["to"]) == ("Guaranteed", "Burstable")


def test_the_admission_webhook_must_live_whatever_the_mode() -> None:
    for mode in ("Recreate", "InPlace", "InPlaceOrRecreate"):
        found = decided(pod(), vpa(mode), lease_age_s=60.0)
        assert found.reasons[0] == "AdmissionNotAlive"
        assert found.facts["age_s"] == 60.0


def test_nothing_is_evicted_that_admission_would_not_change() -> None:
    same = {"cpu": "500m", "memory": "512Mi"}
    found = decided(pod(requests=same, started=YOUNG), vpa())
    assert (found.action, found.reasons[0]) == ("none", "NothingToChange")


def test_an_older_vpa_of_the_same_pods_decides() -> None:
    mine = vpa(metadata={"creationTimestamp": "2026-03-01T00:00:00Z"})
    older = vpa(metadata={"name": "first", "creationTimestamp": "2026-01-01T00:00:00Z"})
    found = decided(pod(), mine, rivals=(older,))
    assert (found.action, found.reasons[0], found.facts["vpa"]) == ("none", "OlderVpaWins", "first")
    assert decided(pod(), older, rivals=(mine,)).action == "evict"


def test_a_disruption_budget_refuses_evictions_and_not_resizes() -> None:
    refusing = Pdb("web", refuses=True)
    assert decided(pod(), vpa(), pdb=refusing).reasons[0] == "PdbRefuses"
    assert decided(pod(), vpa("InPlace"), pdb=refusing).action == "resize"
    stuck = pod(**resizing(PENDING, "Infeasible"))
    found = decided(stuck, vpa("InPlaceOrRecreate"), pdb=refusing)
    assert found.action == "none"
    assert found.reasons[:2] == ("ResizeInfeasible", "PdbRefuses")


def test_a_pod_that_nobody_would_replace_is_never_touched() -> None:
    bare = pod(owner={"kind": "ReplicaSet", "name": "web-7d4"})
    for mode in ("Recreate", "InPlaceOrRecreate", "InPlace"):
        assert decided(bare, vpa(mode)).action == "none"


def test_an_owner_entry_without_controller_is_not_one() -> None:
    first = {"kind": "Node", "name": "n"}
    subject = pod(owner=first)
    assert decided(subject, vpa()).reasons[0] == "TooFewReplicas"


def test_a_controller_of_unknown_size_is_left_alone() -> None:
    assert decided(pod(), vpa(), size=OwnerSize()).action == "none"
    assert decided(pod(), vpa(), size=OwnerSize(replicas=0)).action == "none"


@pytest.mark.parametrize(
    ("annotations", "held"),
    [
        pytest.param({"disruption-windows": "Mon 11:00-13:00"}, False, id="inside"),
        pytest.param(
            {"disruption-windows": "Mon 22:00-05:00; Sat,Sun 00:00-24:00"}, True, id="out"
        ),
        pytest.param({"max-disruptions-per-day": "0"}, True, id="none-left"),
        pytest.param({"max-disruptions-per-day": "1"}, False, id="one-left"),
    ],
)
def test_windows_and_daily_budget_hold_an_update_up(
    annotations: dict[str, str], held: bool
) -> None:
    given = {f"vpa.podscale.io/{name}": value for name, value in annotations.items()}
    found = decided(pod(), vpa(metadata={"annotations": given}))
    assert (found.reasons[0] == "BudgetExhausted") == held
    assert found.action == ("none" if held else "evict")


def test_the_first_reason_depends_on_the_inputs_only() -> None:
    first = decided(pod(), vpa())
    second = decided(pod(), vpa())
    assert first == second


def test_skipping_the_budget_resizes_small_groups_and_never_evicts_them() -> None:
    lenient = UpdaterSettings(in_place=True, skip_disruption_budget=True)
    alone = OwnerSize(replicas=1)
    found = decided(pod(), vpa("InPlaceOrRecreate"), others=0, size=alone, settings=lenient)
    assert found.action == "resize"
    stuck = pod(**resizing(PENDING, "Infeasible"))
    found = decided(stuck, vpa("InPlaceOrRecreate"), others=0, size=alone, settings=lenient)
    assert (found.action, "TooFewReplicas" in found.reasons) == ("none", True)


def test_what_to_set_comes_with_the_decision() -> None:
    found = decided(pod(), vpa())
    assert str(found.resources[0].requests["cpu"]) == "500m"
    assert found.due is not None
    assert found.due.age_s == NOW - 1_772_884_800.0
    assert SETTINGS.lifetime_s == found.facts["lifetime_s"]


def killed(started: str, finished: str) -> list[dict[str, Any]]:
    ended = {"reason": "OOMKilled", "startedAt": started, "finishedAt": finished}
    return [{"name": "app", "lastState": {"terminated": ended}}]


@pytest.mark.parametrize(
    ("started", "finished", "per_vpa_s", "reason"),
    [
        pytest.param("11:40:00", "11:50:01", None, "WithinBoundsYoung", id="ran-for-long"),
        pytest.param("11:45:00", "11:50:01", None, "QuickOom", id="just-happened"),
        pytest.param("11:45:00", "11:50:00", None, "WithinBoundsYoung", id="ten-minutes-ago"),
        pytest.param("11:30:00", "11:31:00", None, "WithinBoundsYoung", id="half-an-hour-ago"),
        pytest.param("11:30:00", "11:31:00", 3600, "QuickOom", id="the-vpa-remembers-longer"),
        pytest.param("11:45:00", "11:50:01", 60, "WithinBoundsYoung", id="and-shorter"),
    ],
)
def test_a_quick_oom_is_one_for_as_long_as_it_is_quick(
    started: str, finished: str, per_vpa_s: int | None, reason: str
) -> None:
    within = {"cpu": "450m", "memory": "450Mi"}
    seen = killed(f"2026-03-09T{started}Z", f"2026-03-09T{finished}Z")
    policy = {} if per_vpa_s is None else {"evictAfterOOMSeconds": per_vpa_s}
    settings = UpdaterSettings(per_vpa_config=True)
    subject = pod(requests=within, started=YOUNG, containers=seen)
    found = decided(subject, vpa(policy=policy), settings=settings)
    assert found.reasons[0] == reason
    assert found.action == ("evict" if reason == "QuickOom" else "none")


HELD = {"cpu": "100m", "memory": "512Mi"}


def waiting(asked: dict[str, str], *state: str, **more: Any) -> Any:
    """A pod that still has what it had, while a resize to ``asked`` is under way."""
    held = [{"name": "app", "resources": {"requests": HELD}}]
    return pod(requests=asked, containers=held, **resizing(*state), **more)


STATES = [
    pytest.param((PENDING, "Deferred"), "ResizeDeferred", id="deferred"),
    pytest.param(("PodResizeInProgress", ""), "ResizeInProgress", id="in-progress"),
    pytest.param(("PodResizeInProgress", "Error", "below usage"), "ResizeError", id="error"),
    pytest.param((PENDING, "Whatever"), "ResizeError", id="unknown"),
]


@pytest.mark.parametrize(("state", "reason"), STATES)
def test_a_resize_whose_size_is_no_longer_wanted_is_revised(
    state: tuple[str, ...], reason: str
) -> None:
    other, same = {"cpu": "2", "memory": "512Mi"}, {"cpu": "500m", "memory": "512Mi"}
    found = decided(waiting(other, *state), vpa("InPlace"))
    assert (found.action, found.reasons) == ("resize", ("OutsideBounds", reason))
    assert not found.record_infeasible
    again = decided(waiting(same, *state), vpa("InPlace"))
    assert (again.action, again.reasons[0]) == ("none", reason)
    either = decided(waiting(other, *state), vpa("InPlaceOrRecreate"), resize_since_s=0.0)
    assert either.action == ("evict" if reason == "ResizeError" else "none")


def test_a_revised_resize_passes_the_gates_of_a_first_one() -> None:
    stuck = waiting({"cpu": "2", "memory": "512Mi"}, PENDING, "Deferred")
    full = decided(stuck, vpa("InPlace"), others=1)  # two of four live
    assert (full.action, full.reasons[0]) == ("none", "BudgetExhausted")
    small = {"cpu": quantity.parse("400m"), "memory": quantity.parse("8Gi")}
    found = decided(stuck, vpa("InPlace"), allocatable=small)
    assert (found.action, found.reasons[0]) == ("none", "ResizeInfeasible")
    pending = waiting({"cpu": "2", "memory": "512Mi"}, PENDING, "Deferred", phase="Pending")
    assert decided(pending, vpa("InPlace")).action == "none"
