"""The series in memory: append, select by matchers, forget."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import re2

from podscale.feed.prover.tree import Matcher
from podscale.sandbox.promql.columns import SeriesColumns
from podscale.sandbox.promql.errors import BadData
from podscale.sandbox.promql.values import NAME, Labels, label

RETENTION_MS = 6 * 3600 * 1000


class SeriesHead:
    """All series, by name of metric and label set."""

    def __init__(self, retention_ms: int = RETENTION_MS) -> None:
        self._by_name: dict[str, dict[Labels, SeriesColumns]] = {}
        self._retention_ms = retention_ms

    def append(self, labels: Labels, time_ms: int, value: float) -> None:
        """Add one sample; ``labels`` carry the metric's name."""
        family = self._by_name.setdefault(label(labels, NAME), {})
        columns = family.get(labels)
        if columns is None:
            columns = family[labels] = SeriesColumns()
        columns.append(time_ms, value)

    def select(
        self, name: str | None, matchers: Iterable[Matcher]
    ) -> Iterator[tuple[Labels, SeriesColumns]]:
        """Yield the series that match; raises ``BadData`` for a bad expression."""
        tests = [test_of(matcher) for matcher in matchers]
        families = self._by_name.values() if name is None else [self._by_name.get(name, {})]
        for family in families:
            for labels, columns in family.items():
                if all(test(label(labels, wanted)) for wanted, test in tests):
                    yield labels, columns

    def series(
        self, selections: Sequence[tuple[str | None, Iterable[Matcher]]], since_ms: int, to_ms: int
    ) -> list[Labels]:
        """Return the label sets that any selection finds with a sample between two times."""
        found: dict[Labels, None] = {}
        for name, matchers in selections:
            for labels, columns in self.select(name, matchers):
                if len(columns) and columns.times[0] <= to_ms and columns.times[-1] >= since_ms:
                    found[labels] = None
        return list(found)

    def forget(self, now_ms: int) -> None:
        """Drop what retention has passed."""
        for name, family in list(self._by_name.items()):
            for labels, columns in list(family.items()):
                columns.forget(now_ms - self._retention_ms)
                if not len(columns):
                    del family[labels]
            if not family:
                del self._by_name[name]


def test_of(matcher: Matcher) -> tuple[str, Callable[[str], bool]]:
    """Return a label's name and what its value must pass; raises ``BadData``."""
    wanted = matcher.value
    if matcher.op == "=":
        return matcher.label, lambda value: value == wanted
    if matcher.op == "!=":
        return matcher.label, lambda value: value != wanted
    matches = expression(wanted).fullmatch
    if matcher.op == "=~":
        return matcher.label, lambda value: matches(value) is not None
    return matcher.label, lambda value: matches(value) is None


def expression(text: str) -> "re2._Regexp[str]":
    """Return a compiled expression in which dots match line ends; raises ``BadData``."""
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise BadData(f"error parsing regexp: {error}") from None
