"""A report on 10,000 containers over eight days, and whether its chances come true.

Prometheus holds a sample every five minutes, so that the seed stays small; what it costs there
and here is measured over the same queries. The traces of production are docs/report.md's.
"""

import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.figures import Figures
from tests.bench.vpa_past import anonymous_mb, children
from tests.calibration import Verdicts, bins, brier, histories, spiegelhalter, verdicts
from tests.integration.crane import ROOT
from tests.integration.prometheus import PrometheusServer
from tests.tools.required import require

CONTAINERS, DAYS, STEP_S, HOUR_S, SCRAPE_S = 10_000, 8, 300, 3600, 300
PATTERNS = 60
MARK = "<!-- calibration: written by make bench-report -->\n"
GIB = 2**30


def main() -> int:
    """Print the figures and write the plot; return the exit status."""
    figures = Figures("bench_report")
    calibrate(figures)
    with tempfile.TemporaryDirectory(prefix="podscale-report-") as directory:
        measure(figures, Path(directory))
    return figures.finish()


def calibrate(figures: Figures) -> None:
    """Hold the calibration on the traces of production, and write docs/report.md's plot."""
    found = verdicts(histories())
    score, base, of_quantile = brier(found)
    z, by_series = spiegelhalter(found), spiegelhalter(found, by_series=True)
    figures.note(f"{len(found.names)} series and resources, {found.stated.size:,} stated chances")
    detail = f"{score:.4f} / {base:.4f}, of each quantile's base rate {of_quantile:.4f}"
    figures.at_most("Brier score / that of the base rate", score / base, 1.0, detail)
    figures.at_most("|Spiegelhalter's z|, bootstrap over 6 h blocks", abs(z), 2.6, f"z = {z:.2f}")
    figures.note(f"z with a bootstrap over whole series: {by_series:.2f}")
    document = ROOT / "docs" / "report.md"
    text = document.read_text(encoding="utf-8")
    document.write_text(text.partition(MARK)[0] + MARK + reliability(found), encoding="utf-8")


def reliability(found: Verdicts) -> str:
    """Return the table of bins and what surrounds it, for docs/report.md."""
    score, base, of_quantile = brier(found)
    sums = (
        f"{len(found.names)} series (16 traces, each as CPU and as memory), "
        f"{found.stated.size:,} chances of blocks of six hours: Brier {score:.3f}, that of the "
        f"base rate {base:.3f}, of each quantile's {of_quantile:.3f}; Spiegelhalter's z "
        f"{spiegelhalter(found):.2f} (bootstrap over blocks), "
        f"{spiegelhalter(found, by_series=True):.2f} (over series)."
    )
    head = "| stated | happened | blocks | `·` stated, `#` happened: 0 to 100 % |"
    lines = [sums, "", head, "|---|---|---|---|"]
    for each in bins(found):
        row = [" "] * 41
        row[round(40 * each.stated)] = "·"
        row[round(40 * each.happened)] = "#"
        lines.append(
            f"| {each.stated:.1%} | {each.happened:.1%} | {each.blocks} | `{''.join(row)}` |"
        )
    return "\n".join(lines) + "\n"


