"""Objects that nest deeper than msgspec follows, made shallow without recursion.

Whoever may write a pod may let its ``managedFields`` nest 9,995 levels, which kube-apiserver
stores and shows to everybody who lists pods.
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

UNREADABLE_MANAGER = "podscale-unreadable-managed-fields"  # where nobody can tell who wrote
LEVELS = 100  # what we read of an object nests a quarter as deep

_CHUNK_BYTES = 1 << 20
_KEY = re.compile(rb'"managedFields"\s*:\s*\Z')
_KEY_BYTES = 80
_KEY_LEVELS = (3, 4, 5)  # of managedFields in an object, in an event of a watch, in a list
_ENTRY = b'{"manager":"%b","time":"1970-01-01T00:00:00Z","subresource":"%%b"}' % (
    UNREADABLE_MANAGER.encode()
)
_UNREADABLE = b"[%b,%b]" % (_ENTRY % b"status", _ENTRY % b"scale")
_QUOTE = 2
_STEPS = np.zeros(256, np.int8)  # what a byte does to the level
_STEPS[[*b'[{"}]']] = 1, 1, _QUOTE, -1, -1

_Ints = npt.NDArray[np.int32]


def shallow(body: bytes) -> bytes:
    """Return ``body`` without values of more than ``LEVELS`` levels, in time linear in its length.

    In place of ``managedFields`` that reach deeper stand entries of ``UNREADABLE_MANAGER``, in
    place of any other value at ``LEVELS`` that does, null. What is no JSON remains none.
    """
    # What a backslash escapes ends no string; nothing moves.
    text = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    places, levels = _brackets(np.frombuffer(text, np.uint8))
    spans: list[tuple[int, int, bytes]] = []
    for level in _KEY_LEVELS:
        for start, end in _deep(places, levels, level):
            if _KEY.search(text[max(0, start - _KEY_BYTES) : start]):
                spans.append((start, end, _UNREADABLE))
    spans += [(start, end, b"null") for start, end in _deep(places, levels, LEVELS)]
    parts: list[bytes] = []
    at = 0
    for start, end, other in sorted(spans):
        if start >= at:  # else it is part of what has been left out
            parts += body[at:start], other
            at = end
    return b"".join([*parts, body[at:]])


def _brackets(text: npt.NDArray[np.uint8]) -> tuple[_Ints, _Ints]:
    """Return where brackets outside strings stand, and the level of what each begins or ends."""
    places, levels = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    level = quotes = 0
    for start in range(0, len(text), _CHUNK_BYTES):
        steps = _STEPS[text[start : start + _CHUNK_BYTES]]
        marks = np.flatnonzero(steps)
        steps = steps[marks]
        is_quote = steps == _QUOTE
        is_bracket = ~is_quote & ((quotes + np.cumsum(is_quote)) % 2 == 0)
        quotes += int(is_quote.sum())
        steps = steps[is_bracket]
        after = level + np.cumsum(steps, dtype=np.int32)
        places.append((start + marks[is_bracket]).astype(np.int32))
        levels.append((after + (steps < 0)).astype(np.int32))
        level += int(steps.sum())
    return np.concatenate(places), np.concatenate(levels)


def _deep(places: _Ints, levels: _Ints, level: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each value at ``level`` that reaches below ``LEVELS``."""
    borders = np.flatnonzero(levels == level)  # of one value, and then of the next
    if len(borders) % 2:  # cut off
        borders = borders[:-1]
    if len(borders):
        is_deep = np.maximum.reduceat(levels, borders)[::2] > LEVELS
        for first, last in borders.reshape(-1, 2)[is_deep]:
            yield int(places[first]), int(places[last]) + 1
