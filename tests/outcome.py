"""What came of the rings: read from pytest's JUnit report, said in the last lines of the output.

Continuous integration shows the end only, so whatever failed is said after the table, and its
two commands have one end: ``python -m tests.outcome FILE STATUS`` prints it from what each
command kept in ``$PODSCALE_OUTCOMES``.
"""

import json
import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

KEPT_IN = "PODSCALE_OUTCOMES"
LEFT_OUT = "left out: "  # begins the reason of a skip for a program (tests.tools.needs)

_LINES, _COLUMNS = 12, 200  # of one failed test
_MESSAGE_LINES = 8  # of them at most; the rest is the end of the text, where the line stands


@dataclass(frozen=True)
class Failure:
    """A test that failed, and what was said about it."""

    test: str
    message: str  # what was raised
    text: str = ""  # the way there

    def lines(self) -> list[str]:
        """Return what a reader needs first: what was raised, and the end of the way there."""
        said = _filled(self.message)[:_MESSAGE_LINES]
        known = {line.strip() for line in said} | {""}
        way = [line for line in _filled(self.text) if line.removeprefix("E").strip() not in known]
        left = _LINES - len(said)
        return [line[:_COLUMNS] for line in (*said, *way[-left:])]


@dataclass(frozen=True)
class Counts:
    """What one run of pytest reported."""

    passed: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # the programs that each test left out runs
    is_counted: bool = True  # False: pytest did not come to write a report


@dataclass(frozen=True)
class Outcome:
    """What one ring did."""

    ring: str
    passed: int
    failed: tuple[Failure, ...]
    skipped: tuple[str, ...]
    seconds: float
    flaky: tuple[Failure, ...] = ()  # among those that passed; how they failed first
    waited: float = 0.0  # seconds for its programs to be built, before the others
    left_out: tuple[str, ...] = ()  # the programs that each test left out runs
    is_counted: bool = True  # False: more may have passed

    @property
    def is_green(self) -> bool:
        return not self.failed


def read(report: Path) -> Counts:
    """Return what stands in a JUnit report; nothing when pytest did not come to write one."""
    if not report.exists():
        return Counts(is_counted=False)
    passed, skipped, left_out = [], [], []
    failed: dict[str, Failure] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag: child for child in case}
        found = next((kinds[tag] for tag in ("failure", "error") if tag in kinds), None)
        reason = kinds["skipped"].get("message") or "" if "skipped" in kinds else None
        if reason is not None and reason.startswith(LEFT_OUT):
            left_out.append(reason.removeprefix(LEFT_OUT))
        elif reason is not None:
            skipped.append(f"{name}: {reason}")
        elif found is not None:
            failed.setdefault(name, Failure(name, found.get("message") or "", found.text or ""))
        else:
            passed.append(name)
    # A test that passes and whose teardown fails stands there twice: it has failed.
    return Counts(
        tuple(name for name in passed if name not in failed),
        tuple(failed.values()),
        tuple(skipped),
        tuple(left_out),
    )


def summary(outcomes: Sequence[Outcome], elsewhere: Sequence[str] = ()) -> Iterator[str]:
    """Yield the table, every failure, what was left out, and the line that counts over all."""
    yield "ring          passed  failed  skipped  left out  seconds  waited for programs"
    for each in outcomes:
        passed = each.passed if each.is_counted else f"{each.passed}+" if each.passed else "?"
        counts = f"{passed:>7} {len(each.failed):>7} {len(each.skipped):>8}"
        times = f"{each.seconds:>8.0f} {each.waited:>7.0f}"
        yield f"{each.ring:<12} {counts} {len(each.left_out):>9} {times}"
        yield from (f"    skipped {reason}" for reason in each.skipped)
        for failure in each.flaky:
            yield f"    flaky, passed when tried once more: {failure.test}"
            yield from (f"        {line}" for line in failure.lines()[:1])
    for each in outcomes:
        for failure in each.failed:
            yield f"\nFAILED {failure.test} ({each.ring})"
            yield from (f"    {line}" for line in failure.lines())
    seconds = sum(each.seconds + each.waited for each in outcomes)
    yield f"\nall of it took {seconds / 60:.0f} minutes"
    if flaky := sum(len(each.flaky) for each in outcomes):
        yield f"{flaky} passed only when tried once more"
    yield from elsewhere
    passed = sum(each.passed for each in outcomes)
    least = "" if all(each.is_counted for each in outcomes) else "at least "
    yield f"{least}{passed} passed, {sum(len(each.failed) for each in outcomes)} failed"


def keep(outcomes: Sequence[Outcome], elsewhere: Sequence[str]) -> None:
    """Add what came of one command to ``$PODSCALE_OUTCOMES``, where that names a file."""
    if file := os.environ.get(KEPT_IN):
        with Path(file).open("a", encoding="utf-8") as kept:
            command = {"outcomes": [asdict(each) for each in outcomes], "elsewhere": elsewhere}
            kept.write(json.dumps(command) + "\n")


def main(file: str, status: int) -> int:
    """Print the end of all commands that kept their outcomes; return the exit status.

    ``status`` is that of the commands: one that failed before its first test has failed.
    """
    commands = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    outcomes = [_outcome(each) for command in commands for each in command["outcomes"]]
    if status and all(outcome.is_green for outcome in outcomes):
        failure = Failure("make", f"it ended with {status}, and no test failed: see above")
        outcomes.append(Outcome("make", 0, (failure,), (), 0.0))
    left_out = commands[-1]["elsewhere"] if commands else ()
    print("\n".join(summary(outcomes, left_out)))
    return 0 if outcomes and all(outcome.is_green for outcome in outcomes) else 1


def _outcome(written: dict[str, Any]) -> Outcome:
    failures = {name: tuple(Failure(**each) for each in written[name])
                for name in ("failed", "flaky")}  # fmt: skip
    lists = {name: tuple(written[name]) for name in ("skipped", "left_out")}
    return Outcome(**{**written, **failures, **lists})


def _filled(text: str) -> list[str]:
    return [line for line in map(str.rstrip, text.splitlines()) if line.strip()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
