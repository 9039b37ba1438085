"""A relist of 500,000 series in 50,000 names, and the discovery document that comes of it.

Memory is the largest seen while lists are read and documents served, CPU is everything the
process does between the beginnings of two relists. The document is asked for as kubectl and
kube-aggregator do, with gzip; without, TLS alone costs more than the goal at 30 MB, and
that figure is printed beside it.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figures, cpu_s, resident_mb
from tests.bench.stage import Stage
from tests.bench.yardstick import load
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

NAMES, SERIES = 50_000, 500_000
RELISTS = 3
INTERVAL_S = 15
DOCUMENT = "/apis/custom.metrics.k8s.io/v1beta1"
RULES = """\
rules:
- seriesQuery: '{namespace!=""}'
  resources: {template: <<.Resource>>}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("bench-adapter, relist")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        port = free_port()
        pretend = Program(
            "series",
            [
                sys.executable, "-m", "tests.bench.pretend_series",
                str(port), str(NAMES), str(SERIES), directory / "series.json",
            ],
            directory / "series.log",
        )  # fmt: skip
        with pretend:
            wait_until("the list is written", lambda: "serves" in _said(pretend), 120, (pretend,))
            with Stage(
                directory, namespaces=2, apps=2, pods=2, rules=RULES,
                prometheus_url=f"http://{LOOPBACK}:{port}",
                arguments=(f"--metrics-relist-interval={INTERVAL_S}s", "--series-timeout=2m"),
            ) as stage:  # fmt: skip
                size = (directory / "series.json").stat().st_size
                figures.note(f"{SERIES:,} series in {NAMES:,} names, {size / 1e6:.0f} MB of JSON")
                _relist(figures, stage, pretend)
                _discovery(figures, stage, pretend, directory)
    return figures.finish()


def _relist(figures: Figures, stage: Stage, pretend: Program) -> None:
    wait_until(
        "the metrics are listed",
        lambda: len(stage.get(DOCUMENT)["resources"]) > NAMES,
        180,
        (stage.adapter, stage.cluster, pretend),
    )
    for where in ("/apis/custom.metrics.k8s.io/v1beta2", "/openapi/v2"):
        stage.body(where)
    largest = resident_mb(stage.adapter.pid)
    begun = _relists(pretend) + 1  # the next one to begin is the first that counts
    spent = began_s = 0.0
    while _relists(pretend) < begun + RELISTS:
        if not spent and _relists(pretend) >= begun:
            spent, began_s = cpu_s(stage.adapter.pid), time.monotonic()
        time.sleep(0.05)
        largest = max(largest, resident_mb(stage.adapter.pid))
    each = (cpu_s(stage.adapter.pid) - spent) / RELISTS
    period = (time.monotonic() - began_s) / RELISTS
    figures.note(f"a relist every {period:.1f} s; original: 1.2 to 1.5 GB, 9 to 14 s of CPU")
    figures.at_most("resident GB", largest / 1e3, 0.4)
    figures.at_most("CPU seconds per relist", each, 5.0)


def _discovery(figures: Figures, stage: Stage, pretend: Program, directory: Path) -> None:
    plain = stage.body(DOCUMENT)
    figures.note(f"discovery document: {len(plain) / 1e6:.1f} MB")
    _wait_between_relists(stage, pretend)
    costs = {
        is_gzip: _cost(stage, directory, is_gzip=is_gzip, requests=requests)
        for is_gzip, requests in ((True, 300), (False, 30))
    }
    figures.note(f"without gzip {costs[False]:.1f} ms of CPU a GET; original: 292 ms")
    figures.at_most("CPU ms per GET of the discovery document", costs[True], 2.0)


def _cost(stage: Stage, directory: Path, *, is_gzip: bool, requests: int) -> float:
    """Return milliseconds a GET."""
    urls = [stage.url + DOCUMENT]
    before = cpu_s(stage.adapter.pid)
    done = load(
        urls, directory, clients=1, seconds=60, requests=requests, token=stage.token,
        accepts_gzip=is_gzip,
    )  # fmt: skip
    if done["failed"]:
        raise RuntimeError(f"{done['failed']} requests failed: {done['failures'][0]}")
    return (cpu_s(stage.adapter.pid) - before) / float(done["requests"]) * 1e3


def _wait_between_relists(stage: Stage, pretend: Program) -> None:
    begun = _relists(pretend)
    wait_until("a relist begins", lambda: _relists(pretend) > begun, 60, (stage.adapter,))
    busy = True
    while busy:
        before = cpu_s(stage.adapter.pid)
        time.sleep(1.0)
        busy = cpu_s(stage.adapter.pid) - before > 0.1


def _relists(pretend: Program) -> int:
    return _said(pretend).count("asked")


def _said(program: Program) -> str:
    return program.log.read_text() if program.log.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
