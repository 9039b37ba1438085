"""The doctor on a large installation: 300 rules, 500,000 series (50,000 in the short form).

Requests and memory are bounded by the rules file, not by the number of series, although one of
the rules selects every series there is.
"""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.prometheus import PrometheusServer

RULES = 300
SERIES = 50_000 if os.environ.get("PODSCALE_SHORT") else 500_000
MOST_MB = 300

RULE = """\
- seriesQuery: '{{__name__=~"^app_{n:03}_.*",namespace!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{matches: "^(.*)_total$", as: "${{1}}_per_second"}}
  metricsQuery: 'sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[2m])) by (<<.GroupBy>>)'
"""
EVERYTHING = """\
- seriesQuery: '{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {as: "raw_${0}"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


def seed() -> Iterator[str]:
    """Yield OpenMetrics text: two samples of each series, the second a moment ago."""
    now = time.time()
    names = RULES - 1
    each = SERIES // names
    for n in range(names):
        yield f"# TYPE app_{n:03}_requests counter\n"
        for i in range(each):
            labels = (
                f'namespace="ns-{i % 50}",pod="app-{n}-7d9f8c-{i:05}",'
                f'container="app",job="pods",instance="10.0.{i % 250}.{n % 250}:8080"'
            )
            for age, value in ((15, 1), (0, 2)):
                yield f"app_{n:03}_requests_total{{{labels}}} {value} {now - age:.3f}\n"
    yield "# EOF\n"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("large")
    with PrometheusServer(directory, openmetrics="".join(seed())) as running:
        yield running


def doctor(tmp_path: Path, *arguments: str) -> tuple[int, str, str, float]:
    """Run it with a terminal as stderr; return exit code, both outputs, and its peak in MB."""
    master, slave = pty.openpty()
    out = tmp_path / "out"
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "podscale", "doctor", *arguments], stdout=stdout, stderr=slave
        )
    os.close(slave)
    seen, peak_kb = b"", 0
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
        # With every step of the bar and with the last line. Not ru_maxrss: it begins with what
        # the process that forked held, and that is the whole seed.
        peak_kb = max(peak_kb, _peak_kb(process.pid))
    os.close(master)
    return process.wait(), out.read_text(), seen.decode(), peak_kb / 1024


def _peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    return int(found[1]) if found else 0  # 0: it has just ended


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["one-metric", "whole-file"])
def test_requests_and_memory_are_bounded(prometheus, tmp_path, what, capsys):
    rules = tmp_path / "rules.yaml"
    body = EVERYTHING + "".join(RULE.format(n=n) for n in range(RULES - 1))
    rules.write_text(f"rules:\n{body}")
    arguments = ["--config", str(rules), "--prometheus-url", prometheus.url, "--no-cluster"]
    if what == "one-metric":
        arguments += ["--metric", "app_298_requests_per_second", "-n", "ns-1",
                      "--name", "app-298-7d9f8c-00001"]  # fmt: skip
    started = time.monotonic()
    code, out, err, peak_mb = doctor(tmp_path, *arguments)
    found = re.search(r"requests: ([0-9]+) to Prometheus", err)
    assert found, err
    requests = int(found[1])
    with capsys.disabled():
        print(
            f"\n{what}: {RULES} rules, {SERIES:,} series: {requests} requests, "
            f"{peak_mb:.0f} MB, {time.monotonic() - started:.1f} s"
        )
    if what == "one-metric":
        assert (code, "Healthy" in out) == (0 if "UnboundedSeries" not in out else 1, True), out
        assert requests <= RULES + 7
    else:
        assert "rules[299]: 1 series name, 1 metric: app_298_requests_per_second" in out
        assert f"rules[0]: {RULES - 1} series names" in out
        assert "UnboundedSeries" in out
        assert requests <= RULES + 2  # beside the rules: is it there, and its configuration
    assert "█" in err
    assert peak_mb <= MOST_MB
