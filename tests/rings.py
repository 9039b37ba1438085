"""Runs the test rings one after another and says per ring what ran and what was left out.

``python -m tests.rings test`` is ``make test``: what needs Python alone. ``real`` is ``make
test-real``: the rest, whose programs are built beside the first rings. ``full`` is both, in the
long form. A ring that fails does not stop the next one, and a ring in which no test ran has
failed. In rings of real processes, and of the many unit tests, a failed test gets one more
attempt by itself; what only then passes is listed as flaky.
``tests.outcome`` says what came of it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.outcome import Counts, Failure, Outcome, keep, read, summary
from tests.tools.needs import PROGRAMS, WITH, WITHOUT
from tests.tools.programs import OLDER, RELEASE, module_of

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
OUT_OF_TIME = 124  # as timeout(1)
_REPORTING_S = 15.0
_BUILD = (sys.executable, "-m", "tests.tools", "build")


@dataclass(frozen=True)
class Ring:
    """One ring: where its tests are, how long it may take, what it needs built."""

    name: str
    paths: tuple[str, ...]
    test_s: int = 0  # what its part of ``make test`` may take; 0: it has none
    real_s: int = 0  # what its part of ``make test-real`` may take; 0: it has none
    long_s: int = 600  # what all of it may take in the long form
    tools: tuple[str, ...] = ()
    long_tools: tuple[str, ...] = ()  # of the long form only
    workers: int = 0  # 0: in one process
    dist: str = "worksteal"  # loadfile: a file's tests share what its fixtures start
    timeout_s: int = 0  # of one test; 0: as pyproject.toml says
    is_timed: bool = False  # real processes on shared machines: a failure is tried once more
    kubernetes: str = ""  # the release, where it is not the newest; of the long form only
    programs: str = ""  # whether its tests that run programs are left out, or run alone

    def part(self, form: str) -> "Ring":
        """Return what ``make test`` runs of it, or ``make test-real``; of ``full``, all."""
        programs = {"test": WITHOUT, "real": WITH if self.test_s else ""}
        return replace(self, programs=programs.get(form, ""))

    @property
    def environment(self) -> dict[str, str]:
        """What the ring's processes find in their environment."""
        release = {RELEASE: self.kubernetes} if self.kubernetes else {}
        return {**os.environ, **release, PROGRAMS: self.programs}

    @property
    def modules(self) -> tuple[str, ...]:
        """The Go modules that build its programs."""
        if self.programs == WITHOUT:
            return ()
        tools = self.tools if os.environ.get("PODSCALE_SHORT") else (*self.tools, *self.long_tools)
        modules = (module_of(program, self.kubernetes).name for program in tools)
        return tuple(dict.fromkeys(modules))

    @property
    def allowed_s(self) -> int:
        """Seconds that the part which runs may take."""
        if not os.environ.get("PODSCALE_SHORT"):
            return self.long_s
        return {WITHOUT: self.test_s, WITH: self.real_s}.get(
            self.programs, self.test_s + self.real_s
        )


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
    real_s=1400,
    long_s=3300,
    tools=(*_PLANE, "helm", "promtool", "recommender"),
    long_tools=("karpenter",),
    workers=2,  # most of it waits; each worker has a control plane of its own
    dist="loadfile",
    is_timed=True,
)
# In this order: what needs no program comes first, while the programs are built.
RINGS = (
    Ring("unit", ("tests/unit",), test_s=270, workers=2, timeout_s=60, is_timed=True),
    Ring("browser", ("tests/browser",), real_s=120, is_timed=True),
    Ring(
        "property",
        ("tests/property",),
        test_s=90,
        real_s=40,
        long_s=900,
        tools=("prometheus", "promtool"),
        workers=2,
    ),
    Ring(
        "conformance",
        ("tests/conformance",),
        test_s=90,
        real_s=40,
        tools=("prometheus", "promtool"),
        workers=2,
    ),
    Ring(
        "faults",
        ("tests/faults",),
        test_s=100,
        real_s=300,
        long_s=2700,
        tools=("prometheus", "promtool"),
        workers=2,
        is_timed=True,
    ),
    Ring(
        "integration",
        ("tests/integration",),
        test_s=580,
        real_s=270,
        long_s=1800,
        tools=("kubectl", "helm", "prometheus", "promtool"),
        workers=4,  # most of it waits
        dist="loadfile",
        is_timed=True,
    ),
    Ring(
        "docs",
        ("tests/docs",),
        test_s=60,
        real_s=100,
        tools=("kubectl", "helm", "prometheus"),
        is_timed=True,
    ),
    _CLUSTER,
    replace(_CLUSTER, name=f"cluster-{OLDER}", kubernetes=OLDER),
    Ring(
        "attacks",
        ("tests/attacks",),
        real_s=860,  # the siege, tried once more, included
        long_s=6700,
        tools=_PLANE,
        workers=2,
        dist="loadfile",
        is_timed=True,
    ),
)
LINTERS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports", "--no-cache"),
    ("python", "-m", "tests.names"),
    ("python", "-m", "tests.tools.budgets"),
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
            counts = Counts(passed, left, counts.skipped, counts.left_out)
            status = 1 if left else 0
    failed = counts.failed
    if status == OUT_OF_TIME:
        failed += (Failure(ring.name, f"its {ring.allowed_s} s were over, and tests not yet run"),)
    elif status != 0 and not failed:
        # A crash, an empty ring: no test's own.
        failed = (Failure(ring.name, f"no test failed, and pytest ended with {status}"),)
    if counts.left_out and not ring.real_s:
        programs = ", ".join(sorted(set(counts.left_out)))
        failed += (Failure(ring.name, f"no other command runs its tests that need {programs}"),)
    seconds = time.monotonic() - started
    return Outcome(
        ring.name, len(counts.passed), failed, counts.skipped, seconds, flaky,
        waited=started - asked, left_out=counts.left_out, is_counted=counts.is_counted,
    )  # fmt: skip


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
    if ring.programs == WITHOUT:
        command += ["-rfE"]  # the table counts what is left out, and lists what is skipped
    if ring.timeout_s:
        command += ["-o", f"timeout={ring.timeout_s}"]
    if ring.workers:
        command += ["-n", str(ring.workers), "--dist", ring.dist]
    status = _run_for(command, ring.environment, max(deadline - time.monotonic(), 1.0))
    counts = read(report)
    if status == OUT_OF_TIME:  # what each process was at stands there as well, as if it had passed
        done = counts.passed[: -max(ring.workers, 1)]
        counts = replace(counts, passed=done, is_counted=False)
    return status, counts


