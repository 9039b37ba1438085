"""Beside Kubernetes' own HPA controller: it acts, and each of its passes is decided again.

``decide`` must write and say what the in-tree controller wrote and said, to the letter, given
what that very pass saw: the version of its target (audit log, watch), the answers it got (logged
by the stage that answers in the adapter's place), the pods and the other HPAs of that moment
(watches), and the past carried along. Then ours acts where in-tree acted: equal workloads under
an equal load go as far from in-tree's as those of two in-tree controllers from each other.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from podscale.cli.evaluation.observation import settings_for
from tests.cluster.beside_cast import BEHAVIORS, GIZMO_CRD, SCALES, Role, cast, kinds
from tests.cluster.beside_passes import LOGGED, Pass, passes
from tests.cluster.beside_races import Race, against, between, total
from tests.cluster.beside_replay import LISTED, Replay, Report
from tests.cluster.beside_script import Script
from tests.cluster.beside_sights import Selectors, Sights, World
from tests.cluster.beside_stage import Stage
from tests.cluster.beside_watch import History, Watch
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.plane import Plane
from tests.cluster.settings import SCALE_TO_ZERO, PlaneSettings, audited
from tests.tools.programs import release

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
DURATION_S = 42.0 if IS_SHORT else 600.0
RACE_S = 21.0 if IS_SHORT else 240.0
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
    audited(*SCALES, verbs=("get", "update", "patch")),
    {
        "level": "Metadata",
        "verbs": ["create", "update", "patch", "delete"],
        "resources": [{"group": "", "resources": ["configmaps", "events"]}],
    },
)
# What the in-tree client may send without waiting: its passes are then what the flag says.
UNLIMITED = ("--kube-api-qps=500", "--kube-api-burst=1000")
HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
WATCHED = {
    "pods": "/api/v1",
    "replicationcontrollers": "/api/v1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
}
SHADOW_ALIKE = 0.95  # of the shadow's decisions
# Of the replica-seconds: between three pairs there are fewer edges to fall on two sides of than
# there are in the workloads.
RACE_REST = 0.02
# Kinds of outcome that must have been compared, or the script proves too little.
COMMON = {
    "SucceededGetScale", "SucceededRescale", "ReadyForNewScale", "ScaleDownStabilized",
    "ValidMetricFound", "DesiredWithinRange", "TooManyReplicas", "TooFewReplicas",
    "ScaleUpLimit", "FailedGetScale", "FailedGetResourceMetric",
    "AmbiguousSelector",
}  # fmt: skip
RARE = {
    "ScaleUpStabilized", "ScaleDownLimit", "ScaledToZero", "FailedGetContainerResourceMetric",
    "FailedGetPodsMetric", "FailedGetObjectMetric", "FailedGetExternalMetric",
}  # fmt: skip
SAID = {
    "SuccessfulRescale", "FailedComputeMetricsReplicas", "FailedGetScale",
    "FailedGetResourceMetric", "AmbiguousSelector",
}  # fmt: skip
RARELY_SAID = {"SelectorRequired", "FailedGetPodsMetric", "FailedGetExternalMetric"}


class Decided(NamedTuple):
    """What the shadow decided last, when it was asked."""

    at: float
    name: str
    size: int


@pytest.mark.slow
@pytest.mark.timeout(DURATION_S + RACE_S + 300)
async def test_every_pass_of_the_in_tree_controller_is_decided_alike_and_ours_goes_its_way(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(feature_gates=SCALE_TO_ZERO, audit=AUDIT))
    plane.apply(GIZMO_CRD)
    plane.wait_established(GIZMO_CRD["metadata"]["name"])
    with ExitStack() as scene:
        namespace = scene.enter_context(plane.namespace("beside"))
        roles = cast(namespace)
        assert len(roles) >= 50
        plane.apply(*(each for role in roles for each in role.objects))
        plane.apply(*(role.hpa for role in roles))
        watches = {
            plural: scene.enter_context(Watch(plane, f"{prefix}/namespaces/{namespace}/{plural}"))
            for plural, prefix in WATCHED.items()
        }
        pods, hpas = watches["pods"], watches["horizontalpodautoscalers"]
        stage = scene.enter_context(Stage.raised(plane, namespace, tmp_path, pods, SEED))
        *races, ours_race = [
            scene.enter_context(Race.prepared(plane, stage, name))
            for name in ("in-tree-a", "in-tree-b", "in-tree-c", "ours")
        ]
        (tmp_path / "shadow").mkdir()
        flags = (f"--emulated-version={release()}", *FLAGS)
        with (
            HpaStack(
                plane, tmp_path / "shadow", "--mode=shadow", *flags, sync_period="3s"
            ) as stack,
            plane.in_tree_hpa(PERIOD_S, *FLAGS, *UNLIMITED, *LOGGED) as in_tree,
            Script(plane, namespace, roles, SEED, 0.5, lambda: pods.live) as script,
        ):
            watching = asyncio.create_task(_decisions(stack, namespace, DURATION_S))
            # Of pods that are older than that, the age makes no difference any more.
            await asyncio.sleep(races[-1].seconds_until(SETTINGS.cpu_initialization_s))
            for race in races:
                await asyncio.to_thread(race.start)
                await asyncio.sleep(PERIOD_S / len(races))
            decided = await watching
            assert stack.replicas[0].is_running
        theirs = [race.series(RACE_S) for race in races]
        await asyncio.sleep(0.5)  # the last events of the watches
        assert not script.failures
        assert [each.failure for each in watches.values() if each.failure] == []
        for each in plane.admin.get("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]:
            path = f"{HPAS.format(each['metadata']['namespace'])}/{each['metadata']['name']}"
            plane.admin.request("DELETE", path)
        audit = plane.audit()
        with HpaStack(plane, tmp_path, *flags, sync_period="3s"):
            ours_race.start()
            await asyncio.sleep(RACE_S)
            ours = ours_race.series(RACE_S)
        world = World(
            namespace,
            roles,
            hpas.history,
            pods.history,
            {plural: watch.history for plural, watch in watches.items()},
        )
        found = passes(namespace, audit, stage.told, in_tree.log, roles)
    report = await judged(world, found)
    share = report.comparable / max(report.passes, 1)
    alike = _shadow_share(decided, hpas.history)
    _print(namespace, roles, script, report, share)
    print(f"the living shadow: {alike:.1%} of {len(decided)} decisions as in-tree's")
    pairs, apart = between(theirs, PERIOD_S), against(ours, theirs, PERIOD_S)
    print(
        f"trajectories of {len(ours)} workloads, {RACE_S:.0f} s: replica-seconds apart beyond the "
        f"phase, in-tree against in-tree {pairs}, ours against in-tree {apart}; replica-seconds "
        f"in all {[round(total(each)) for each in (*theirs, ours)]}"
    )
    assert not report.differences
    assert share >= 0.95
    assert report.late <= max(report.passes / 100, 1)
    assert report.passes >= 0.8 * len(roles) * (DURATION_S / PERIOD_S - 3) * (
        0.5 if IS_SHORT else 1
    )
    assert set(report.reasons) >= (COMMON if IS_SHORT else COMMON | RARE)
    assert set(report.events) >= (SAID if IS_SHORT else SAID | RARELY_SAID)
    assert _writes_of_the_shadow(audit) == []
    assert alike >= SHADOW_ALIKE
    assert sum(apart) / len(apart) <= max(pairs) + RACE_REST * total(ours)


async def _decisions(stack: HpaStack, namespace: str, seconds: float) -> list[Decided]:
    """Wait; return what the shadow told meanwhile."""
    path = f"/apis/hpa.podscale.io/v1alpha1/namespaces/{namespace}/scalingdecisions"
    found = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 2 * PERIOD_S))
        _, told = await asyncio.to_thread(stack.get, 0, path)
        now = time.time()
        for each in told["items"]:
            # What a shadow decides does not become the size.
            size = each["status"].get("decided", each["status"].get("replicas"))
            if size is not None:
                found.append(Decided(now, each["metadata"]["name"], size))
    return found


def _shadow_share(decided: Sequence[Decided], hpas: History) -> float:
    """Return the share that in-tree wanted, too: in the two periods before, in one of which the
    shadow decided, or in the one after, when in-tree saw what the shadow had seen."""
    alike = []
    for each in decided:
        states = hpas.versions(each.name, each.at - 2 * PERIOD_S, each.at + PERIOD_S)
        wanted = {_wanted(state["status"]) for state in states if state and state.get("status")}
        if wanted:
            alike.append(each.size in wanted)
    return sum(alike) / max(len(alike), 1)


def _wanted(status: Mapping[str, Any]) -> int:
    """Return the size: where nothing could be computed, the desired one is an old one."""
    stands = any(
        each["type"] == "ScalingActive" and each["status"] == "False"
        for each in status.get("conditions", ())
    )
    return int(status.get("currentReplicas" if stands else "desiredReplicas", 0))


async def judged(world: World, found: Mapping[str, Sequence[Pass]]) -> Report:
    """Decide every pass again, and tell how that went."""
    report = Report()
    selectors = Selectors(world, found)
    for role in world.roles:
        replay = Replay(Sights(role, world, selectors), world, SETTINGS)
        # The last one may have been cut off by the end.
        for one in found[role.name][:-1]:
            await replay.compare(one, report)
    return report


def _print(
    namespace: str,
    roles: Sequence[Role],
    script: Script,
    report: Report,
    share: float,
) -> None:
    print(f"\nseed {SEED}, {DURATION_S:.0f} s, {len(roles)} HPAs of {_forms(namespace)}")
    print(f"script: {dict(sorted(script.done.items()))}")
    print(f"conditions compared: {dict(report.reasons.most_common())}")
    print(f"events compared: {dict(report.events.most_common())}")
    print(
        f"{report.passes} passes, {report.written} with a status write, {report.said} events: "
        f"{report.comparable} comparable ({share:.1%}), {len(report.differences)} differences; "
        f"{report.late} beside a late watch; not comparable: {dict(report.others)}"
    )
    for rule, reason in LISTED.items():
        print(f"  listed, {report.listed[rule]} passes: {rule}. {reason}")
    for each in report.differences[:20]:
        print(f"  {each}")


def _forms(namespace: str) -> str:
    counts = Counter(kinds(cast(namespace)))
    forms = ", ".join(f"{count} {kind}/{target}" for (kind, target), count in counts.items())
    targets = Counter(role.kind for role in cast(namespace))
    return f"{forms}; targets {dict(targets)}; behaviors {', '.join(BEHAVIORS)}"


def _writes_of_the_shadow(audit: list[dict[str, object]]) -> list[str]:
    """Return what podscale wrote: in shadow it stores nothing and touches nobody's objects."""
    return [
        str(entry["objectRef"])
        for entry in audit
        if "podscale-hpa" in str(entry["user"])
        and entry["verb"] in ("update", "patch", "create", "delete")
    ]
