"""10,000 HPAs with ten pods and three metrics each: what a round of all of them costs,
against what it costs Prometheus.

Sandbox API server, a real Prometheus that scrapes noise, and ``podscale hpa`` as processes
of their own. ``PODSCALE_BENCH_HPAS`` sets another number. The yardstick is a client with
the in-tree controller's pattern (GET scale, one query per metric, PUT status) on the same
servers in the same minute.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from urllib.parse import quote

import aiohttp

from tests.bench.collected import Collection, collection
from tests.bench.figures import Figures, cpu_s, resident_mb
from tests.bench.hpa_cluster import name_of, namespace_of
from tests.bench.periods import mean, measure
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

PERIOD_S = 15.0
ROUNDS = 20  # five minutes: in that time every status and every Event is due once
WINDOWS = 5  # of as many rounds each
WARM_ROUNDS = 6  # until what is written in a first minute only is over, and caches are warm
YARDSTICK_S = 2 * PERIOD_S  # whole periods: each has one scrape, a second of Prometheus's CPU
PASSES = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_count"
RULES = """\
rules:
- seriesQuery: '{__name__=~"load|connections"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_length'
  name: {as: queue}
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (namespace)'
"""
CPU_RULES = """\
resourceRules:
  cpu: &usage
    containerQuery: 'sum(cpu_cores{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(cpu_cores{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {template: <<.Resource>>}
    containerLabel: container
  memory: *usage
  window: 1m
"""


class Stage:
    """Everything that runs; times are CPU seconds since ``mark``."""

    def __init__(self, directory: Path, hpas: int, vpas: Path | None = None) -> None:
        """``vpas``: every tenth HPA has a VPA while this file is there."""
        self.directory, self.hpas, self.vpas = directory, hpas, vpas
        self.port = free_port()
        self.pause_file, self.bare_file = directory / "pause", directory / "bare"
        self._exit = ExitStack()
        self._marks: dict[int, float] = {}

    def __enter__(self) -> "Stage":
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _start(self) -> None:
        kubeconfig = self.directory / "kubeconfig"
        self.counts_file = self.directory / "counts.json"
        self.cluster = self._program(
            "cluster",
            "tests.bench.hpa_cluster", "--hpas", self.hpas, "--kubeconfig", kubeconfig,
            "--counts", self.counts_file, *(("--vpas", self.vpas) if self.vpas else ()),
        )  # fmt: skip
        noise_port = free_port()
        self.noise = self._program(
            "noise", "tests.bench.noise", "--hpas", self.hpas, "--port", noise_port,
            *(("--cpu",) if self.vpas else ()),
        )  # fmt: skip
        wait_until("the sandbox serves", self.counts_file.exists, 300, (self.cluster,))
        scrape = {
            "job_name": "noise",
            "honor_labels": True,
            "scrape_interval": f"{PERIOD_S:g}s",
            "scrape_timeout": "14s",
            "static_configs": [{"targets": [f"{LOOPBACK}:{noise_port}"]}],
        }
        self.prometheus = self._exit.enter_context(
            PrometheusServer(self.directory, scrape_configs=[scrape])
        )
        self.prometheus.wait_for("count(load)", deadline_s=60)
        rules = self.directory / "rules.yaml"
        rules.write_text(RULES + (CPU_RULES if self.vpas else ""))
        self.hpa = self._program(
            "hpa",
            "tests.bench.collected", self.pause_file, "hpa",
            f"--config={rules}", f"--prometheus-url={self.prometheus.url}",
            f"--kubeconfig={kubeconfig}", f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--secure-port={self.port}", f"--bind-address={LOOPBACK}",
            f"--cert-dir={self.directory}",
            "--authorization-always-allow-paths=/metrics,/readyz",
            "--metrics-relist-interval=1m", "--metrics-max-age=5m",
        )  # fmt: skip

    def start_bare(self, like: Collection) -> None:
        """Start a process with such a heap and nothing else, collected through ``bare_file``."""
        mb = round(resident_mb(self.hpa.pid))
        words = ("bare", like.objects, like.references, like.free, mb)
        self._program("bare", "tests.bench.collected", self.bare_file, *words)

    def _program(self, name: str, module: str, *words: object) -> Program:
        command = [sys.executable, "-m", module, *map(str, words)]
        return self._exit.enter_context(Program(name, command, self.directory / f"{name}.log"))

    def mark(self) -> None:
        """Begin to count CPU."""
        self._marks = {pid: cpu_s(pid) for pid in self.pids.values()}

    def spent(self) -> dict[str, float]:
        """Return CPU seconds by process since ``mark``."""
        return {name: cpu_s(pid) - self._marks[pid] for name, pid in self.pids.items()}

    @property
    def pids(self) -> dict[str, int]:
        return {
            "podscale hpa": self.hpa.pid,
            "API server": self.cluster.pid,
            "Prometheus": self.prometheus.program.pid,
        }

    def counts(self) -> tuple[float, dict[str, int]]:
        """Return the requests that the API server has had, and when they were counted: once a
        second, so that a window is never just as long as we slept."""
        with self.counts_file.open() as file:
            found: dict[str, int] = json.load(file)
            return os.fstat(file.fileno()).st_mtime, found

    def warm_up(self) -> None:
        """Wait until every HPA has been decided on, and for the rounds after."""
        wait_until(
            "every HPA has been decided on",
            lambda: sum(v for k, v in self.metrics().items() if k.startswith(PASSES)) >= self.hpas,
            300,
            (self.hpa, self.cluster),
        )
        time.sleep(WARM_ROUNDS * PERIOD_S)

    def metrics(self) -> dict[str, float]:
        """Return the samples of the HPA's own /metrics, by name and labels as exposed."""
        return asyncio.run(self._metrics())

    async def _metrics(self) -> dict[str, float]:
        url = f"https://{LOOPBACK}:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            text = await answer.text()
        lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] not in ("#", ""))
        return {name: float(value) for name, _, value in lines}


