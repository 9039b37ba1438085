"""What discovery reads of series: their names, and the label names that occur under each.

Pure decoding. Whoever is scraped chooses both, so what is held of a name and of an answer is
bounded, and the work grows with the answer alone. Labels that are wanted, since they say which
object a series is of, are kept whatever else comes: nobody floods them away.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence

from podscale.core.json_decoder import JsonDecoder
from podscale.feed.decoding.splitter import PAGE_BYTES
from podscale.feed.decoding.wire import is_partial, success

SeriesNames = Mapping[str, frozenset[frozenset[str]]]  # name -> the sets of label names seen
Wanted = Callable[[str], bool]  # whether a label name counts in any case

MOST_SHAPES = 64  # lists of label names that are told apart under one name
MOST_LABELS = 128  # of one of them
LONGEST_NAME = 1024  # characters of a metric's name
_SHAPE_CHARS = 16 * 1024
_ALL_SHAPES_BYTES = 16 * 1024 * 1024  # as counted here: thousands of exporters share a few MB
_LABEL_BYTES = 128  # of one label name in a list and a set, besides its characters
_MOST_TOLD = 100  # crowded names
_PAGE = 2_000  # label names turned into sets in one turn of the loop, some 0.2 ms
_PAGE_BEYOND = 50  # label names looked at in one turn, each with a regular expression

_NAME = re.compile(rb'"__name__":"((?:[^"\\]|\\.){0,%d})"' % LONGEST_NAME)

_Shape = tuple[str, ...]  # label names, as they were written

_entries = JsonDecoder(list[dict[str, str]])


class _Shapes:
    """The shapes that some names have in common: 50,000 of one exporter share a handful."""

    __slots__ = ("names", "sets", "shapes")

    def __init__(self, shapes: frozenset[_Shape]) -> None:
        self.shapes = shapes
        self.names = 0  # that have just these
        self.sets: frozenset[frozenset[str]] | None = None


class _ShapeStore:
    """The shapes of one answer, each once."""

    def __init__(self) -> None:
        self.alive: dict[frozenset[_Shape], _Shapes] = {}
        self._distinct: dict[_Shape, _Shape] = {}
        self._left_bytes = _ALL_SHAPES_BYTES

    def held(self, shape: _Shape) -> _Shape | None:
        """Return the one object for a shape; ``None``: it is too large, or there is no room."""
        held = self._distinct.get(shape)
        if held is None and len(shape) <= MOST_LABELS:
            chars = sum(map(len, shape))
            size = chars + _LABEL_BYTES * len(shape)
            if chars <= _SHAPE_CHARS and size <= self._left_bytes:
                self._left_bytes -= size
                held = self._distinct[shape] = shape
        return held


class SeriesReader:
    """Collects the label names of series; values are dropped page by page."""

    page_bytes = PAGE_BYTES

    def __init__(self, wanted: Wanted = lambda _: False, shapes: _ShapeStore | None = None) -> None:
        """``shapes`` may be shared by the readers of one answer."""
        self._wanted = wanted
        self.by_name: dict[str, _Shapes] = {}
        self._store = shapes or _ShapeStore()
        self._waiting: list[tuple[str, _Shape]] = []  # beyond the bounds, not looked at yet
        self._beyond: dict[str, set[str]] = {}  # wanted labels of those
        self.crowded: dict[str, None] = {}  # names of which not all label names are kept
        self.count = 0

    def page(self, page: bytes) -> None:
        """Take entries; raises one of ``DECODE_ERRORS``."""
        entries = _entries.decode(page)
        self.count += len(entries)
        by_name = self.by_name
        for labels in entries:
            name, shape = labels.get("__name__", ""), tuple(labels)
            known = by_name.get(name)
            if known is None or shape not in known.shapes:
                self.take(name, known, shape)

    def look_closer(self) -> Generator[None, None, None]:
        """Find what is wanted of the last page beyond the bounds. Yields between pages."""
        looked_at = 0
        for name, shape in self._waiting:
            wanted = self._beyond.setdefault(name, set())
            for label in shape:
                if self._wanted(label):
                    wanted.add(label)
                looked_at += 1
                if looked_at % _PAGE_BEYOND == 0:
                    yield
        self._waiting.clear()

    def leave_out(self, beginning: bytes) -> None:
        """Note an entry that is too long to be read."""
        found = _NAME.search(beginning)
        self.count += 1
        self._tell(found[1].decode(errors="replace") if found else "")

    def end(self, rest: bytes) -> bool:
        """Take the last entries; return whether some series could not be listed."""
        envelope = success(rest)
        if bytes(envelope.data) != b"null":
            self.page(bytes(envelope.data))
        return is_partial(envelope)

    def names(self) -> Generator[None, None, SeriesNames]:
        """Return name -> sets of label names; equal sets are one object. Yields between pages."""
        yield from self.look_closer()
        found: dict[str, frozenset[frozenset[str]]] = {}
        done = 0
        for name, known in self.by_name.items():
            done += 1
            if known.sets is None:
                known.sets = frozenset(map(frozenset, known.shapes))
                done += sum(map(len, known.shapes))
            found[name] = known.sets
            if done >= _PAGE:
                done = 0
                yield
        for place, (name, labels) in enumerate(self._beyond.items(), 1):
            found[name] = found.get(name, frozenset()) | {frozenset(labels)}
            if place % (_PAGE // MOST_SHAPES) == 0:
                yield
        return found

    def take(self, name: str, known: _Shapes | None, shape: _Shape) -> None:
        """Take what is ``known`` of a name with one list of label names more."""
        if len(name) > LONGEST_NAME:
            self._tell(name)
            return
        shapes = frozenset[_Shape]() if known is None else known.shapes
        held = self._store.held(shape) if len(shapes) < MOST_SHAPES else None
        if held is None:
            self._tell(name)
            self._waiting.append((name, shape))
            return
        grown = shapes | {held}
        shared = self._store.alive.get(grown)
        if shared is None:
            shared = self._store.alive[grown] = _Shapes(grown)
        shared.names += 1
        self.by_name[name] = shared
        if known is not None:
            known.names -= 1
            if not known.names:  # nobody else stands where this name stood
                del self._store.alive[known.shapes]

    def _tell(self, name: str) -> None:
        if len(self.crowded) < _MOST_TOLD:
            self.crowded[name[:LONGEST_NAME]] = None


class SplitSeriesReader(SeriesReader):
    """Collects the series of several values of one label apart from each other."""

    def __init__(self, label: str, values: Sequence[str]) -> None:
        super().__init__()
        self._label = label
        self.readers = {value: SeriesReader(shapes=self._store) for value in values}
        self.is_left_out = False  # an entry was too long to be read: nobody knows whose

    def page(self, page: bytes) -> None:
        """Take entries; raises one of ``DECODE_ERRORS``."""
        label, value, reader = self._label, None, None
        for labels in _entries.decode(page):
            if (found := labels.get(label)) != value:  # mostly those of one follow each other
                value, reader = found, self.readers.get(found or "")
            if reader is not None:
                reader.count += 1
                name, shape = labels.get("__name__", ""), tuple(labels)
                known = reader.by_name.get(name)
                is_new = known is None or shape not in known.shapes
                if is_new and not reader.crowded:  # who is beyond is asked for alone
                    reader.take(name, known, shape)

    def leave_out(self, beginning: bytes) -> None:
        """Note an entry that is too long to be read."""
        self.is_left_out = True


class Enough(Exception):
    """The reader has what it wanted; the rest of the answer need not arrive."""


class FirstSeries:
    """Keeps the first label sets, with their values."""

    page_bytes = PAGE_BYTES

    def __init__(self, limit: int) -> None:
        self.found: list[dict[str, str]] = []
        self._limit = limit

    def page(self, page: bytes) -> None:
        """Take entries; raises ``Enough`` when the last one wanted has come."""
        self.found += _entries.decode(page)[: self._limit - len(self.found)]
        if len(self.found) >= self._limit:
            raise Enough

    def end(self, rest: bytes) -> None:
        """Take the entries of an answer that fitted one page, as ``page``."""
        if (data := bytes(success(rest).data)) != b"null":
            self.page(data)
