"""Which series of a rule's query count, by name."""

import contextlib
from collections.abc import Sequence

import re2

from adapter.rules import patterns
from adapter.rules.config import SeriesFilter
from podscale.feed.prover.tree import Matcher, NotPromql, VectorSelector, parse


class NameFilter:
    """One ``is`` or ``isNot`` pattern, searched unanchored."""

    def __init__(self, config: SeriesFilter) -> None:
        """Compile; raises ``ValueError`` unless exactly one pattern is given."""
        if config.is_ and config.is_not:
            raise ValueError(
                f"a filter has either is ({config.is_!r}) or isNot ({config.is_not!r}); "
                "write two filters to demand both"
            )
        if not config.is_ and not config.is_not:
            raise ValueError("a filter needs an is or an isNot pattern")
        self.text = config.is_ or config.is_not
        self.is_positive = bool(config.is_)
        self._pattern = patterns.compile(self.text)
        self._last: tuple[str, bool] | None = None  # most rules have one series to look at

    def keeps(self, series: str) -> bool:
        """Return whether a series of this name passes."""
        if self._last is None or self._last[0] != series:
            self._last = series, (self._pattern.search(series) is not None) is self.is_positive
        return self._last[1]


class SelectedNames:
    """The names of the series that a seriesQuery can select, as far as the query tells."""

    def __init__(self, series_query: str) -> None:
        self._matchers: Sequence[Matcher] = ()
        self.only = ""  # the one name; "": there may be several
        with contextlib.suppress(NotPromql):  # Prometheus says what is wrong with it
            tree = parse(series_query)
            if isinstance(tree, VectorSelector):
                self._matchers = [each for each in tree.matchers if each.label == "__name__"]
                equal = (each.value for each in self._matchers if each.op == "=")
                self.only = tree.name or next(equal, "")

    def has(self, series: str) -> bool:
        """Return whether a series of this name may be among them; in doubt it may."""
        try:
            # Not kept compiled: only a rule that is not listed is looked at.
            return keeps_all([_name_filter(each) for each in self._matchers], series)
        except ValueError:  # no regular expression: Prometheus says so
            return True


def _name_filter(matcher: Matcher) -> NameFilter:
    text = matcher.value if "~" in matcher.op else re2.escape(matcher.value)
    pattern = f"^(?s:{text})$"
    is_negative = matcher.op.startswith("!")
    return NameFilter(SeriesFilter(is_not=pattern) if is_negative else SeriesFilter(is_=pattern))


def keeps_all(filters: Sequence[NameFilter], series: str) -> bool:
    """Return whether every filter lets ``series`` pass."""
    return all(f.keeps(series) for f in filters)
