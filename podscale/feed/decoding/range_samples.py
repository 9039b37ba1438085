"""Samples of a range answer, out of its text by the thousand.

A decoder makes three Python objects of a sample; numpy takes the digits of all samples at once
out of the bytes, in less than half of the time. What Prometheus seldom or never writes (NaN,
exponents, fractions of a second, spaces) is left to the decoder, and comes out the same.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_BATCH_BYTES = 500_000  # of text: what numpy makes of it stays in the processor's cache
_FEWEST_BYTES = 50_000  # with less the decoder is as fast
_FEWEST_ALIKE = 30  # numbers of one shape
_LONGEST = 28  # more characters than a number may have: in 64 bits, 1e27 is still exact
_EXACT_DIGITS = 15  # that a float64 holds, whatever they are
_LOW, _MOST_HIGH = 1e9, 1.8e10  # a number of 64 bits in two: its last nine digits, the rest
_HAS_64_BITS = np.finfo(np.longdouble).nmant >= 63

_HEAD = np.frombuffer(b"],[0000000000,", np.uint8)  # stands before the quote of every value
_IS_DIGIT = np.equal(_HEAD, ord("0"))
_HEAD_WEIGHTS = np.where(_IS_DIGIT, 10.0 ** (_IS_DIGIT.sum() - np.cumsum(_IS_DIGIT)), 0.0)

_pairs = msgspec.json.Decoder(list[tuple[float, float]], strict=False)
_numbers = msgspec.json.Decoder(list[float], strict=False)


class RangeSamples(Struct, frozen=True, eq=False):
    """Samples of many series, one series after the other."""

    counts: list[int]  # samples of each series
    time_s: Floats
    values: Floats


def read(texts: Iterable[msgspec.Raw]) -> RangeSamples:
    """Return the samples of series, of which each text is the JSON array of (time, value).

    Raises ``msgspec.MsgspecError`` for what is no such array.
    """
    parts = [_scanned(batch) or decoded(batch) for batch in _batches(texts)]
    return RangeSamples(
        [count for part in parts for count in part.counts],
        np.concatenate([np.empty(0), *(part.time_s for part in parts)]),
        np.concatenate([np.empty(0), *(part.values for part in parts)]),
    )


def decoded(texts: Iterable[memoryview]) -> RangeSamples:
    """Return the same by the decoder, however it is written."""
    series = [_pairs.decode(_without_plus(bytes(text))) for text in texts]
    counts = [len(each) for each in series]
    numbers = chain.from_iterable(chain.from_iterable(series))
    both = np.fromiter(numbers, np.float64, 2 * sum(counts))
    return RangeSamples(counts, both[::2], both[1::2])


def _batches(texts: Iterable[msgspec.Raw]) -> Iterator[list[memoryview]]:
    batch: list[memoryview] = []
    size = 0
    for text in texts:
        batch.append(memoryview(text))
        size += len(text)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _scanned(texts: list[memoryview]) -> RangeSamples | None:
    # None: not written as Prometheus writes, or too little to be worth it.
    lengths = np.array([len(text) - 2 for text in texts])  # without the brackets around it
    if lengths.sum() < _FEWEST_BYTES or any(each[0] != ord("[") for each in texts):
        return None
    text = b"]," + b",".join([each[1:-1] for each in texts if len(each) > 2])
    raw = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero((raw == ord('"')) | (raw == ord(".")))
    quotes = np.flatnonzero(raw[marks] == ord('"'))
    if len(quotes) < 2 or len(quotes) % 2:
        return None
    opening, closing = quotes[::2], quotes[1::2]  # of the marks
    begins, ends = marks[opening] + 1, marks[closing]  # of the text
    if not (
        begins[0] == len(_HEAD) + 1
        and (begins[1:] - ends[:-1] == len(_HEAD) + 2).all()
        and ends[-1] == len(text) - 2
    ):
        return None
    heads = _at(text, begins - 1 - len(_HEAD), len(_HEAD)) - _HEAD  # wraps below zero
    if not (heads <= np.where(_IS_DIGIT, 9, 0)).all():
        return None
    dots = closing - opening - 1
    after = np.where(dots, ends - marks[opening + 1], 0)  # characters from the dot on
    values = _values(text, begins, ends, np.where(dots > 1, ends - begins, after))
    until = np.searchsorted(ends, 2 + np.cumsum(lengths + (lengths > 0)))
    time_s = heads.astype(np.float64) @ _HEAD_WEIGHTS
    return RangeSamples(np.diff(until, prepend=0).tolist(), time_s, values)


def _values(text: bytes, begins: Places, ends: Places, after: Places) -> Floats:
    # Numbers of one shape (length, place of the dot) are made at once.
    lengths = ends - begins
    is_number = (after != 1) & (after < lengths) & (lengths < _LONGEST)  # digits on both sides
    shapes = np.where(is_number, lengths * _LONGEST + after, 0)
    values = np.empty(len(begins))
    is_known = np.zeros(len(begins), np.bool_)
    counts = np.bincount(shapes)
    counts[0] = 0
    for shape in np.flatnonzero(counts >= _FEWEST_ALIKE).tolist():
        rows = np.flatnonzero(shapes == shape)
        values[rows], is_known[rows] = _numbers_of(text, begins[rows], *divmod(shape, _LONGEST))
    rest = np.flatnonzero(~is_known)
    if len(rest):
        words = [text[a:b] for a, b in zip(begins[rest].tolist(), ends[rest].tolist(), strict=True)]
        values[rest] = _numbers.decode(_without_plus(b'["%b"]' % b'","'.join(words)))
    return values


def _numbers_of(
    text: bytes, begins: Places, length: int, after: int
) -> tuple[Floats, NDArray[np.bool_]]:
    # Numbers of ``length`` characters, of which ``after`` are the dot and what follows; and
    # whether each is what a correct reading of its digits gives.
    digits = _at(text, begins, length) - ord("0")  # wraps below zero
    places = 10.0 ** np.arange(length - 1, -1, -1)
    if after:
        places[: length - after] /= 10.0
        digits[:, length - after] = 0
    fraction = max(0, after - 1)
    is_known: NDArray[np.bool_] = np.ones(len(begins), np.bool_)
    if digits.max() > 9:
        is_known &= (digits <= 9).all(axis=1)
    if length - (after > 0) <= _EXACT_DIGITS:
        return digits @ places / 10.0**fraction, is_known
    if not _HAS_64_BITS:
        return np.zeros(len(begins)), np.zeros(len(begins), np.bool_)
    is_low = places < _LOW
    high, low = (digits @ np.stack([np.where(is_low, 0.0, places / _LOW),
                                    np.where(is_low, places, 0.0)], axis=1)).T  # fmt: skip
    whole = high.astype(np.uint64) * np.uint64(_LOW) + low.astype(np.uint64)
    wide = whole / np.longdouble(10**fraction)
    values = wide.astype(np.float64)
    # Rounded twice, which goes wrong only where the first time ended midway between two floats.
    apart = (wide - values).astype(np.float64)
    return values, is_known & (high < _MOST_HIGH) & (2.0 * np.abs(apart) != np.spacing(values))


def _at(text: bytes, begins: Places, length: int) -> NDArray[np.uint8]:
    # The characters from each place on: (places, length).
    every = np.ndarray((len(text) - length + 1,), f"V{length}", text, strides=(1,))
    return every[begins].view(np.uint8).reshape(-1, length)


def _without_plus(text: bytes) -> bytes:
    # Only Go writes a sign before Inf.
    return text.replace(b'"+Inf"', b'"Inf"')
