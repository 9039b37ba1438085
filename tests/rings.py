"""Runs the test rings one after another and says per ring what ran and what was skipped.

``python -m tests.rings all`` is what ``make test`` and CI run: its programs are built beside
the rings that need none. A ring that fails does not stop the next one, and a ring in which no
test ran has failed. In rings of real processes, and of the many unit tests, a failed test gets
one more attempt by itself; what only then passes is listed as flaky.
``tests.outcome`` tells what came of it.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.outcome import Counts, Failure, Outcome, read, told
from tests.tools.programs import OLDER, RELEASE, module_of

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
_BUILD = (sys.executable, "-m", "tests.tools", "build")


@dataclass(frozen=True)
class Ring:
    """One ring: where its tests are, how long it may take, what it needs built."""

    name: str
    paths: tuple[str, ...]
    budget_s: int
    tools: tuple[str, ...] = ()
    long_tools: tuple[str, ...] = ()  # of the long form only
    workers: int = 0  # 0: in one process
    dist: str = "worksteal"  # loadfile: a file's tests share what its fixtures start
    timeout_s: int = 0  # of one test; 0: as pyproject.toml says
    is_timed: bool = False  # real processes on shared machines: a failure is tried once more
    long_s: int = 0  # what the long form may take; 0: the same
    kubernetes: str = ""  # the release, where it is not the newest; of the long form only

    @property
    def environment(self) -> dict[str, str]:
        """What the ring's processes find in their environment."""
        return {**os.environ, RELEASE: self.kubernetes} if self.kubernetes else dict(os.environ)

    @property
    def modules(self) -> tuple[str, ...]:
        """The Go modules that build its programs."""
        tools = self.tools if os.environ.get("PODSCALE_SHORT") else (*self.tools, *self.long_tools)
        found = (module_of(program, self.kubernetes).name for program in tools)
        return tuple(dict.fromkeys(found))

    @property
    def allowed_s(self) -> int:
        """Seconds that the form which is asked for may take."""
        return self.budget_s if os.environ.get("PODSCALE_SHORT") else self.long_s or self.budget_s


_PLANE = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "etcd",
    "kwok",
    "prometheus",
)
_CLUSTER = Ring(
    "cluster",
    ("tests/cluster",),
    1400,
    (*_PLANE, "helm", "promtool", "recommender"),
    ("karpenter",),
    workers=2,  # most of it waits; each worker has a control plane of its own
    dist="loadfile",
    is_timed=True,
    long_s=2700,
)
# In this order: what needs no program comes first, while the programs are built.
RINGS = (
    Ring("property", ("tests/property",), 90, workers=2, long_s=900),
    Ring("browser", ("tests/browser",), 120, is_timed=True),
    Ring(
        "conformance",
        ("tests/conformance",),
        130,
        ("prometheus", "promtool"),
        workers=2,
        long_s=420,
    ),
    Ring("faults", ("tests/faults",), 650, ("prometheus", "promtool"), is_timed=True, long_s=2700),
    Ring("unit", ("tests/unit",), 410, ("kubectl", "helm"), workers=2, timeout_s=60, is_timed=True),
    Ring(
        "integration",
        ("tests/integration",),
        720,
        ("kubectl", "prometheus", "promtool"),
        workers=2,
        dist="loadfile",
        is_timed=True,
        long_s=1800,
    ),
    _CLUSTER,
    replace(_CLUSTER, name=f"cluster-{OLDER}", kubernetes=OLDER),
    Ring(
        "attacks",
        ("tests/attacks",),
        680,  # the siege, tried once more, included
        _PLANE,
        workers=2,
        dist="loadfile",
        is_timed=True,
        long_s=5400,
    ),
    Ring("docs", ("tests/docs",), 130, ("kubectl", "helm", "prometheus"), is_timed=True),
)
LINTERS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports", "--no-cache"),
    ("python", "-m", "tests.names"),
)


def run(ring: Ring) -> Outcome:
    """Run ``ring`` under pytest and read its counts from the JUnit report."""
    asked = time.monotonic()
    if ring.modules:
        subprocess.run([*_BUILD, *ring.modules], cwd=ROOT, check=True)
    started = time.monotonic()
    deadline = started + ring.allowed_s
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
    waited = started - asked
    return Outcome(ring.name, len(counts.passed), failed, counts.skipped, seconds, flaky, waited)


@contextlib.contextmanager
def built_meanwhile(rings: Sequence[Ring], build: Sequence[str] = _BUILD) -> Iterator[None]:
    """Build what the rings need beside those that need nothing; each waits for its own."""
    modules = dict.fromkeys(module for ring in rings for module in ring.modules)
    if len(rings) < 2 or not modules:
        yield
        return
    builder = subprocess.Popen(["nice", "-n", "19", *build, *modules], cwd=ROOT)
    try:
        yield
    finally:
        builder.terminate()
        builder.wait()


def _attempt(ring: Ring, scratch: Path, deadline: float, *words: str) -> tuple[int, Counts]:
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", *ring.paths, *words]
    command += [f"--junitxml={report}", "-o", f"cache_dir={scratch / 'cache'}"]
    if ring.timeout_s:
        command += ["-o", f"timeout={ring.timeout_s}"]
    if ring.workers:
        command += ["-n", str(ring.workers), "--dist", ring.dist]
    status = _run_for(command, ring.environment, max(deadline - time.monotonic(), 1.0))
    return status, read(report)


def _run_for(command: list[str], environment: dict[str, str], seconds: float) -> int:
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=seconds, check=False)
        return done.returncode
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


def left_to_the_long_form() -> list[str]:
    """Return the rings that ``all`` does not run in the form that is asked for."""
    return [ring.name for ring in RINGS if ring.kubernetes and os.environ.get("PODSCALE_SHORT")]


def main(names: list[str]) -> int:
    """Run the named rings, or all, and print the table; exit status 1 if one is not green."""
    known = {ring.name: ring for ring in RINGS}
    left = left_to_the_long_form() if names == ["all"] else []
    chosen = [each for each in ("lint", *known) if each not in left] if names == ["all"] else names
    unknown = [name for name in chosen if name not in {*known, "lint"}]
    if unknown or not names:
        print(f"no ring called {', '.join(unknown)}; there are: all lint {' '.join(known)}")
        return 2
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    outcomes = []
    with built_meanwhile([known[name] for name in chosen if name in known]):
        for name in chosen:
            print(f"\n== {name}", flush=True)
            outcomes.append(lint() if name == "lint" else run(known[name]))
    if left:
        print(f"\nleft to make test-full: {', '.join(left)}")
    print("\n".join(["", *told(outcomes)]))
    return 0 if all(outcome.is_green for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
