"""What 1,000 HPAs of ten pods each cost a real Prometheus, in queries and in CPU.

In process: one batch of 1,000 questions, as the HPA's loop asks. Through the API: five
closed-loop clients work through the 1,000 as fast as they are answered, as the workers of
kube-controller-manager do. The yardstick, in the same minute: one query per HPA and metric
with gzip, as Go's client negotiates. Queries are counted by Prometheus itself, so that the
ones for sample ages, and any other, are among them.
"""

import asyncio
import http.client
import re
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapter import flags as adapter_flags
from podscale.core.metrics import MetricsProvider, PodMetric, PodSamples
from podscale.serving import flags
from tests.bench.figures import Figures
from tests.bench.stage import METRIC, Stage, path
from tests.bench.yardstick import load
from tests.kit.adapter import served_adapter
from tests.tools.process import LOOPBACK

NAMESPACES, APPS, PODS = 100, 10, 10
HPAS = NAMESPACES * APPS
ROUNDS = 4
CLIENTS = 5
AGED_S = 6.5  # the snapshots of a round are too old for the next one
IDLE_S = 20.0
SMALL_ROUNDS = 4
SMALL_REPEATS = 60
_COUNTER = re.compile(
    r'^prometheus_http_requests_total\{[^}]*handler="/api/v1/query"[^}]*\} (\S+)', re.MULTILINE
)


@dataclass
class Spent:
    """What Prometheus did while something ran."""

    queries: float = 0.0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0


