"""Faults on the real plane that can be had two at a time, around two replicas of the HPA.

One HPA asks for a pod for each 10 of a series; what it must never do is seen at its Deployment,
whose generation counts every change of its size.
"""

import base64
import gzip
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.attacks.walls_stage import DOWN_AT_ONCE, FailingLists
from tests.cluster.hpa_stack import LEASE_S, NAMESPACE, HpaStack
from tests.cluster.plane import Plane
from tests.cluster.set_clock import set_by, with_clock
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import NotReadyError, Program, wait_until

_SERIES = "work_depth"
_RULES = f"""\
externalRules:
- seriesQuery: {_SERIES}
  resources: {{namespaced: false}}
  metricsQuery: sum(<<.Series>>)
"""
_SPOILED = (b"\x00\xff" * 50, gzip.compress(b"[" * 5000), gzip.compress(b"{}" * 100)[:-9])
_SERVED_S = 60.0
_STEP_S = 0.2  # of a slow API server: it stands still, then works, for so long each


class PairStage(Struct, frozen=True):
    """What there is to be hurt."""

    plane: Plane
    exporter: Exporter
    lists: FailingLists
    stack: HpaStack
    namespace: str
    rules: Path
    clocks: Sequence[Path]  # of the replicas
    random: Random

    @property
    def leader(self) -> Program:
        """Whoever holds the Lease, or held it last; the other one where it is dead."""
        holder = self.stack.leader()
        one, other = self.stack.replicas[:: -1 if holder.endswith("1") else 1]
        return one if one.is_running else other

    def load(self, size: int) -> None:
        """Put on what takes so many pods."""
        self.exporter.set((_SERIES, Target({}, (gauge(_SERIES, 10.0 * size),))))

    def size(self) -> tuple[int, int]:
        """Return the wanted size, and how often the Deployment's spec has changed."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web"
        found = self.plane.admin.get(path)
        return found["spec"]["replicas"], found["metadata"]["generation"]

    def wait_size(self, size: int) -> None:
        """Return when it is wanted; raises with the ends of the logs."""
        try:
            wait_until(f"{size} replicas", lambda: self.size()[0] == size, _SERVED_S)
        except NotReadyError as late:
            raise AssertionError(f"{late}\n{self.stack.tails()}") from None


@contextmanager
def killed(stage: PairStage) -> Iterator[None]:
    """The leader is killed, and started at the end."""
    leader = stage.leader
    leader.kill()
    yield
    leader.start()


@contextmanager
def spoiled_history(stage: PairStage) -> Iterator[None]:
    """Stored histories become what is none, and the leader is killed, so that another reads."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    stored = stage.plane.admin.get(f"{path}?labelSelector=podscale.io%2Fhistory%3Dhpa")["items"]
    for each in stored:
        text = base64.b64encode(stage.random.choice(_SPOILED)).decode()
        change = {"binaryData": {"history.json.gz": text}}
        stage.plane.admin.patch(f"{path}/{each['metadata']['name']}", change)
    with killed(stage):
        yield


@contextmanager
def lost_lease(stage: PairStage) -> Iterator[None]:
    """Somebody takes the Lease and never renews it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "nobody", "renewTime": now, "leaseDurationSeconds": LEASE_S}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/podscale-hpa"
    stage.plane.admin.patch(path, {"spec": spec})
    yield


@contextmanager
def refused_list(stage: PairStage) -> Iterator[None]:
    """Prometheus answers the list of the series with 503."""
    stage.lists.series = _SERIES
    yield
    stage.lists.series = ""


@contextmanager
def set_clock(stage: PairStage) -> Iterator[None]:
    """The clocks of both are set, and set right at the end."""
    by_s = stage.random.choice((-7200.0, -40.0, 40.0, 7200.0))
    for file in stage.clocks:
        set_by(file, by_s)
    yield
    for file in stage.clocks:
        set_by(file, 0.0)


@contextmanager
def bad_reload(stage: PairStage) -> Iterator[None]:
    """The rules file is broken, and mended at the end."""
    stage.rules.write_text(_RULES + stage.random.choice(("rules: [{metricQuery: x}]", "rules: [")))
    yield
    stage.rules.write_text(_RULES)


@contextmanager
def frozen_watch(stage: PairStage) -> Iterator[None]:
    """The API server says nothing more, and closes no connection."""
    stage.plane.apiserver.pause()
    try:
        yield
    finally:
        stage.plane.apiserver.resume()


@contextmanager
def slow_api(stage: PairStage) -> Iterator[None]:
    """The API server works half of the time."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            stage.plane.apiserver.pause()
            ends.wait(_STEP_S)
            stage.plane.apiserver.resume()
            ends.wait(_STEP_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


Fault = Callable[[PairStage], AbstractContextManager[None]]
# In this order they begin, and in the other one they end: what needs the API server comes before
# what stops it, and who starts reads a file that is whole again.
FAULTS: Mapping[str, Fault] = {
    "lost Lease": lost_lease, "spoiled history": spoiled_history, "kill": killed,
    "503 of one list": refused_list, "clock": set_clock, "reload": bad_reload,
    "frozen watch": frozen_watch, "slow": slow_api,
}  # fmt: skip


def drawn(seed: int, count: int) -> list[tuple[str, str]]:
    """Return so many pairs, of four each fault in one. The two of the API server make none."""
    random, names, found = Random(seed), list(FAULTS), []
    while len(found) < count:
        random.shuffle(names)
        pairs = [tuple(sorted(each, key=list(FAULTS).index))
                 for each in zip(names[::2], names[1::2], strict=True)]  # fmt: skip
        if ("frozen watch", "slow") not in pairs:
            found += pairs
    return found[:count]


def suffer(stage: PairStage, pair: tuple[str, str], seconds: float) -> None:
    """Let both faults last so long."""
    with ExitStack() as faults:
        for name in pair:
            faults.enter_context(FAULTS[name](stage))
        time.sleep(seconds)


@contextmanager
def prepared(plane: Plane, directory: Path, size: int, seed: int) -> Iterator[PairStage]:
    """Run two replicas, and an HPA that has found ``size``, for as long as the block."""
    with ExitStack() as running:
        exporter = running.enter_context(Exporter(directory))
        prometheus = running.enter_context(
            PrometheusServer(directory, scrape_configs=[exporter.scrape_config()])
        )
        lists = running.enter_context(FailingLists(prometheus.port).running())
        namespace = running.enter_context(plane.namespace("pairs"))
        rules = directory / "rules.yaml"
        rules.write_text(_RULES)
        feed = (
            "--metrics-source=feed", f"--config={rules}", f"--prometheus-url={lists.url}",
            "--metrics-relist-interval=2s", "--metrics-max-age=30s", "--feed-max-age=500ms",
        )  # fmt: skip
        stack = HpaStack(plane, directory, replicas=2, source=feed)
        clocks = [directory / f"clock-{number}" for number in range(2)]
        for replica, file in zip(stack.replicas, clocks, strict=True):
            with_clock(replica, file)
        stage = PairStage(
            plane, exporter, lists, running.enter_context(stack), namespace, rules, clocks,
            Random(seed),
        )  # fmt: skip
        target = {"type": "AverageValue", "averageValue": "10"}
        metric = {"type": "External", "external": {"metric": {"name": _SERIES}, "target": target}}
        stage.load(size)
        plane.apply(
            deployment("web", namespace),
            horizontal_pod_autoscaler("web", namespace, metric, behavior=DOWN_AT_ONCE),
        )
        stage.wait_size(size)
        yield stage
