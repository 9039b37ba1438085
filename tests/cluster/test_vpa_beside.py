"""Beside upstream's recommender 1.8.1: the same pods, the same usage, the same recommendations.

Each workload has two VPAs, one for each recommender. Both read the same story of usage; then
they change places, twice, and take over each other's checkpoints.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.vpa_fleet import (
    NAMES,
    checkpoints,
    differences,
    is_off,
    recommendations,
    vpas,
    workloads,
)
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.vpa_usage import GROUP, STEP_S, VERSION, UsageServer
from tests.tools.process import NotReadyError, Program, free_port, wait_until
from tests.tools.required import require

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
COUNT = 40 if IS_SHORT else 200
LOOPS = 20 if IS_SHORT else 60
AFTER = 5 if IS_SHORT else 10  # loops between two changes of places
OFF = {f"{name}-{index}-side" for name in NAMES for index in range(COUNT) if is_off(index)}
UPSTREAM = "upstream-recommender"
OURS = "system:serviceaccount:podscale:podscale-recommender"
# Short, so that an hour of usage has everything: decayed weights, closed and open windows.
FLAGS = (
    "--recommender-interval=500ms",
    "--cpu-histogram-decay-half-life=20m",
    "--memory-histogram-decay-half-life=30m",
    "--memory-aggregation-interval=45m",
    "--confidence-interval-cpu=2h",
    "--confidence-interval-memory=3h",
    "--cpu-integer-post-processor-enabled",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
)
NO_DEAD_BANDS = ("--metrics-source=api", "--status-deadband=0")


class Pair:
    """Upstream's recommender and ours, each for the VPAs of one name."""

    def __init__(self, plane: Plane, stack: VpaStack, directory: Path) -> None:
        self.plane, self.stack, self.directory = plane, stack, directory
        identity = plane.user(UPSTREAM, "system:masters")
        self._kubeconfig = identity.write_kubeconfig(directory / "upstream.kubeconfig")
        self._starts = 0

    @contextmanager
    def running(self, theirs: str, ours: str) -> Iterator[tuple[Program, ...]]:
        """Run both; ``theirs`` and ``ours`` are names of recommenders."""
        self._starts += 1
        upstream = Program(
            f"upstream-{self._starts}",
            [
                str(require("recommender")),
                f"--kubeconfig={self._kubeconfig}",
                f"--address=127.0.0.1:{free_port()}",
                f"--recommender-name={theirs}",
                "-v=1",
                # It writes every checkpoint in every loop, and would do nothing else.
                "--checkpoints-timeout=1s",
                *FLAGS,
            ],
            self.directory / f"upstream-{self._starts}.log",
        )
        with upstream:
            own = self.stack.start(
                "recommender",
                f"--recommender-name={ours}",
                *FLAGS,
                *NO_DEAD_BANDS,
                module="tests.cluster.short_times",
            )
            try:
                yield upstream, own
            finally:
                self.stack.stop("recommender")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recommendations_are_upstreams_and_checkpoints_change_hands(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(
        PlaneSettings(controller_manager_args=("--kube-api-qps=500", "--kube-api-burst=1000"))
    )
    with plane.namespace("beside") as namespace, VpaStack(plane, tmp_path) as stack:
        plane.apply(*workloads(namespace, COUNT))
        plane.apply(*vpas(namespace, COUNT))
        pods = sum(1 + index % 2 for index in range(COUNT))
        wait_until("all pods", lambda: len(plane.ready_pods(namespace)) == pods, 120)
        containers = [
            (namespace, pod["metadata"]["name"], container["name"])
            for pod in plane.pods(namespace)
            for container in pod["spec"]["containers"]
        ]
        authority = Authority(tmp_path, "usage-ca")
        serving = authority.issue("usage", hosts=(f"usage.{namespace}.svc",))
        # Page 60 is twenty minutes old at the start: the second window stays open meanwhile.
        begin = time.time() - (LOOPS + 20) * STEP_S
        with UsageServer(serving, plane.front_proxy_ca, containers, begin=begin) as usage:
            plane.expose(namespace, "usage", usage.port)
            plane.register_api(
                GROUP, VERSION, namespace=namespace, service="usage", port=usage.port,
                ca_pem=authority.cert_pem,
            )  # fmt: skip
            plane.wait_available(GROUP, VERSION)
            pair = Pair(plane, stack, tmp_path)
            usage.release(LOOPS)
            with pair.running(*NAMES) as programs:
                equal(plane, namespace, usage, LOOPS, programs)
                first = checkpoints(plane, namespace)
            usage.release(LOOPS + AFTER)
            with pair.running(*reversed(NAMES)) as programs:
                equal(plane, namespace, usage, LOOPS + AFTER, programs)
                second = checkpoints(plane, namespace)
            usage.release(LOOPS + 2 * AFTER)
            with pair.running(*NAMES) as programs:
                equal(plane, namespace, usage, LOOPS + 2 * AFTER, programs)
                third = checkpoints(plane, namespace)
    # Upstream saves containers of mode Off too, whose name another recommender then takes over.
    assert first.keys() <= second.keys() <= third.keys()
    for before, after in ((first, second), (second, third)):
        for name in before.keys() - OFF:
            status = after[name]
            assert status["firstSampleStart"] == before[name]["firstSampleStart"]
            gained = status["totalSamplesCount"] - before[name]["totalSamplesCount"]
            assert gained in (AFTER, 2 * AFTER), name
    for index in range(COUNT):
        for container in ("app", "side", "log"):
            names = [f"{name}-{index}-{container}" for name in NAMES]
            if names[0] in third and names[0] not in OFF:
                theirs, ours = (third[name] for name in names)
                assert theirs["cpuHistogram"] == ours["cpuHistogram"], names
                memory = [dict(each["memoryHistogram"]) for each in (theirs, ours)]
                # The open window's peak is taken back out, which costs a sum its last digits.
                weights = [float(each.pop("totalWeight", 0.0)) for each in memory]
                assert memory[0] == memory[1], names
                assert weights[0] == pytest.approx(weights[1], rel=1e-9, abs=1e-9), names


def equal(
    plane: Plane, namespace: str, usage: UsageServer, page: int, programs: tuple[Program, ...]
) -> None:
    """Wait until both have read up to ``page``, and hold all that they recommend equal."""
    wait_until(
        f"page {page} read by both",
        lambda: all(usage.read[user] == page for user in (UPSTREAM, OURS)),
        400,
        programs,
    )
    heard = dict(usage.lists)
    wait_until(
        "two more loops",
        lambda: all(usage.lists[user] >= heard[user] + 2 for user in (UPSTREAM, OURS)),
        120,
        programs,
    )
    try:
        wait_until(
            "recommendations are equal",
            lambda: not differences(recommendations(plane, namespace), COUNT),
            20,
            programs,
        )
    except NotReadyError:
        wrong = differences(recommendations(plane, namespace), COUNT)
        pytest.fail(f"{len(wrong)} of {COUNT} differ:\n" + "\n".join(wrong[:5]))
    last = usage.stamp(page)

    def late() -> dict[str, object]:
        return {
            name: status.get("lastSampleStart")
            for name, status in checkpoints(plane, namespace).items()
            if name not in OFF and status.get("lastSampleStart") != last
        }

    try:
        wait_until("all checkpoints are of the last page", lambda: not late(), 200, programs)
    except NotReadyError:
        pytest.fail(f"not of the last page, {last}: {late()}")
