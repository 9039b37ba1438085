"""Eight days of history of 1,000 containers, read beside a webhook that goes on answering.

Memory: what the process, its reading child and Prometheus take for eight days, against two
days of the same: it may depend on the containers, not on the days.
"""

import asyncio
import gc
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.figures import Figures
from tests.bench.vpa_load import ask, p99, post
from tests.integration.prometheus import PrometheusServer
from tests.tools.required import require
from vpa.recommender.history.usage_history import UsageRangeQuery

CONTAINERS, DAYS, FEWER_DAYS = 1_000, 8, 2
STEP_S = 300
END_S = 1_772_409_600
RATE = 200.0
TURNS, IDLE_S = 5, 8.0
LIMIT_S = 240.0
VPAS = 1_000


def queries() -> tuple[tuple[UsageRangeQuery, ...], tuple[UsageRangeQuery, ...]]:
    """Return what asks for CPU and memory."""
    names = {"pod": "pod", "container": "container", "namespace": "namespace"}
    by = "sum by (namespace,pod,container)"
    # Samples lie five minutes apart, so that the seed stays small: a rate needs two of them.
    cpu = f"{by} (rate(container_cpu_usage_seconds_total[11m]))"
    memory = f"{by} (container_memory_working_set_bytes)"
    return (UsageRangeQuery(cpu, **names),), (UsageRangeQuery(memory, **names),)


def measure(figures: Figures, directory: Path) -> None:
    """Hold p99 and memory."""
    from tests.bench.vpa_admission import review, webhook

    seed(directory)
    bodies = [review(index) for index in range(0, VPAS, 7)]
    gc.collect()
    gc.freeze()
    with (
        PrometheusServer(directory, arguments=["--query.max-concurrency=4"]) as prometheus,
        webhook(directory, VPAS, prometheus.url) as (server, port),
    ):
        pids = server.pid, prometheus.program.pid
        asyncio.run(post(port, "/", bodies, RATE, 2.0))
        _, few, _ = asyncio.run(_beside(port, bodies, FEWER_DAYS, *pids))
        idle, busy = [], []
        for _ in range(TURNS):
            idle.append(p99(asyncio.run(post(port, "/", bodies, RATE, IDLE_S))) * 1000.0)
            took, many, took_s = asyncio.run(_beside(port, bodies, DAYS, *pids))
            busy.append(p99(took) * 1000.0)
    figures.note(f"{CONTAINERS:,} containers, {DAYS} days at {STEP_S} s read in {took_s:.1f} s")
    figures.note(f"MB here and in Prometheus: {FEWER_DAYS} days {few}, {DAYS} days {many}")
    shown = ", ".join(f"{one:.2f} / {other:.2f}" for one, other in zip(busy, idle, strict=True))
    figures.note(f"p99 meanwhile / idle, by turns: {shown} ms")
    figures.at_most("memory here, 8 days / 2 days", many[0] / few[0], 1.5)
    figures.at_most("memory of Prometheus, 8 days / 2 days", many[1] / few[1], 1.5)
    figures.at_most("p99 of the webhook meanwhile / idle", median(busy) / median(idle), 2.0)


async def _beside(
    port: int, bodies: list[bytes], days: int, server: int, prometheus: int
) -> tuple[list[float], tuple[float, float], float]:
    done = asyncio.Event()
    peaks = [0.0, 0.0]

    async def watch() -> None:
        while not done.is_set():
            peaks[0] = max(peaks[0], anonymous_mb(server, *children(server)))
            peaks[1] = max(peaks[1], anonymous_mb(prometheus))
            await asyncio.sleep(0.1)

    async def read() -> float:
        began = time.monotonic()
        while not json.loads(await ask(port, "/history", str(days).encode())):
            pass  # longer than a request may take
        done.set()
        return time.monotonic() - began

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        reading = group.create_task(read())
        answering = group.create_task(post(port, "/", bodies, RATE, LIMIT_S, done))
    return answering.result(), (round(peaks[0], 1), round(peaks[1], 1)), reading.result()


def children(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in file.read_text().split()]
    return found


def anonymous_mb(*pids: int) -> float:
    """Return memory that is not the page cache's, MB; what has ended has none."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return total * 1024 / 1e6


def seed(directory: Path) -> None:
    """Write blocks: a counter and a gauge per container."""
    file = directory / "past.txt"
    with file.open("w") as sink:
        sink.writelines(_lines())
    command = [
        require("promtool"), "tsdb", "create-blocks-from", "openmetrics",
        "--max-block-duration=10d", "-q", file, directory / "data",
    ]  # fmt: skip
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    file.unlink()


def _lines() -> Iterator[str]:
    times = range(END_S - DAYS * 86400, END_S + 1, STEP_S)
    for name, kind in (("container_cpu_usage_seconds", "counter"),
                       ("container_memory_working_set_bytes", "gauge")):  # fmt: skip
        yield f"# TYPE {name} {kind}\n"
        suffix = "_total" if kind == "counter" else ""
        for number in range(CONTAINERS):
            labels = (
                f'{name}{suffix}{{namespace="team-{number % 50}",pod="web-{number // 10}-{number}",'
                'container="app"}'
            )
            base = 0.1 + number % 17 / 20
            for step, at in enumerate(times):
                value = base * step * STEP_S if suffix else base * 1e9 + step * 1e4
                yield f"{labels} {value:.1f} {at}\n"
    yield "# EOF\n"
