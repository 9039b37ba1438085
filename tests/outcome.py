"""What came of the rings: read from pytest's JUnit report, told in the last lines of the output.

Continuous integration shows the end only, so whatever failed is told after the table, and the
last line says what passed only because it was tried once more.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def is_green(self) -> bool:
        return not self.failed


def read(report: Path) -> Counts:
    """Return what stands in a JUnit report; nothing when pytest did not come to write one."""
    if not report.exists():
        return Counts()
    passed, skipped = [], []
    failed: dict[str, Failure] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag: child for child in case}
        found = next((kinds[tag] for tag in ("failure", "error") if tag in kinds), None)
        if "skipped" in kinds:
            skipped.append(f"{name}: {kinds['skipped'].get('message')}")
        elif found is not None:
            failed.setdefault(name, Failure(name, found.get("message") or "", found.text or ""))
        else:
            passed.append(name)
    # A test that passes and whose teardown fails stands there twice: it has failed.
    return Counts(
        tuple(name for name in passed if name not in failed),
        tuple(failed.values()),
        tuple(skipped),
    )


def told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the table, every failure, and the line that counts over all rings."""
    yield "ring          passed  failed  skipped  seconds  waited for programs"
    for each in outcomes:
        counts = f"{each.passed:>7} {len(each.failed):>7} {len(each.skipped):>8}"
        yield f"{each.ring:<12} {counts} {each.seconds:>8.0f} {each.waited:>7.0f}"
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
    flaky = sum(len(each.flaky) for each in outcomes)
    passed = f"{sum(each.passed for each in outcomes)} passed"
    if flaky:
        passed += f" ({flaky} only when tried once more)"
    failed = sum(len(each.failed) for each in outcomes)
    skipped = sum(len(each.skipped) for each in outcomes)
    yield f"{passed}, {failed} failed, {skipped} skipped"


def _filled(text: str) -> list[str]:
    return [line for line in map(str.rstrip, text.splitlines()) if line.strip()]
