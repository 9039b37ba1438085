"""What the daily gate of forecasts costs, beside the HPA part's own decisions of a day.

Both are of HPAs over one metric of their pods. The gate reads from a real Prometheus what a pod
each wrote (it asks for sums), every minute for seventeen days, and judges twice: all days, then the
day after them. As many are judged as come together where there are a thousand.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np
from msgspec import structs

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast.daily import DAY_S, GateAnswer, GateQuestion, day_of
from podscale.feed.options import PrometheusOptions
from podscale.replay.gate_process import TOGETHER, GateProcess
from podscale.replay.history import LoadQuery
from tests.bench.figures import Figures
from tests.integration.prometheus import PrometheusServer
from tests.kit.traces import crane
from tests.unit.hpa.world import Cluster, deployment_object, hpa_object, pod_object

FORECASTS, JUDGED, DECIDED, PODS, DAYS = 1000, TOGETHER, 500, 10, 17
PASSES = 86400 / 15
GOAL = 0.05
END_S = day_of(1_772_409_600.0) + 600.0


def measured(hpa: HPA) -> tuple[float, float, float]:
    """Return CPU seconds: of a child that does one HPA, then of each more, at first and daily."""
    times = np.arange(END_S - DAYS * DAY_S, END_S + 1, 60.0).astype(np.int64)
    recorded = list(crane().values())
    lines = ["# TYPE requests gauge"]
    for number in range(JUDGED):
        values = recorded[number % len(recorded)]
        values = np.resize(np.roll(values / values.mean(), 97 * number), len(times)) * 1000
        pairs = list(zip(times.tolist(), values.tolist(), strict=True))
        name = f'requests{{namespace="shop",pod="web{number}-0"}}'
        lines += [f"{name} {value:.3f} {at}" for at, value in pairs]
    with (
        tempfile.TemporaryDirectory() as scratch,
        PrometheusServer(Path(scratch), openmetrics="\n".join([*lines, "# EOF\n"])) as prometheus,
    ):
        del lines
        hpas = [structs.replace(hpa, name=f"web{number}", max_replicas=1000)
                for number in range(JUDGED)]  # fmt: skip
        asked = [GateQuestion(each, {}) for each in hpas]
        alone_s, _ = asyncio.run(_judged(prometheus.url, asked[:1], END_S - DAY_S))
        first_s, found = asyncio.run(_judged(prometheus.url, asked, END_S - DAY_S))
        again = [GateQuestion(each, {}, answer.verdict, answer.sums)
                 for each, answer in zip(hpas, found, strict=True)]  # fmt: skip
        short_s, _ = asyncio.run(_judged(prometheus.url, again[:1], END_S))
        daily_s, _ = asyncio.run(_judged(prometheus.url, again, END_S))
    more = JUDGED - 1
    return alone_s, (first_s - alone_s) / more, (daily_s - short_s) / more


async def _judged(
    url: str, asked: list[GateQuestion], now: float
) -> tuple[float, list[GateAnswer]]:
    def queries(hpa: HPA) -> list[LoadQuery]:
        pods = f'requests{{namespace="shop",pod=~"{hpa.name}-.*"}}'
        return [LoadQuery("requests", pods, "pod")]

    gate, found = GateProcess(PrometheusOptions(url=url), queries), []
    async for _, answer in gate.answers(asked, Settings(), now):
        if isinstance(answer, str):
            raise RuntimeError(answer)
        found.append(answer)
    return gate.cpu_s, found


async def pass_s() -> float:
    """Return CPU seconds of a pass of the HPA part, its source of metrics left out."""
    cluster = Cluster(settings=Settings(sync_period_s=1.0))
    names = [f"web{number}" for number in range(DECIDED)]
    cluster.put(*(hpa_object(name) for name in names),
                *(deployment_object(name, PODS) for name in names))  # fmt: skip
    cluster.put_pods(*(pod_object(name, pod) for name in names for pod in range(PODS)))
    by_name: dict[str, list[str]] = {}
    for name in cluster.stores.pods.select_all("shop").names:
        by_name.setdefault(name.rpartition("-")[0], []).append(name)
    cluster.provider.pods = lambda asked: by_name[str(asked.selector).partition("=")[2]]  # type: ignore[union-attr]
    await cluster.run_for(4.0)
    before, began = sum(cluster.metrics.pass_seconds.totals.values()), time.process_time()
    await cluster.run_for(10.0)
    return (time.process_time() - began) / (
        sum(cluster.metrics.pass_seconds.totals.values()) - before
    )


def hold(figures: Figures, hpa: HPA) -> None:
    """Hold the share of a day's own CPU that the gate costs at a thousand HPAs with forecasts."""
    alone_s, first_s, daily_s = measured(hpa)
    own_s = asyncio.run(pass_s())
    figures.note(f"the gate: {alone_s:.2f} s CPU for one HPA in a child of its own, then for each "
                 f"{first_s * 1e3:.0f} ms at first and {daily_s * 1e3:.0f} ms a day; a pass of the "
                 f"HPA part {own_s * 1e6:.0f} us, {own_s * PASSES:.2f} s a day")  # fmt: skip
    share = (alone_s + FORECASTS * daily_s) / (FORECASTS * own_s * PASSES)
    figures.at_most("CPU of the daily gate / of the HPA part's own day", share, GOAL)