async def yardstick(stage: Stage, seconds: float) -> int:
    """Reconcile HPAs as the in-tree controller does, without deciding; return how many."""
    api = stage.cluster.log.read_text().splitlines()[0]
    async with aiohttp.ClientSession() as session:

        async def get(url: str) -> object:
            async with session.get(url) as answer:
                return await answer.json()

        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            index, count = count % stage.hpas, count + 1
            namespace, name = namespace_of(index), name_of(index)
            base = f"{api}/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
            await get(base)
            pods = "|".join(f"{name}-{n}" for n in range(10))
            for metric in ("load", "connections"):
                query = f'sum({metric}{{namespace="{namespace}",pod=~"{pods}"}}) by (pod)'
                await get(f"{stage.prometheus.url}/api/v1/query?query={quote(query)}")
            query = f'sum(queue_length{{namespace="{namespace}"}}) by (namespace)'
            await get(f"{stage.prometheus.url}/api/v1/query?query={quote(query)}")
            path = (
                f"{api}/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"
            )
            found = await get(path)  # upstream has it from a watch; its watch is fed below
            async with session.put(f"{path}/status", json=found) as answer:
                await answer.read()
    return count


def quantile(samples: Mapping[str, float], before: Mapping[str, float], share: float) -> float:
    """Return the upper bound of the bucket that holds the quantile of the gaps."""
    prefix = "podscale_hpa_gap_seconds_bucket"
    grown = {
        float(name.partition('le="')[2].partition('"')[0]): value - before.get(name, 0.0)
        for name, value in samples.items()
        if name.startswith(prefix)
    }
    total = max(grown.values(), default=0.0)
    return min((bound for bound, n in grown.items() if n >= share * total), default=float("inf"))


def main() -> int:
    hpas = int(os.environ.get("PODSCALE_BENCH_HPAS", "10000"))
    figures = Figures("hpa")
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        with Stage(base, 10) as small:
            time.sleep(2 * PERIOD_S)
            floor_mb = resident_mb(small.hpa.pid)
        full = Path(scratch) / "full"
        full.mkdir()
        with Stage(full, hpas) as stage:
            _measure(figures, stage, hpas, floor_mb)
    return figures.finish()


