"""Which series of a rule's query count, by name."""

from collections.abc import Sequence

from adapter.rules import patterns
from adapter.rules.config import SeriesFilter


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


def keeps_all(filters: Sequence[NameFilter], series: str) -> bool:
    """Return whether every filter lets ``series`` pass."""
    return all(f.keeps(series) for f in filters)
