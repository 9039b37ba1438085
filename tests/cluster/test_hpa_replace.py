"""The play of ``test_hpa_beside`` with ours in the leading part: replace mode, in-tree off."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cluster.beside_cast import GIZMO_CRD, SCALES, Role, cast
from tests.cluster.beside_script import Script
from tests.cluster.beside_stage import Stage
from tests.cluster.beside_watch import History, Watch
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.plane import Plane
from tests.cluster.settings import SCALE_TO_ZERO, PlaneSettings, audited

DURATION_S = 45.0
SEED = 20261121
FLAGS = (
    "--horizontal-pod-autoscaler-downscale-stabilization=15s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=5s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=2s",
)
OURS = "system:serviceaccount:podscale:podscale-hpa"
AUDIT = (
    audited("horizontalpodautoscalers/status.autoscaling", verbs=("update", "patch")),
    audited(*SCALES, verbs=("update", "patch")),
)
OUTCOMES = {
    "SucceededRescale", "ReadyForNewScale", "ScaleDownStabilized", "ValidMetricFound",
    "DesiredWithinRange", "TooManyReplicas", "FailedGetScale",
}  # fmt: skip
_LAG_S = 1.0  # between an edit of the bounds and our watch


def test_in_replace_mode_the_same_play_is_acted_within_every_bound(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(feature_gates=SCALE_TO_ZERO, audit=AUDIT))
    plane.apply(GIZMO_CRD)
    plane.wait_established(GIZMO_CRD["metadata"]["name"])
    with plane.namespace("replace") as namespace:
        roles = cast(namespace)
        plane.apply(*(each for role in roles for each in role.objects))
        plane.apply(*(role.hpa for role in roles))
        pods_path = f"/api/v1/namespaces/{namespace}/pods"
        hpas_path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        with (
            Watch(plane, pods_path) as pods,
            Watch(plane, hpas_path) as hpas,
            Stage.raised(plane, namespace, tmp_path, pods, SEED),
            HpaStack(plane, tmp_path, *FLAGS, sync_period="3s") as stack,
            Script(plane, namespace, roles, SEED, 0.5, lambda: pods.live) as script,
        ):
            time.sleep(DURATION_S)
            assert stack.replicas[0].is_running
            # Of one that grew: of several at once kubectl shows no events.
            described = plane.kubectl(
                "describe", "hpa", _rescaled(plane, namespace), "-n", namespace
            )
        assert not script.failures
    audit = plane.audit()
    sizes = [each for each in audit if each["objectRef"]["subresource"] == "scale"]
    ours = [each for each in sizes if each["user"]["username"] == OURS]
    written = [each for each in ours if each["responseStatus"]["code"] == 200]
    # A Deployment's controller changes its status after each of them, and versions with it.
    conflicts = sum(each["responseStatus"]["code"] == 409 for each in ours)
    reasons = _reasons(audit)
    print(
        f"\n{len(roles)} HPAs, {DURATION_S:.0f} s: {len(written)} rescales, {conflicts} conflicts"
        f" of {len(ours)} PUTs, {dict(reasons)}"
    )
    assert conflicts <= max(len(ours) / 20, 2)
    assert len(written) >= len(roles)
    assert set(reasons) >= OUTCOMES
    assert _out_of_bounds(written, roles, hpas.history) == []
    assert _never_told(roles, audit) == []
    for shown in ("Metrics:", "Min replicas:", "Deployment pods:", "AbleToScale", "ScalingLimited",
                  "as a percentage of request", "SuccessfulRescale", "New size:"):  # fmt: skip
        assert shown in described, f"{shown}\n{described[:4000]}"


def _rescaled(plane: Plane, namespace: str) -> str:
    """Return an HPA over a utilization that was rescaled."""
    query = "fieldSelector=reason%3DSuccessfulRescale"
    events = plane.admin.get(f"/api/v1/namespaces/{namespace}/events?{query}")["items"]
    names = {str(each["involvedObject"]["name"]) for each in events}
    return min(name for name in names if "utilization" in name)


def _reasons(audit: Sequence[Mapping[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in audit:
        is_ours = each["user"]["username"] == OURS and each["responseStatus"]["code"] == 200
        if is_ours and each["objectRef"]["subresource"] == "status":
            status = (each.get("responseObject") or {}).get("status", {})
            found.update(condition["reason"] for condition in status.get("conditions", ()))
    return found


def _out_of_bounds(
    written: Sequence[Mapping[str, Any]], roles: Sequence[Role], hpas: History
) -> list[str]:
    """Return the rescales that lie in no bounds the HPA had just then."""
    known = {role.name for role in roles}
    found = []
    for each in written:
        name = each["objectRef"]["name"]
        assert name in known
        size = each["requestObject"]["spec"].get("replicas", 0)
        at = datetime.fromisoformat(each["requestReceivedTimestamp"]).timestamp()
        specs = [state["spec"] for state in hpas.versions(name, at - _LAG_S, at) if state]
        if not any(spec["minReplicas"] <= size <= spec["maxReplicas"] for spec in specs):
            found.append(f"{name}: {size} at {at:.1f}")
    return found


def _never_told(roles: Sequence[Role], audit: Sequence[Mapping[str, Any]]) -> list[str]:
    told = {
        each["objectRef"]["name"]
        for each in audit
        if each["objectRef"]["subresource"] == "status" and each["user"]["username"] == OURS
    }
    return sorted({role.name for role in roles} - told)
