"""Beside Kubernetes' own HPA controller: it acts, and each of its passes is decided again.

``decide`` must write what the in-tree controller wrote, to the letter, given what that very
pass saw: its scale GET (audit log), the answers it got (logged by the stage that answers in
the adapter's place), the pods of that moment (a watch), and the past carried along.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hpa.offline.evaluation import settings_for
from tests.cluster.beside_cast import BEHAVIORS, Role, cast, kinds
from tests.cluster.beside_passes import passes
from tests.cluster.beside_replay import Replay, Report
from tests.cluster.beside_script import Script
from tests.cluster.beside_stage import Stage, Told
from tests.cluster.beside_watch import History, Watch
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.plane import Plane
from tests.cluster.settings import SCALE_TO_ZERO, PlaneSettings, audited
from tests.tools.programs import release

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
DURATION_S = 90.0 if IS_SHORT else 600.0
SEED = int(os.environ.get("PODSCALE_SEED", "20261121"))
PERIOD_S = 3.0
SETTINGS = replace(
    settings_for(release()),
    downscale_stabilization_s=25.0,
    cpu_initialization_s=20.0,
    initial_readiness_delay_s=5.0,
    sync_period_s=PERIOD_S,
)
FLAGS = (
    "--horizontal-pod-autoscaler-downscale-stabilization=25s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=20s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
)
AUDIT = (
    audited("horizontalpodautoscalers/status.autoscaling", verbs=("update", "patch")),
    audited("deployments/scale.apps", "statefulsets/scale.apps", verbs=("get", "update", "patch")),
    {
        "level": "Metadata",
        "verbs": ["create", "update", "patch", "delete"],
        "resources": [{"group": "", "resources": ["configmaps", "events"]}],
    },
)
# What the in-tree client may send without waiting: its passes are then what the flag says.
UNLIMITED = ("--kube-api-qps=500", "--kube-api-burst=1000")
# Kinds of outcome that must have been compared, or the script proves too little.
COMMON = {
    "SucceededGetScale", "SucceededRescale", "ReadyForNewScale", "ScaleDownStabilized",
    "ValidMetricFound", "DesiredWithinRange", "TooManyReplicas", "TooFewReplicas",
    "ScaleUpLimit", "ScaleDownLimit", "FailedGetScale", "FailedGetResourceMetric",
}  # fmt: skip
RARE = {
    "ScaleUpStabilized", "ScaledToZero", "FailedGetContainerResourceMetric",
    "FailedGetPodsMetric", "FailedGetObjectMetric", "FailedGetExternalMetric",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(DURATION_S + 300)
async def test_every_pass_of_the_in_tree_controller_is_decided_alike(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(feature_gates=SCALE_TO_ZERO, audit=AUDIT))
    with plane.namespace("beside") as namespace:
        roles = cast(namespace)
        assert len(roles) >= 40
        pods_path = f"/api/v1/namespaces/{namespace}/pods"
        hpas_path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        plane.apply(*(each for role in roles for each in role.objects))
        plane.apply(*(role.hpa for role in roles))
        with (
            Watch(plane, pods_path) as pods,
            Watch(plane, hpas_path) as hpas,
            Stage.raised(plane, namespace, tmp_path, pods, SEED) as stage,
        ):
            shadow = ("--mode=shadow", f"--emulated-version={release()}", *FLAGS)
            with (
                HpaStack(plane, tmp_path, *shadow, sync_period="3s") as stack,
                plane.in_tree_hpa(PERIOD_S, *FLAGS, *UNLIMITED),
                Script(plane, namespace, roles, SEED, 0.5, lambda: pods.live) as script,
            ):
                alike = await _watched(stack, namespace, hpas, DURATION_S)
                assert stack.replicas[0].is_running
            await asyncio.sleep(0.5)  # the last events of the watches
        assert pods.failure is None
        assert hpas.failure is None
        assert not script.failures
    audit = plane.audit()
    report = await judged(namespace, roles, audit, stage.told, hpas.history, pods.history)
    print(f"\nseed {SEED}, {DURATION_S:.0f} s, {len(roles)} HPAs of {_forms(namespace)}")
    print(f"script: {dict(sorted(script.done.items()))}")
    print(f"conditions compared: {dict(report.reasons.most_common())}")
    share = report.comparable / max(report.passes, 1)
    print(
        f"{report.passes} passes, {report.written} with a status write: {report.comparable} "
        f"comparable ({share:.1%}), {len(report.differences)} differences; not comparable: "
        f"{dict(report.others)}"
    )
    for each in report.differences[:20]:
        print(f"  {each}")
    print(f"the living shadow, at moments of its own: {dict(alike)}")
    assert not report.differences
    assert share >= 0.95
    assert report.passes >= 0.8 * len(roles) * (DURATION_S / PERIOD_S - 3) * (
        0.5 if IS_SHORT else 1
    )
    assert set(report.reasons) >= (COMMON if IS_SHORT else COMMON | RARE)
    assert _writes_of_the_shadow(audit) == []
    # Other moments, other samples and pods: alike in most cases, which only shows that it lives.
    assert alike["alike"] > alike["other"]


async def _watched(stack: HpaStack, namespace: str, hpas: Watch, seconds: float) -> Counter[str]:
    """Wait; count how often the shadow's last decision is what the in-tree status wants."""
    path = f"/apis/hpa.podscale.io/v1alpha1/namespaces/{namespace}/scalingdecisions"
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 2 * PERIOD_S))
        _, told = await asyncio.to_thread(stack.get, 0, path)
        for each in told["items"]:
            told_of = each["status"]
            # What a shadow decides does not become the size.
            ours = told_of.get("decided", told_of.get("replicas"))
            theirs = hpas.live[each["metadata"]["name"]].get("status", {}).get("desiredReplicas")
            if ours is not None and theirs is not None:
                found["alike" if ours == theirs else "other"] += 1
    return found


async def judged(
    namespace: str,
    roles: Sequence[Role],
    audit: Sequence[Mapping[str, Any]],
    told: Sequence[Told],
    hpas: History,
    pods: History,
) -> Report:
    """Decide every pass again, and tell how that went."""
    found = passes(audit, told, roles)
    report = Report()
    for role in roles:
        replay = Replay(role.name, namespace, hpas, pods, SETTINGS)
        # The last one may have been cut off by the end.
        for one in found[role.name][:-1]:
            await replay.compare(one, report)
    return report


def _forms(namespace: str) -> str:
    counts = Counter(kinds(cast(namespace)))
    forms = ", ".join(f"{count} {kind}/{target}" for (kind, target), count in counts.items())
    return f"{forms}; behaviors {', '.join(BEHAVIORS)}"


def _writes_of_the_shadow(audit: list[dict[str, object]]) -> list[str]:
    """Return what podscale wrote: in shadow it stores nothing and touches nobody's objects."""
    return [
        str(entry["objectRef"])
        for entry in audit
        if "podscale-hpa" in str(entry["user"])
        and entry["verb"] in ("update", "patch", "create", "delete")
    ]
