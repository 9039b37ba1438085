"""Samples of the pods of one workload in columns: what ten thousand autoscalers ask for.

A mapping like any other to whoever reads it; who sums up takes the columns. Ten samples
as objects in a dict cost ten times as much to make, to look through and to keep.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import repeat

from podscale.core.metrics import Sample


class SampleColumns(Mapping[str, Sample]):
    """Samples by pod name, in the order of ``names``."""

    __slots__ = ("_by_name", "_total", "names", "times_raw", "values_raw", "window_s")

    def __init__(
        self,
        names: tuple[str, ...],
        values: bytes,
        times: bytes,
        window_s: float | None,
        total: int | None = None,
    ) -> None:
        """``values`` are milli-units as int64, ``times`` unix seconds as float64 (NaN: not
        known), both in the machine's order and as long as ``names``, which do not repeat.
        ``total`` is the sum of the values, where somebody knows it."""
        self.names = names
        self.values_raw = values
        self.times_raw = times
        self.window_s = window_s
        self._total = total
        self._by_name: dict[str, Sample] | None = None  # made when somebody looks one up

    @property
    def values_milli(self) -> list[int]:
        """The value of each pod."""
        return memoryview(self.values_raw).cast("q").tolist()

    @property
    def total_milli(self) -> int:
        """The sum of the values."""
        if self._total is None:
            self._total = sum(self.values_milli)
        return self._total

    @property
    def times_s(self) -> list[float]:
        """The time of each sample; NaN: not known."""
        times: list[float] = memoryview(self.times_raw).cast("d").tolist()  # type: ignore[assignment]
        return times

    def as_dict(self) -> dict[str, Sample]:
        """Return the samples as objects."""
        if self._by_name is None:
            made = map(_sample, self.values_milli, self.times_s, repeat(self.window_s))
            self._by_name = dict(zip(self.names, made, strict=False))
        return self._by_name

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.as_dict()

    def __getitem__(self, name: str) -> Sample:
        return self.as_dict()[name]

    def items(self) -> ItemsView[str, Sample]:
        """Return names and samples."""
        return self.as_dict().items()

    def values(self) -> ValuesView[Sample]:
        """Return the samples."""
        return self.as_dict().values()

    def __repr__(self) -> str:
        return repr(self.as_dict())


def _sample(value_milli: int, time_s: float, window_s: float | None) -> Sample:
    return Sample(value_milli, None if time_s != time_s else time_s, window_s)
