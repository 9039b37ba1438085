"""Runs the test rings one after another and says per ring what ran and what was skipped.

``python -m tests.rings all`` is what ``make test`` and CI run. A ring that fails does not
stop the next one, and a ring in which no test ran has failed. In rings of real processes,
and of the many unit tests, a failed test gets one more attempt by itself; what only then
passes is listed as flaky.
``tests.outcome`` tells what came of it.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.outcome import Counts, Failure, Outcome, read, told

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
    timeout_s: int = 0  # of one test; 0: as pyproject.toml says
    is_timed: bool = False  # real processes on shared machines: a failure is tried once more
    long_s: int = 0  # what the long form may take; 0: the same

    @property
    def allowed_s(self) -> int:
        """Seconds that the form which is asked for may take."""
        return self.budget_s if os.environ.get("PODSCALE_SHORT") else self.long_s or self.budget_s


RINGS = (
    Ring("unit", ("tests/unit",), 300, ("kubectl", "helm"), workers=2, timeout_s=60, is_timed=True),
    Ring("property", ("tests/property",), 180, workers=2, long_s=900),
    Ring("conformance", ("tests/conformance",), 120, ("prometheus", "promtool"), workers=2),
    Ring(
        "integration",
        ("tests/integration",),
        600,
        ("kubectl", "prometheus", "promtool"),
        workers=2,
        dist="loadfile",
        is_timed=True,
        long_s=1800,
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
        long_s=2700,
    ),
    Ring("browser", ("tests/browser",), 120, is_timed=True),
    Ring("faults", ("tests/faults",), 420, ("prometheus", "promtool"), is_timed=True, long_s=2700),
    Ring(
        "attacks",
        ("tests/attacks",),
        600,
        (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
            "etcd",
            "kwok",
            "prometheus",
        ),
        workers=2,
        dist="loadfile",
        is_timed=True,
        long_s=4500,
    ),
    Ring("docs", ("tests/docs",), 240, ("kubectl", "helm", "prometheus"), is_timed=True),
)
LINTERS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports", "--no-cache"),
)


def run(ring: Ring) -> Outcome:
    """Run ``ring`` under pytest and read its counts from the JUnit report."""
    started = time.monotonic()
    if ring.tools:
        subprocess.run(
            [sys.executable, "-m", "tests.tools", "build", *ring.tools], cwd=ROOT, check=True
        )
    deadline = time.monotonic() + ring.allowed_s
    flaky: tuple[Failure, ...] = ()
    with TemporaryDirectory() as scratch:
        status, counts = _attempt(ring, Path(scratch), deadline)
        if counts.failed and status == 1 and ring.is_timed:
            names = ", ".join(failure.test for failure in counts.failed)
            print(f"{ring.name}: once more: {names}", flush=True)
            _, again = _attempt(ring, Path(scratch), deadline, "--last-failed")
            flaky = tuple(each for each in counts.failed if each.test in again.passed)
            # What was said the second time; the first time's words where it did not get so far.
            said = {failure.test: failure for failure in (*counts.failed, *again.failed)}
            left = tuple(failure for test, failure in said.items() if test not in again.passed)
            passed = (*counts.passed, *(failure.test for failure in flaky))
            counts = Counts(passed, left, counts.skipped)
            status = 1 if left else 0
    failed = counts.failed
    if status != 0 and not failed:
        # A crash, a time-out, an empty ring: no test's own.
        failed = (Failure(ring.name, f"no test failed, and pytest ended with {status}"),)
    seconds = time.monotonic() - started
    return Outcome(ring.name, len(counts.passed), failed, counts.skipped, seconds, flaky)


def _attempt(ring: Ring, scratch: Path, deadline: float, *words: str) -> tuple[int, Counts]:
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", *ring.paths, *words]
    command += [f"--junitxml={report}", "-o", f"cache_dir={scratch / 'cache'}"]
    if ring.timeout_s:
        command += ["-o", f"timeout={ring.timeout_s}"]
    if ring.workers:
        command += ["-n", str(ring.workers), "--dist", ring.dist]
    status = _run_for(command, max(deadline - time.monotonic(), 1.0))
    return status, read(report)


def _run_for(command: list[str], seconds: float) -> int:
    try:
        return subprocess.run(command, cwd=ROOT, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:.0f} s: {' '.join(command)}", flush=True)
        return 124


def lint() -> Outcome:
    """Run the linters; each one counts as a test."""
    started = time.monotonic()
    failed = tuple(
        Failure(" ".join([name, *args]), "it says above what")
        for name, *args in LINTERS
        if subprocess.run([str(BIN / name), *args], cwd=ROOT, check=False).returncode != 0
    )
    passed = len(LINTERS) - len(failed)
    return Outcome("lint", passed, failed, (), time.monotonic() - started)


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
    print("\n".join(["", *told(outcomes)]))
    return 0 if all(outcome.is_green for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
