"""Samples of the pods of one workload in columns: what ten thousand autoscalers ask for.

A mapping like any other to whoever reads it; who sums up takes the columns. Ten samples
as objects in a dict cost ten times as much to make, to look through and to keep.
"""

import math
from abc import ABCMeta
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import repeat

from msgspec import Struct, StructMeta

from podscale.core.metrics import Sample

_BYTES = 8  # of a value, and of a time


class _Both(StructMeta, ABCMeta):
    """Of a struct that is a mapping."""


class SampleColumns(Struct, Mapping[str, Sample], eq=False, gc=False, metaclass=_Both):
    """Samples by pod name, in the order of ``names``, which do not repeat.

    A struct, so that the garbage collector does not look at it: of ten thousand autoscalers tens
    of thousands stay from round to round. msgspec would encode its columns; encode ``as_dict()``.
    """

    names: tuple[str, ...]
    numbers: bytes  # milli-units as int64 in the machine's order
    stamps: bytes  # unix seconds as float64 (NaN: not known), or the one time of them all
    window_s: float | None  # over how long each sample was taken
    total: int | None = None  # the sum of the values, where somebody knows it
    oldest: float | None = None  # the least of the times, where somebody knows it
    start: int = 0  # how many bytes into ``numbers`` and ``stamps`` those of ``names`` begin
    by_name: dict[str, Sample] | None = None  # made when somebody looks one up

    @property
    def values_raw(self) -> bytes:
        return self.numbers[self.start : self.start + _BYTES * len(self.names)]

    @property
    def times_raw(self) -> bytes:
        if len(self.stamps) == _BYTES:
            return self.stamps * len(self.names)
        return self.stamps[self.start : self.start + _BYTES * len(self.names)]

    @property
    def oldest_s(self) -> float:
        """When the oldest sample was taken, of those whose time is known; NaN: of none it is."""
        if self.oldest is None:
            self.oldest = min((at for at in self.times_s if at == at), default=math.nan)
        return self.oldest

    @property
    def values_milli(self) -> list[int]:
        """The value of each pod."""
        return memoryview(self.values_raw).cast("q").tolist()

    @property
    def total_milli(self) -> int:
        if self.total is None:
            self.total = sum(self.values_milli)
        return self.total

    @property
    def times_s(self) -> list[float]:
        """The time of each sample; NaN: not known."""
        times: list[float] = memoryview(self.times_raw).cast("d").tolist()  # type: ignore[assignment]
        return times

    def as_dict(self) -> dict[str, Sample]:
        if self.by_name is None:
            made = map(_sample, self.values_milli, self.times_s, repeat(self.window_s))
            self.by_name = dict(zip(self.names, made, strict=False))
        return self.by_name

    __eq__ = Mapping.__eq__

    def __ne__(self, other: object) -> bool:  # a struct's own one compares by identity
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # a mapping has none

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.as_dict()

    def __getitem__(self, name: str) -> Sample:
        return self.as_dict()[name]

    def items(self) -> ItemsView[str, Sample]:
        return self.as_dict().items()

    def values(self) -> ValuesView[Sample]:
        return self.as_dict().values()

    def __repr__(self) -> str:
        return repr(self.as_dict())


def _sample(value_milli: int, time_s: float, window_s: float | None) -> Sample:
    return Sample(value_milli, None if time_s != time_s else time_s, window_s)