class Meter:
    """Reads Prometheus's own counter of queries and the CPU time of its process."""

    def __init__(self, stage: Stage) -> None:
        self._prometheus = stage.prometheus
        self._idle = 0.0  # CPU seconds a second for scraping, nobody asking

    def learn_idle(self) -> float:
        """Watch it scrape; return the CPU share that is taken off from now on."""
        before = self._prometheus.cpu_seconds()
        time.sleep(IDLE_S)
        self._idle = (self._prometheus.cpu_seconds() - before) / IDLE_S
        return self._idle

    @contextmanager
    def measured(self, spent: Spent) -> Iterator[None]:
        """Add to ``spent`` what the block costs."""
        queries = self._queries()
        cpu_s, began = self._prometheus.cpu_seconds(), time.monotonic()
        yield
        elapsed_s = time.monotonic() - began
        spent.cpu_s += self._prometheus.cpu_seconds() - cpu_s - self._idle * elapsed_s
        spent.elapsed_s += elapsed_s
        spent.queries += self._queries() - queries

    def _queries(self) -> float:
        connection = http.client.HTTPConnection(LOOPBACK, self._prometheus.port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return sum(float(count) for count in _COUNTER.findall(text))


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("bench-adapter, Prometheus")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with Stage(directory, namespaces=NAMESPACES, apps=APPS, pods=PODS) as stage:
            stage.quiet(5.0)
            meter = Meter(stage)
            figures.note(f"Prometheus scrapes at {meter.learn_idle():.3f} core")
            asyncio.run(_many(figures, stage, meter))
            asyncio.run(_few(figures, stage, meter))
    return figures.finish()


async def _many(figures: Figures, stage: Stage, meter: Meter) -> None:
    """Measure 1,000 HPAs, by turns: in process, query by query, through the API."""
    questions = _questions(range(NAMESPACES), range(APPS))
    texts = [_query(n, a) for n in range(NAMESPACES) for a in range(APPS)]
    urls = [stage.url + path(n, a) for a in range(APPS) for n in range(NAMESPACES)]
    batch, single, served = Spent(), Spent(), Spent()
    async with _provider(stage) as provider:
        await _answered(provider, questions)
        await asyncio.to_thread(_api, stage, urls)
        await asyncio.to_thread(_ask, stage, texts, "gzip", CLIENTS)
        for _ in range(ROUNDS):
            await asyncio.sleep(AGED_S)
            with meter.measured(batch):
                await _answered(provider, questions)
            with meter.measured(single):
                await asyncio.to_thread(_ask, stage, texts, "gzip", CLIENTS)
            with meter.measured(served):
                await asyncio.to_thread(_api, stage, urls)
    wanted = ROUNDS * HPAS
    for name, spent in (("in process", batch), ("one by one", single), ("API", served)):
        figures.note(
            f"{name}: {spent.queries / ROUNDS:.1f} queries, "
            f"{spent.cpu_s / ROUNDS * 1e3:.0f} ms of Prometheus, "
            f"{spent.elapsed_s / ROUNDS:.2f} s a round of {HPAS} HPAs"
        )
    figures.at_least("HPAs per query, in process", wanted / batch.queries, 50.0)
    figures.at_least("HPAs per query, five closed-loop clients", wanted / served.queries, 20.0)
    ratio = single.cpu_s / batch.cpu_s
    figures.at_least("Prometheus CPU, one by one with gzip / in process", ratio, 4.0)
    ratio = single.cpu_s / served.cpu_s
    figures.at_least("Prometheus CPU, one by one with gzip / five clients", ratio, 4.0)
    spread = Spent()
    with meter.measured(spread):
        await asyncio.to_thread(_api, stage, urls, HPAS / 15.0, 30.0)
    figures.note(
        f"asked evenly over 15 s instead: {2 * HPAS / spread.queries:.1f} HPAs per query, "
        f"{spread.cpu_s / 2 * 1e3:.0f} ms of Prometheus a period"
    )


async def _few(figures: Figures, stage: Stage, meter: Meter) -> None:
    """Measure nine HPAs, 90 series: a group hardly worth a batch."""
    async with _provider(stage, "--feed-max-age=0s") as provider:
        for where, namespaces, apps in (
            ("one namespace", range(1), range(9)),
            ("nine namespaces", range(9), range(1)),
        ):
            questions = _questions(namespaces, apps)
            texts = [_query(n, a) for n in namespaces for a in apps]
            batch, single = Spent(), Spent()
            await _answered(provider, questions)
            for _ in range(SMALL_ROUNDS):
                with meter.measured(batch):
                    for _ in range(SMALL_REPEATS):
                        await _answered(provider, questions)
                with meter.measured(single):
                    await asyncio.to_thread(_ask, stage, texts * SMALL_REPEATS, "identity", 1)
            figures.note(
                f"{len(texts)} HPAs in {where}: {batch.queries:.0f} queries, "
                f"{batch.cpu_s * 1e3:.0f} ms; one by one {single.queries:.0f}, "
                f"{single.cpu_s * 1e3:.0f} ms"
            )
            ratio = batch.cpu_s / single.cpu_s
            figures.at_most(f"Prometheus CPU, 90 series of {where} / one by one", ratio, 1.3)


class _provider:  # noqa: N801 - used as a function
    """An adapter's provider in this process, over the stage's cluster and Prometheus."""

    def __init__(self, stage: Stage, *arguments: str) -> None:
        parsed = flags.parse([*stage.flags(), *arguments], adapter_flags.TABLE)
        self._serving = served_adapter(parsed, others=[])

    async def __aenter__(self) -> MetricsProvider:
        served = await self._serving.__aenter__()
        adapter = served.adapter
        async with asyncio.timeout(60):
            while not (adapter.relister.is_tried and adapter.objects.pods.is_synced):  # noqa: ASYNC110 - a program that starts
                await asyncio.sleep(0.1)
        return adapter.provider

    async def __aexit__(self, *_: object) -> None:
        await self._serving.__aexit__(None, None, None)


def _questions(namespaces: Sequence[int], apps: Sequence[int]) -> list[PodMetric]:
    return [PodMetric(f"ns-{n}", METRIC, f"app=app-{a}") for n in namespaces for a in apps]


async def _answered(provider: MetricsProvider, questions: Sequence[PodMetric]) -> None:
    for answer in await provider.answer(questions):
        if not isinstance(answer, PodSamples) or len(answer.pods) != PODS:
            raise RuntimeError(f"not ten samples: {answer}")


def _query(namespace: int, app: int) -> str:
    """Return the query as prometheus-adapter renders it."""
    names = "|".join(f"app-{app}-{pod}" for pod in range(PODS))
    matchers = f'namespace="ns-{namespace}",pod=~"{names}"'
    return f"sum(rate(http_requests_total{{{matchers}}}[1m])) by (pod)"


def _api(stage: Stage, urls: list[str], rate: float = 0.0, seconds: float = 120.0) -> None:
    requests = 0 if rate else len(urls)
    done = load(
        urls, stage.directory, clients=CLIENTS, seconds=seconds, rate=rate, requests=requests,
        token=stage.token,
    )  # fmt: skip
    if done["failed"]:
        raise RuntimeError(f"{done['failed']} requests failed: {done['failures'][0]}")


def _ask(stage: Stage, texts: list[str], encoding: str, clients: int) -> None:
    """Send each query on its own, over so many kept connections."""
    port = stage.prometheus.port

    def work(share: list[str]) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
        try:
            for text in share:
                form = urllib.parse.urlencode({"query": text, "time": f"{time.time():.3f}"})
                headers = {"Accept-Encoding": encoding}
                connection.request("GET", f"/api/v1/query?{form}", headers=headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"Prometheus answers {answer.status}")
        finally:
            connection.close()

    run: Callable[[int], None] = lambda first: work(texts[first::clients])  # noqa: E731
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(run, range(clients)))


if __name__ == "__main__":
    sys.exit(main())
