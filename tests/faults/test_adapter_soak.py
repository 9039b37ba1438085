"""The adapter under load while its rules change and Prometheus restarts.

500 requests a second for ten minutes (a minute under PODSCALE_SHORT), rules rewritten every
30 s, Prometheus stopped and started twice. What fails must be explained by the weather, and
memory must not grow once it is warm.
"""

import os
import re
import threading
import time
from pathlib import Path
from statistics import median

import pytest
from msgspec import Struct

from tests.bench.figures import resident_mb
from tests.bench.stage import METRIC, RULES, Stage, path
from tests.bench.yardstick import load

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
DURATION_S = 60.0 if IS_SHORT else 600.0
RULES_EVERY_S = 10.0 if IS_SHORT else 30.0
RATE = 500.0
DOWN_S = 3.0
# One deadline of a query: whoever asked at the last moment of the outage hears of it then.
AFTERMATH_S = 10.0
# A minute hardly sees the caches full; ten do.
GROWTH = 1.10 if IS_SHORT else 1.05

ANOTHER_RULE = """\
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}}
  name: {matches: "^(.*)_total$", as: "${1}_%d"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
"""


class Outage(Struct):
    """When Prometheus was away, in unix seconds."""

    began_s: float
    ended_s: float = float("inf")

    def explains(self, at_s: float) -> bool:
        return self.began_s <= at_s <= self.ended_s + AFTERMATH_S


class Weather:
    """Two outages and a change of the rules every so often, on a thread of its own."""

    def __init__(self, stage: Stage, began_s: float) -> None:
        self._stage = stage
        self._began_s = began_s
        self.outages: list[Outage] = []
        self.reloads = 0
        self.memory: list[tuple[float, float]] = []  # seconds since the beginning, MB
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._restart, self._watch)]

    def __enter__(self) -> "Weather":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _restart(self) -> None:
        for share in (1 / 3, 2 / 3):
            if self._over.wait(max(0.0, self._began_s + share * DURATION_S - time.time())):
                return
            outage = Outage(time.time())
            self.outages.append(outage)
            self._stage.prometheus.stop()
            self._over.wait(DOWN_S)
            self._stage.prometheus.start()
            outage.ended_s = time.time()

    def _watch(self) -> None:
        next_rules_s = RULES_EVERY_S
        while not self._over.wait(1.0):
            passed_s = time.time() - self._began_s
            self.memory.append((passed_s, resident_mb(self._stage.adapter.pid)))
            if passed_s >= next_rules_s:
                next_rules_s += RULES_EVERY_S
                self.reloads += 1
                text = RULES.replace("externalRules:\n", ANOTHER_RULE % self.reloads)
                fresh = self._stage.rules.with_suffix(".new")
                fresh.write_text(text)
                fresh.replace(self._stage.rules)


@pytest.mark.needs("prometheus")
@pytest.mark.timeout(DURATION_S + 300)
def test_a_soak_fails_only_by_the_weather_and_memory_stays_flat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stage(tmp_path, namespaces=20, apps=5, ballast=100, scrape_interval_s=5.0) as stage:
        urls = [stage.url + where for where in _paths()]
        with Weather(stage, time.time()) as weather:
            done = load(
                urls, tmp_path, clients=16, seconds=DURATION_S, rate=RATE, token=stage.token
            )
        reloaded = _reloads(stage)
        warm = [mb for passed_s, mb in weather.memory if passed_s >= DURATION_S / 4]
    third = len(warm) // 3
    before, after = median(warm[:third]), median(warm[-third:])
    with capsys.disabled():
        print(
            f"\nsoak: {done['requests']} requests in {done['seconds']:.0f} s, "
            f"{done['failed']} failed in {len(weather.outages)} outages, "
            f"{reloaded} reloads, p99 {done['p99_us'] / 1e3:.1f} ms\n"
            f"soak: memory {weather.memory[0][1]:.1f} MB at first, {before:.1f} MB warm, "
            f"{after:.1f} MB at the end, {max(warm):.1f} MB at most"
        )
    assert len(weather.outages) == 2
    unexplained = [
        failure
        for failure in done["failures"]
        if failure["status"] not in (503, 504)
        or not any(outage.explains(failure["at_s"]) for outage in weather.outages)
    ]
    assert unexplained == []
    assert done["failed"] <= len(done["failures"]), "more failures than the generator lists"
    assert done["requests"] >= 0.9 * RATE * DURATION_S
    # The last change may have come too late to be seen.
    assert weather.reloads - 1 <= reloaded <= weather.reloads
    assert after <= GROWTH * before


def _paths() -> list[str]:
    several = [path(n, a) for n in range(20) for a in range(5)]
    newer = [where.replace("v1beta1", "v1beta2") for where in several[:20]]
    single = [
        f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns-{n}/pods/app-0-0/{METRIC}"
        for n in range(20)
    ]
    external = ["/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-0/ballast"]
    listed = ["/apis/custom.metrics.k8s.io/v1beta1", "/readyz"]
    return [*several, *newer, *single, *external, *listed]


def _reloads(stage: Stage) -> int:
    found = re.search(
        rb'^podscale_\S*reload\S*_total\{result="success"\} (\S+)',
        stage.body("/metrics"),
        re.MULTILINE,
    )
    assert found is not None
    return int(float(found[1]))