def _run_for(command: list[str], environment: dict[str, str], seconds: float) -> int:
    with subprocess.Popen(command, cwd=ROOT, env=environment) as running:
        try:
            return running.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"stopped after {seconds:.0f} s: {' '.join(command)}", flush=True)
            running.send_signal(signal.SIGINT)  # on which pytest reports what it has done so far
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(_REPORTING_S)
            return OUT_OF_TIME
        finally:
            running.kill()


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


def chosen(names: Sequence[str]) -> list[Ring | None]:
    """Return the rings, or their parts, that are named; None stands for the linters.

    Raises KeyError for a name that there is not.
    """
    match names:
        case ["test"]:
            return [None, *(ring.part("test") for ring in RINGS if ring.test_s)]
        case ["real"]:
            return [ring.part("real") for ring in RINGS if ring.real_s and not ring.kubernetes]
        case ["full"]:
            return [None, *RINGS]
        case ["check", room]:
            return [None, *_room(room)]
    known: dict[str, Ring | None] = {"lint": None, **{ring.name: ring for ring in RINGS}}
    return [known[name] for name in names]


def _room(room: str) -> list[Ring]:
    # The unit and property tests of one room.
    rings = [
        replace(ring.part("test"), paths=(path,))
        for ring in RINGS
        if ring.name in ("unit", "property")
        and (ROOT / (path := f"tests/{ring.name}/{room}")).is_dir()
    ]
    if not rings:
        raise KeyError(room)
    return rings


def elsewhere(form: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for what ``form`` leaves out, with the command that runs it."""
    if form == "test":
        tests = [programs for outcome in outcomes for programs in outcome.left_out]
        named = sorted({name for programs in tests for name in programs.split(", ")})
        rings = ", ".join(ring.name for ring in RINGS if not ring.test_s and not ring.kubernetes)
        what = f"{len(tests)} tests that run {', '.join(named)}" if tests else "no test of these"
        return [f"left out: {what}; and the rings {rings}: make test-real"]
    if form == "real":
        rings = ", ".join(ring.name for ring in RINGS if ring.kubernetes)
        return [f"left out: the long forms, and the rings {rings}: make test-full"]
    return []


def main(names: list[str]) -> int:
    """Run the named rings, or a form, and print the table; exit status 1 if one is not green."""
    try:
        rings = chosen(names)
    except KeyError as unknown:
        forms = "test, real, full, check ROOM (a folder of tests/unit)"
        print(f"no ring or room {unknown}; there are: {forms}; and the rings:",
              *("lint", *(ring.name for ring in RINGS)))  # fmt: skip
        return 2
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    outcomes = []
    with built_meanwhile([ring for ring in rings if ring]):
        for ring in rings:
            print(f"\n== {ring.name if ring else 'lint'}", flush=True)
            outcomes.append(run(ring) if ring else lint())
    left_out = elsewhere("".join(names), outcomes)
    keep(outcomes, left_out)
    print("\n".join(["", *summary(outcomes, left_out)]))
    return 0 if all(outcome.is_green for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
