"""Replays of the metrics that HPAs were given come to the sizes that they were given.

On the real plane podscale in replace mode, or kube-controller-manager, acts on twenty HPAs under
a script of loads. What each pass was told is the history, and its time a pass of the replay.
"""

import json
import math
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from hpa.decide.api.reading import read, to_v2
from hpa.decide.api.spec import MetricSpec
from hpa.simulate.workload import Plant
from podscale.cli.evaluation.observation import settings_for
from podscale.core.quantity import parse
from tests.cluster.beside_cast import CONTAINERS, REQUESTS, Role
from tests.cluster.beside_passes import IN_TREE
from tests.cluster.beside_races import PodTimes, Race
from tests.cluster.beside_stage import Stage, Told, app_of
from tests.cluster.beside_watch import Watch
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.plane import Plane
from tests.cluster.test_hpa_beside import UNLIMITED
from tests.cluster.test_hpa_replace import OURS
from tests.kit.replayed import LivePass, ReplayedPasses, share_alike
from tests.tools.programs import release

DURATION_S = 21.0 if os.environ.get("PODSCALE_SHORT") == "1" else 600.0
PERIOD_S, SEED = 3.0, 20261126
# No multiples of the period: what lies on the edge of a window is in or out by a millisecond.
# Starting pods have their time in whole seconds, up to two after the pass that asked for them.
SETTINGS = structs.replace(
    settings_for(release()),
    downscale_stabilization_s=16.5,
    cpu_initialization_s=4.1,
    initial_readiness_delay_s=1.5,
)
FLAGS = (
    "--horizontal-pod-autoscaler-downscale-stabilization=16.5s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=4.1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1.5s",
)
REQUESTS_MILLI = {name: parse(amount).milli_int64 for name, amount in REQUESTS.items()}
# The stage says of its values that they are five seconds old, of fifteen: the window began so long
# before the pass that was told of them.
WINDOW_S = 5.0 + 15.0
LATE_S = 1.5 * PERIOD_S
MEMORY_S = 26.0  # longer than any window or policy
DETERMINED = 0.5  # of the passes, at least
EQUAL = 0.99  # of the determined ones


@pytest.mark.slow
@pytest.mark.timeout(DURATION_S + 120)
@pytest.mark.parametrize("acting", ["podscale", "kube-controller-manager"])
def test_a_replay_of_what_was_told_comes_to_the_sizes_that_there_were(
    plane: Plane, tmp_path: Path, acting: str
) -> None:
    with ExitStack() as scene:
        namespace = scene.enter_context(plane.namespace("fidelity"))
        pods = scene.enter_context(Watch(plane, f"/api/v1/namespaces/{namespace}/pods"))
        stage = scene.enter_context(Stage.raised(plane, namespace, tmp_path, pods, SEED))
        races = [scene.enter_context(Race.prepared(plane, stage, f"race-{each}")) for each in "ab"]
        time.sleep(races[-1].seconds_until(SETTINGS.cpu_initialization_s))
        with _controller(acting, plane, tmp_path):
            for race in races:
                race.start()
            time.sleep(DURATION_S)
        user = OURS if acting == "podscale" else IN_TREE
        told = [each for each in stage.told if each.user == user]
        found = [_replayed(race, role, told) for race in races for role in race.roles]
    share = share_alike(acting, found)
    assert min(len(each.live) for each in found) >= 0.7 * DURATION_S / PERIOD_S
    assert sum(each.rescales for each in found) > len(found)
    passes = sum(len(each.live) for each in found)
    assert sum(each.determined for each in found) >= DETERMINED * passes
    assert share >= EQUAL


def _controller(acting: str, plane: Plane, directory: Path) -> AbstractContextManager[object]:
    if acting == "podscale":
        return HpaStack(plane, directory, *FLAGS, sync_period=f"{PERIOD_S:g}s")
    return plane.in_tree_hpa(PERIOD_S, *FLAGS, *UNLIMITED)


def _replayed(race: Race, role: Role, told: Sequence[Told]) -> ReplayedPasses:
    hpa = read(to_v2(dict(role.hpa)))
    (metric,) = hpa.metrics
    name = f"{race.namespace}/{role.name}"
    pods = race.pod_times(role.name)
    mine = [each for each in told if _asked_of(each) == name]
    times = [each.began for each in mine]
    passes = []
    for each, is_determined in zip(mine, _determined(times), strict=True):
        ready = sum(pod.ready <= each.began < pod.gone for pod in pods)
        load, size = _load(metric, each, ready), race.size(role.name, each.began)
        passes.append(LivePass(each.began, load, size, ready, is_determined))
    ready_after_s = tuple(_ready_after(pods, times))
    plant = Plant(ready_after_s, metric_age_s=0.0, window_s=WINDOW_S,
                  requests=dict.fromkeys(CONTAINERS, REQUESTS_MILLI))  # fmt: skip
    return ReplayedPasses(name, hpa, passes, plant, SETTINGS)


def _determined(times: Sequence[float]) -> Iterator[bool]:
    """Yield of each pass whether it is known what it decided on, and all that it remembers.

    Where two passes are far apart the machine stood still: both decide seconds after they asked.
    """
    late_s = -math.inf
    for before, at, after in zip([times[0], *times], times, [*times[1:], times[-1]], strict=False):
        if at - before > LATE_S:
            late_s = at
        yield at - late_s > MEMORY_S and after - at <= LATE_S


def _asked_of(told: Told) -> str:
    # /apis/GROUP/VERSION/namespaces/NAMESPACE/…; without the end: discovery.
    rest = told.path.strip("/").split("/")[3:]
    return f"{rest[1]}/{app_of(rest, dict(told.query)).removeprefix('app=')}" if rest else ""


def _load(metric: MetricSpec, told: Told, ready: int) -> float:
    # The whole of what was measured, in the thousandths that controllers count in.
    items = json.loads(told.body)["items"]
    amounts = [
        usage["usage"][metric.name]
        for each in items
        for usage in each.get("containers", ())
        if metric.container in ("", usage["name"])
    ] or [each["value"] for each in items]
    total = sum(parse(each).milli_int64 for each in amounts) / 1000.0
    return total * ready if metric.is_by_value else total


def _ready_after(pods: Sequence[PodTimes], times: Sequence[float]) -> Iterator[float]:
    """Yield how long each pod took from the pass that made it to Ready."""
    for pod in pods:
        made = bisect_left(times, pod.created) - 1
        yield pod.ready - times[made] if made >= 0 else 0.0  # it was there before