def measure(figures: Figures, directory: Path) -> None:
    """Hold queries, CPU and memory of one report."""
    began = time.monotonic()
    end_s = int(time.time()) // STEP_S * STEP_S
    seed(directory, end_s)
    figures.note(
        f"{CONTAINERS:,} containers, {DAYS} days: seeded in {time.monotonic() - began:.0f} s"
    )
    names = directory / "names.yaml"
    names.write_text("rateWindow: 11m\n")  # two samples
    arguments = ["--query.max-concurrency=2"]
    with PrometheusServer(directory, arguments=arguments) as prometheus:
        before, asked = prometheus.cpu_seconds(), queries(prometheus.url)
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        where = ["--prometheus-url", prometheus.url, "--names", str(names)]
        words = ["report", "-A", "--since", f"{DAYS}d", *where, "-o", "csv"]
        command = [sys.executable, "-m", "podscale", *words]
        with (directory / "report.csv").open("w") as out:
            running = subprocess.Popen(command, stdout=out)
            peak = 0.0
            while running.poll() is None:
                peak = max(peak, anonymous_mb(running.pid, *children(running.pid)))
                time.sleep(0.1)
        took_s = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        theirs = prometheus.cpu_seconds() - before
        asked = queries(prometheus.url) - asked
    ours = used.ru_utime + used.ru_stime - own.ru_utime - own.ru_stime
    rows = (directory / "report.csv").read_text().count("\n") - 1
    figures.note(f"{rows:,} rows in {took_s:.0f} s; CPU {ours:.1f} s ours, {theirs:.1f} s theirs")
    figures.at_least("rows", rows, CONTAINERS)
    figures.at_most("queries", asked, 40 + CONTAINERS / 2_000 * DAYS)
    figures.at_most("our CPU / Prometheus's for the same queries", ours / theirs, 1.0)
    figures.at_most("our memory, MB", peak, 1_500.0)


def queries(url: str) -> int:
    """Return how many range queries a Prometheus has answered."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - loopback
        lines = answer.read().decode().splitlines()
    return sum(
        int(float(line.rpartition(" ")[2])) for line in lines
        if line.startswith("prometheus_http_requests_total") and 'api/v1/query_range"' in line
    )  # fmt: skip


def seed(directory: Path, end_s: int) -> None:
    """Write blocks: usage every five minutes, what describes it every hour."""
    file = directory / "past.txt"
    with file.open("w") as sink:
        sink.writelines(_lines(end_s))
    command = [
        require("promtool"), "tsdb", "create-blocks-from", "openmetrics",
        "--max-block-duration=10d", "-q", file, directory / "data",
    ]  # fmt: skip
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    file.unlink()


def _lines(end_s: int) -> Iterator[str]:
    times = np.arange(end_s - DAYS * 86400, end_s + 1, SCRAPE_S)
    hourly = [f" 1 {at}\n" for at in range(end_s - DAYS * 86400, end_s + 1, HOUR_S)]
    usage = [_pattern(number, times) for number in range(PATTERNS)]
    for name, suffix, kind, place in (
        ("container_cpu_usage_seconds", "_total", "counter", 0),
        ("container_memory_working_set_bytes", "", "gauge", 1),
    ):
        yield f"# TYPE {name} {kind}\n"
        written = [[f" {value:.1f} {at}\n" for value, at in zip(each[place], times, strict=True)]
                   for each in usage]  # fmt: skip
        for number in range(CONTAINERS):
            labels = f"{name}{suffix}{{{_of(number)}}}"
            yield "".join([labels + each for each in written[number % PATTERNS]])
    for name, labels in (
        ("kube_pod_owner", 'owner_kind="ReplicaSet",owner_name="web-{0}-7f9c6bd5dc"'),
        ("kube_pod_container_resource_requests", 'resource="cpu"'),
        ("kube_pod_container_resource_limits", 'resource="cpu"'),
    ):
        yield f"# TYPE {name} gauge\n"
        for number in range(CONTAINERS):
            series = f"{name}{{{_of(number)},{labels.format(number)}}}"
            yield "".join([series + each for each in (hourly if "owner" in name else hourly[-1:])])
    yield "# EOF\n"


def _of(number: int) -> str:
    pod = f"web-{number}-7f9c6bd5dc-x2x4v"
    return f'namespace="team-{number % 50}",pod="{pod}",container="app"'


def _pattern(number: int, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Seconds so far, and bytes: steady, by the day, in bursts.
    rng = np.random.default_rng(number)
    of_day = 1.0 + 0.8 * (number % 3 == 1) * np.sin(times / 86400 * 2 * np.pi + number)
    bursts = 1.0 + 8.0 * (number % 3 == 2) * (rng.random(times.size) < 0.01)
    cores = (0.05 + number % 17 / 20) * of_day * bursts * rng.lognormal(0.0, 0.1, times.size)
    return np.cumsum(cores) * SCRAPE_S, GIB * (0.2 + cores / 4)


if __name__ == "__main__":
    sys.exit(main())
