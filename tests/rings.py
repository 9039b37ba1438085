"""Runs the test rings one after another and says per ring what ran and what was skipped.

``python -m tests.rings all`` is what ``make test`` and CI run. A ring that fails does not
stop the next one, and a ring in which no test ran has failed; the last line counts over all
rings. In rings of real processes a failed test gets one more attempt by itself; what only
then passes is listed as flaky.
"""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Ring:
    """One ring: where its tests are, how long it may take, what it needs built."""

    name: str
    paths: tuple[str, ...]
    budget_s: int
    tools: tuple[str, ...] = ()
    workers: int = 0  # 0: in one process
    dist: str = "worksteal"  # loadfile: a file's tests share what its fixtures start
    is_timed: bool = False  # real processes on shared machines: a failure is tried once more


RINGS = (
    Ring("unit", ("tests/unit",), 180, ("kubectl", "helm"), workers=2),
    Ring("property", ("tests/property",), 150, workers=2),
    Ring("conformance", ("tests/conformance",), 180, ("prometheus", "promtool"), workers=2),
    Ring(
        "integration",
        ("tests/integration",),
        600,
        ("kubectl", "prometheus", "promtool"),
        workers=2,
        dist="loadfile",
        is_timed=True,
    ),
    Ring(
        "cluster",
        ("tests/cluster",),
        1600,
        (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
            "etcd",
            "kwok",
            "helm",
            "prometheus",
            "promtool",
            "recommender",
        ),
        workers=2,  # most of it waits; each worker has a control plane of its own
        dist="loadfile",
        is_timed=True,
    ),
    Ring("browser", ("tests/browser",), 120, is_timed=True),
    Ring("faults", ("tests/faults",), 420, ("prometheus", "promtool"), is_timed=True),
    Ring("docs", ("tests/docs",), 240, ("kubectl", "helm", "prometheus"), is_timed=True),
)
LINTERS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports", "--no-cache"),
)


@dataclass(frozen=True)
class Outcome:
    """What one ring did."""

    ring: str
    passed: int
    failed: int
    skipped: tuple[str, ...]
    seconds: float
    flaky: tuple[str, ...] = ()

    @property
    def is_green(self) -> bool:
        return self.failed == 0


def run(ring: Ring) -> Outcome:
    """Run ``ring`` under pytest and read its counts from the JUnit report."""
    started = time.monotonic()
    if ring.tools:
        subprocess.run(
            [sys.executable, "-m", "tests.tools", "build", *ring.tools], cwd=ROOT, check=True
        )
    deadline = time.monotonic() + ring.budget_s
    flaky: tuple[str, ...] = ()
    with TemporaryDirectory() as scratch:
        status, counts = _attempt(ring, Path(scratch), deadline)
        if counts.failed and status == 1 and ring.is_timed:
            print(f"{ring.name}: once more: {', '.join(counts.failed)}", flush=True)
            _, again = _attempt(ring, Path(scratch), deadline, "--last-failed")
            flaky = tuple(name for name in counts.failed if name in again.passed)
            left = tuple(name for name in counts.failed if name not in again.passed)
            counts = Counts((*counts.passed, *flaky), left, counts.skipped)
            status = 1 if left else 0
    failed = len(counts.failed)
    if status != 0 and not failed:
        failed = 1  # a crash, a time-out, a collection error, an empty ring: no test's own
    seconds = time.monotonic() - started
    return Outcome(ring.name, len(counts.passed), failed, counts.skipped, seconds, flaky)


@dataclass(frozen=True)
class Counts:
    """What one run of pytest reported."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def _attempt(ring: Ring, scratch: Path, deadline: float, *words: str) -> tuple[int, Counts]:
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", *ring.paths, *words]
    command += [f"--junitxml={report}", "-o", f"cache_dir={scratch / 'cache'}"]
    if ring.workers:
        command += ["-n", str(ring.workers), "--dist", ring.dist]
    status = _run_for(command, max(deadline - time.monotonic(), 1.0))
    return status, _read(report)


def _run_for(command: list[str], seconds: float) -> int:
    try:
        return subprocess.run(command, cwd=ROOT, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s: {' '.join(command)}", flush=True)
        return 124


def _read(report: Path) -> Counts:
    if not report.exists():
        return Counts()
    passed, failed, skipped = [], [], []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag: child for child in case}
        if "skipped" in kinds:
            skipped.append(f"{name}: {kinds['skipped'].get('message')}")
        elif "failure" in kinds or "error" in kinds:
            failed.append(name)
        else:
            passed.append(name)
    # A test that passes and whose teardown fails stands there twice: it has failed.
    failed = list(dict.fromkeys(failed))
    return Counts(
        tuple(name for name in passed if name not in failed), tuple(failed), tuple(skipped)
    )


def lint() -> Outcome:
    """Run the linters; each one counts as a test."""
    started = time.monotonic()
    failed = sum(
        subprocess.run([str(BIN / name), *args], cwd=ROOT, check=False).returncode != 0
        for name, *args in LINTERS
    )
    return Outcome("lint", len(LINTERS) - failed, failed, (), time.monotonic() - started)


def main(names: list[str]) -> int:
    """Run the named rings, or all, and print the table; exit status 1 if one is not green."""
    known = {ring.name: ring for ring in RINGS}
    chosen = ["lint", *known] if names == ["all"] else names
    unknown = [name for name in chosen if name not in {*known, "lint"}]
    if unknown or not names:
        print(f"no ring called {', '.join(unknown)}; there are: all lint {' '.join(known)}")
        return 2
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    outcomes = []
    for name in chosen:
        print(f"\n== {name}", flush=True)
        outcomes.append(lint() if name == "lint" else run(known[name]))
    print("\nring          passed  failed  skipped  seconds")
    for o in outcomes:
        print(f"{o.ring:<12} {o.passed:>7} {o.failed:>7} {len(o.skipped):>8} {o.seconds:>8.0f}")
        for reason in o.skipped:
            print(f"    skipped {reason}")
        for name in o.flaky:
            print(f"    flaky, passed when tried once more: {name}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"\n{passed} passed, {failed} failed, {sum(len(o.skipped) for o in outcomes)} skipped")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
