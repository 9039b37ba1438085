"""Samples of the pods of one workload in columns: what ten thousand autoscalers ask for.

A mapping like any other to whoever reads it; who sums up takes the columns. Ten samples
as objects in a dict cost ten times as much to make, to look through and to keep.
"""

import math
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import repeat

from msgspec import Struct

from podscale.core.metrics import Sample

_BYTES = 8  # of a value, and of a time


class _Kept(Struct, eq=False, gc=False):
    """What the collector need not look at, of tens of thousands that stay."""

    values: bytes
    times: bytes
    window_s: float | None
    total: int | None
    oldest_s: float | None
    start: int
    by_name: dict[str, Sample] | None = None  # made when somebody looks one up


class SampleColumns(Mapping[str, Sample]):
    """Samples by pod name, in the order of ``names``."""

    __slots__ = ("_kept", "names")

    def __init__(
        self,
        names: tuple[str, ...],
        values: bytes,
        times: bytes,
        window_s: float | None,
        total: int | None = None,
        oldest_s: float | None = None,
        start: int = 0,
    ) -> None:
        """``values`` are milli-units as int64, ``times`` unix seconds as float64 (NaN: not
        known), or the one time of them all, both in the machine's order; those of ``names``,
        which do not repeat, begin ``start`` bytes into them. ``total`` is the sum of the values
        and ``oldest_s`` the least of the times, where somebody knows them."""
        self.names = names
        self._kept = _Kept(values, times, window_s, total, oldest_s, start)

    @property
    def window_s(self) -> float | None:
        """Over how long each sample was taken."""
        return self._kept.window_s

    @property
    def values_raw(self) -> bytes:
        """The values as they are kept."""
        kept = self._kept
        return kept.values[kept.start : kept.start + _BYTES * len(self.names)]

    @property
    def times_raw(self) -> bytes:
        """The times as they are kept."""
        kept = self._kept
        if len(kept.times) == _BYTES:
            return kept.times * len(self.names)
        return kept.times[kept.start : kept.start + _BYTES * len(self.names)]

    @property
    def oldest_s(self) -> float:
        """When the oldest sample was taken, of those whose time is known; NaN: of none it is."""
        kept = self._kept
        if kept.oldest_s is None:
            kept.oldest_s = min((at for at in self.times_s if at == at), default=math.nan)
        return kept.oldest_s

    @property
    def values_milli(self) -> list[int]:
        """The value of each pod."""
        return memoryview(self.values_raw).cast("q").tolist()

    @property
    def total_milli(self) -> int:
        """The sum of the values."""
        kept = self._kept
        if kept.total is None:
            kept.total = sum(self.values_milli)
        return kept.total

    @property
    def times_s(self) -> list[float]:
        """The time of each sample; NaN: not known."""
        times: list[float] = memoryview(self.times_raw).cast("d").tolist()  # type: ignore[assignment]
        return times

    def as_dict(self) -> dict[str, Sample]:
        """Return the samples as objects."""
        kept = self._kept
        if kept.by_name is None:
            made = map(_sample, self.values_milli, self.times_s, repeat(kept.window_s))
            kept.by_name = dict(zip(self.names, made, strict=False))
        return kept.by_name

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
