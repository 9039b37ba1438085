"""Long columns of objects that neither the collector nor their end holds the loop up for.

A list of 100,000 label sets is walked anew by every collection that meets it, 5 ms and more
each time, and freed in one go. Here they lie in numpy arrays, which the collector does not
look into, and these are freed one in a turn of the loop.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

BLOCK = 128  # freed in about 0.03 ms

T = TypeVar("T")
_Block = NDArray[np.object_]


class PagedList(Sequence[T]):
    """A sequence that grows at its end; equal to any other with the same items."""

    __slots__ = ("_blocks", "_tail")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._blocks: list[_Block] = []
        self._tail: list[T] = []
        self.extend(items)

    def __del__(self) -> None:
        if len(self._blocks) > 1:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # another thread, or the end of the process: nobody waits
                return
            if not loop.is_closed():
                loop.call_soon(_free, loop, self._blocks)

    def append(self, item: T) -> None:
        self._tail.append(item)
        if len(self._tail) >= BLOCK:
            self._fill()

    def extend(self, items: Iterable[T]) -> None:
        """Take items; those of another ``PagedList`` are shared where the blocks meet."""
        if isinstance(items, PagedList):
            if not self._tail:
                self._blocks += items._blocks  # noqa: SLF001 - of our own class
                self._tail += items._tail  # noqa: SLF001
                return
            items = iter(items)
        self._tail.extend(items)
        if len(self._tail) >= BLOCK:
            self._fill()

    @property
    def is_long(self) -> bool:
        """Whether it has more than one block."""
        return len(self._blocks) > 1

    def copy(self) -> Self:
        """Return a sequence that does not grow with this one; the items are shared."""
        return type(self)(self)

    def _fill(self) -> None:
        tail = self._tail
        full = len(tail) - len(tail) % BLOCK
        for start in range(0, full, BLOCK):
            # ``np.array`` would look into what it is given: label sets undecoded are buffers.
            self._blocks.append(np.fromiter(tail[start : start + BLOCK], object, BLOCK))
        del tail[:full]

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._tail)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self._at(each) for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self._at(place % len(self))

    def _at(self, place: int) -> T:
        block, offset = divmod(place, BLOCK)
        if block < len(self._blocks):
            found: T = self._blocks[block][offset]
            return found
        return self._tail[offset]

    def __iter__(self) -> Iterator[T]:
        for block in self._blocks:
            yield from block.tolist()
        yield from self._tail

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            one == another for one, another in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # it grows


def _free(loop: asyncio.AbstractEventLoop, blocks: list[_Block]) -> None:
    blocks.pop()
    if blocks:
        loop.call_soon(_free, loop, blocks)
