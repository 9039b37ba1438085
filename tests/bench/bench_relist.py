"""A relist of 500,000 series in 50,000 names, and the discovery document that comes of it.

Memory is the largest seen while lists are read and documents served, CPU is everything the
process does between the beginnings of two relists. The document is asked for as kubectl and
kube-aggregator do, with gzip; what it
costs without is printed beside it. The yardsticks are ``json.loads`` of the same list in a process
of its own, by relist, and a Go server that sends the same compressed bytes, by turns.
"""

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.bench.figures import Figures, cpu_s, resident_mb
from tests.bench.stage import Stage
from tests.bench.yardstick import GoServer, load
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

NAMES, SERIES = 50_000, 500_000
RELISTS = TURNS = 5
RELIST_GOAL = 2.0
DISCOVERY_GOAL = 3.0
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
    begun = _relists(pretend)
    marks: list[float] = []  # CPU at the beginning of each relist
    beside: list[subprocess.Popen[bytes]] = []
    while len(marks) <= RELISTS:
        if _relists(pretend) > begun + len(marks):
            marks.append(cpu_s(stage.adapter.pid))
            if len(marks) <= RELISTS:
                beside.append(_loads(stage.directory / "series.json"))
        time.sleep(0.05)
        largest = max(largest, resident_mb(stage.adapter.pid))
    yard = [float(each.communicate()[0]) for each in beside]
    ours = [after - before for before, after in pairwise(marks)]
    shown = ", ".join(f"{a:.2f} / {b:.2f}" for a, b in zip(ours, yard, strict=True))
    figures.note(f"a relist / json.loads: {shown} s; original: 1.2 to 1.5 GB, 9 to 14 s of CPU")
    figures.at_most("resident GB", largest / 1e3, 0.4)
    ratio = median(mine / theirs for mine, theirs in zip(ours, yard, strict=True))
    figures.at_most("CPU of a relist / json.loads of its bytes", ratio, RELIST_GOAL)


def _loads(file: Path) -> subprocess.Popen[bytes]:
    """Start a process that prints the CPU seconds of its ``json.loads``, and collects nothing."""
    text = (
        "import gc, json, sys, time; raw = open(sys.argv[1], 'rb').read(); gc.disable();"
        "began = time.process_time(); json.loads(raw); print(time.process_time() - began)"
    )
    return subprocess.Popen([sys.executable, "-c", text, file], stdout=subprocess.PIPE)


def _discovery(figures: Figures, stage: Stage, pretend: Program, directory: Path) -> None:
    plain = stage.body(DOCUMENT)
    figures.note(f"discovery document: {len(plain) / 1e6:.1f} MB")
    _wait_between_relists(stage, pretend)
    with GoServer(directory, stage.body(DOCUMENT, accepts="gzip")) as go:
        spent = {go.url: list[float](), stage.url + DOCUMENT: list[float]()}
        for _ in range(TURNS):
            for (url, found), program in zip(
                spent.items(), (go.server, stage.adapter), strict=True
            ):
                found.append(_cost(stage, program, url, directory, requests=100))
    theirs, ours = spent.values()
    plain_ms = _cost(
        stage, stage.adapter, stage.url + DOCUMENT, directory, requests=30, is_gzip=False
    )
    figures.note(f"a GET: {median(ours):.2f} ms of CPU, Go {median(theirs):.2f} ms")
    figures.note(f"without gzip {plain_ms:.1f} ms of CPU a GET; original: 292 ms")
    ratio = median(mine / go_s for mine, go_s in zip(ours, theirs, strict=True))
    figures.at_most("CPU per GET of the discovery document, ours / Go", ratio, DISCOVERY_GOAL)


def _cost(
    stage: Stage,
    program: Program,
    url: str,
    directory: Path,
    *,
    requests: int,
    is_gzip: bool = True,
) -> float:
    """Return milliseconds of the program a GET."""
    before = cpu_s(program.pid)
    done = load(
        [url], directory, clients=1, seconds=60, requests=requests, token=stage.token,
        accepts_gzip=is_gzip,
    )  # fmt: skip
    if done["failed"]:
        raise RuntimeError(f"{done['failed']} requests failed: {done['failures'][0]}")
    return (cpu_s(program.pid) - before) / float(done["requests"]) * 1e3


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