def _measure(figures: Figures, stage: Stage, hpas: int, floor_mb: float) -> None:
    stage.warm_up()
    stage.start_bare(collection(stage.pause_file))
    before, (counted_at, counted) = stage.metrics(), stage.counts()
    began, windows, collected = time.monotonic(), [], []
    for _ in range(WINDOWS):
        windows += measure(stage.pids, 1, ROUNDS / WINDOWS * PERIOD_S)
        collected.append((collection(stage.pause_file), collection(stage.bare_file)))
    after, rounds = stage.metrics(), (time.monotonic() - began) / PERIOD_S
    time.sleep(1.5)
    until, counts = stage.counts()
    requests = {k: n - counted.get(k, 0) for k, n in counts.items()}
    a_window = mean(windows)
    spent = {name: seconds * WINDOWS for name, seconds in a_window.items()}
    done = sum(after[k] - before.get(k, 0.0) for k in after if k.startswith(PASSES)) / rounds
    figures.note(f"{hpas} HPAs, {done:.0f} decided a period; CPU a period by process:")
    for name, seconds in spent.items():
        figures.note(f"  {name}: {seconds / ROUNDS:.2f} s")
    both = [(each.used["podscale hpa"], each.used["Prometheus"]) for each in windows]
    shown = ", ".join(f"{a:.2f} / {b:.2f}" for a, b in both)
    figures.note(f"  ours / Prometheus in each window of {ROUNDS // WINDOWS} rounds: {shown} s")
    ratio = median(ours / theirs for ours, theirs in both)
    figures.at_most("CPU of a round, ours / Prometheus, median of the windows", ratio, 1.3)
    figures.at_least("HPAs decided a period", done / hpas, 0.98, "of all")
    gap = quantile(after, before, 0.99) / PERIOD_S
    figures.at_most("p99 of the gap between two decisions / the period", gap, 1.2)
    reads = {k: n for k, n in requests.items() if k.split()[0] in ("get", "list")}
    writes = {k: n for k, n in requests.items() if k.split()[0] in ("update", "patch", "create")}
    figures.note(f"  requests in {until - counted_at:.1f} s: {requests}")
    watched = ("/scale", "pods", "deployments", "autoscalers")
    figures.at_most("reads of scales, pods and HPAs", sum(
        n for k, n in reads.items()
        if not k.startswith("get /api") and any(word in k for word in watched)
    ), 0)  # fmt: skip
    touched = max(
        sum(n for k, n in writes.items() if word in k) for word in ("/scale", "autoscaling/status")
    )
    periods = (until - counted_at) / PERIOD_S
    figures.at_most("HPAs written to a period", touched / periods / hpas, 0.10, "of all")
    figures.at_most(
        "memory per HPA with its pods and traces",
        (resident_mb(stage.hpa.pid) - floor_mb) * 1000 / hpas, 22.0, "KB",
    )  # fmt: skip
    _pause(figures, collected, hpas)
    everyone = sum(spent.values()) / ROUNDS / hpas
    stage.mark()
    started = time.process_time()
    began = time.monotonic()
    count = asyncio.run(yardstick(stage, YARDSTICK_S))
    client = time.process_time() - started
    beside = stage.spent()
    share = (time.monotonic() - began) / PERIOD_S
    # What ours and the scrapes cost meanwhile is not the yardstick's.
    servers = sum(
        beside[name] - spent[name] / ROUNDS * share for name in ("API server", "Prometheus")
    )
    theirs = (client + servers) / count
    figures.at_least(
        "times less CPU than one request per question",
        theirs / everyone, 10.0,
        f"({1e3 * theirs:.2f} ms against {1e3 * everyone:.3f} ms per HPA and period)",
    )  # fmt: skip


def _pause(figures: Figures, collected: Sequence[tuple[Collection, Collection]], hpas: int) -> None:
    """Hold full collections, one after each window, against a bare process's of the same heap."""
    shown = ", ".join(f"{ours.ms:.1f} / {bare.ms:.1f}" for ours, bare in collected)
    ours, bare = collected[-1]
    figures.note(f"  collections of {ours.objects:,} objects, bare {bare.objects:,}: {shown} ms")
    # Of each object: the heap has become another one since it was copied.
    ratio = median(
        (ours.ms / ours.objects) / (bare.ms / bare.objects) for ours, bare in collected
    )  # fmt: skip
    figures.at_most("full collection / the same heap in a bare process", ratio, 2.5)
    figures.at_most("objects that a full collection walks, per HPA", ours.objects / hpas, 5.0)


if __name__ == "__main__":
    sys.exit(main())
