"""Pages of an instant answer whose label sets stay text: 400,000 rows a round at ten thousand
autoscalers, with the same labels as the last time.

A page as Prometheus writes it is one pattern again and again, in which only labels and values
differ; numpy finds it at 0.55 to 0.75 of what a decoder costs (one to six labels a row). Whatever
differs from that is decoded. Both ways take the same bytes out.
"""

from array import array
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

_HEAD = b'[{"metric":{'
_TIME = b'},"value":['  # from the end of the labels to the time
_NEXT = b'"]},{"metric":{'  # from the end of a value to the labels of the next row
_TAIL = b'"]}]'
_WIDEST = 26  # a float64 takes up to 24 characters, and quotes; as many precede the first value
_MOST_STEPS = 8  # more cost more than decoding

# Blanks, then what is above all characters; blanks are below all that a page may have here.
_BLANKS = b" " * _WIDEST + b"\xff" * (_WIDEST + 1)

_Places = NDArray[np.int64]

T = TypeVar("T")


class LabelText(Struct, frozen=True):
    """The label sets of successive rows, each with a comma behind it: ``{...},{...},``.

    That of a page whose pattern was found has one opening brace a row, at its beginning, and was
    not looked at any closer: so many valid sets are those of the rows, each in its place.
    """

    text: bytes
    rows: int

    def decoded(self) -> list[dict[str, str]]:
        """Return the label sets; raises one of ``DECODE_ERRORS``."""
        return self._each(_label_sets)

    def parts(self, rows: int) -> Iterator["LabelText"]:
        """Yield the text of so many rows at a time; raises one of ``DECODE_ERRORS``."""
        texts = self._each(_label_texts)
        for start in range(0, self.rows, rows):
            part = texts[start : start + rows]
            yield LabelText(_joined(part), len(part))

    def _each(self, decoder: msgspec.json.Decoder[list[T]]) -> list[T]:
        found = decoder.decode(b"[%b]" % self.text[:-1])
        if len(found) != self.rows:
            raise ValueError(f"{len(found)} label sets in {self.rows} rows")
        return found


class RawPage(Struct, frozen=True):
    """The rows of one page that have a float."""

    labels: LabelText
    values: list[float]
    times: "array[float]"
    is_float_only: bool = True  # False: at least one row was a native histogram


class _Sample(Struct, gc=False):
    """One row, its labels not decoded, its number taken out of its text at once."""

    metric: msgspec.Raw = msgspec.Raw(b"{}")
    value: tuple[float, float] | None = None


class _TextSample(Struct, gc=False):
    """The same, with its number as text."""

    metric: msgspec.Raw = msgspec.Raw(b"{}")
    value: tuple[float, str] | None = None


_samples = msgspec.json.Decoder(list[_Sample], strict=False)
_text_samples = msgspec.json.Decoder(list[_TextSample])
_label_sets = msgspec.json.Decoder(list[dict[str, str]])
_label_texts = msgspec.json.Decoder(list[msgspec.Raw])
_number = msgspec.json.Decoder(float)
_numbers = msgspec.json.Decoder(list[float])
_quoted_numbers = msgspec.json.Decoder(list[float], strict=False)
_metrics_of, _points_of = attrgetter("metric"), attrgetter("value")
_time_of, _number_of = itemgetter(0), itemgetter(1)


def read(page: bytes) -> RawPage:
    """Return the rows of a JSON array of samples; raises one of ``DECODE_ERRORS``."""
    return _matched(page) or _decoded(page)


def _matched(page: bytes) -> RawPage | None:
    """Return the rows of a page in Prometheus's own writing; ``None``: it must be decoded.

    Each row is ``{"metric":{...},"value":[T,"V"]}`` with one T for all. No label holds a bracket
    or an opening brace, so each of these is where the pattern has it, or there is none.
    """
    if not page.startswith(_HEAD) or not page.endswith(_TAIL):
        return None
    chars = np.frombuffer(page, np.uint8)
    # "[" and "]" are 0x5b and 0x5d.
    (brackets,) = (((chars - np.uint8(0x5B)) & np.uint8(0xFD)) == 0).nonzero()
    rows = len(brackets) // 2 - 1
    if rows < 1 or len(brackets) % 2 or np.count_nonzero(chars == ord("{")) != 2 * rows:
        return None
    opened, closed = brackets[1:-1:2], brackets[2:-1:2]
    time_text = page[opened[0] + 1 : page.find(b",", opened[0])]
    before = b'%b%b,"' % (_TIME, time_text)
    starts, ends = opened + (len(time_text) + 3), closed - 1  # of the values
    if (ends < starts).any() or chars.min() < ord(" "):
        return None
    if _chars(page, starts - len(before), len(before)).tobytes() != before * rows:
        return None
    if _chars(page, ends[:-1], len(_NEXT)).tobytes() != _NEXT * (rows - 1):
        return None
    try:
        time_s = _number.decode(time_text)
        values = _values(page, starts, ends)
        first = np.concatenate(([len(_HEAD) - 1], ends[:-1] + (len(_NEXT) - 1)))
        labels = _joined_labels(page, first, opened - (len(_TIME) - 3))
    except (msgspec.DecodeError, ValueError):
        return None
    if len(values) != rows:  # "1,2" would be two
        return None
    return RawPage(LabelText(labels, rows), values, array("d", (time_s,)) * rows)


def _windows(text: bytes | bytearray, length: int) -> NDArray[np.void]:
    """Return every text of one length, by where it begins: they overlap."""
    return np.ndarray((len(text) - length + 1,), f"V{length}", text, strides=(1,))


def _chars(text: bytes, starts: _Places, length: int) -> NDArray[np.uint8]:
    """Return the texts of one length that begin at ``starts``, one below the other."""
    return _windows(text, length)[starts].view(np.uint8).reshape(-1, length)


def _joined_labels(page: bytes, starts: _Places, ends: _Places) -> bytes:
    """Return the texts between ``starts`` and ``ends``, joined; raises ValueError if one is
    many times as long as another.
    """
    lengths = ends - starts
    length, longest = int(lengths.min()), int(lengths.max())
    if longest > _MOST_STEPS * length:
        raise ValueError(f"texts of {length} and of {longest} bytes")
    behind = lengths.cumsum()
    joined = bytearray(int(behind[-1]))
    targets, sources = _windows(joined, length), _windows(page, length)
    # By the length of the shortest: mostly a second step brings the ends of all others.
    for step in range(0, longest, length):
        at = np.minimum(step, lengths - length)
        targets[behind - lengths + at] = sources[starts + at]
    return bytes(joined)


def _values(page: bytes, starts: _Places, ends: _Places) -> list[float]:
    """Return the numbers of the texts there, a quote on each side; raises one of
    ``DECODE_ERRORS``.
    """
    try:
        return _numbers.decode(_listed(page, starts, ends))
    except msgspec.DecodeError:
        # "NaN" and "+Inf" are numbers to Prometheus; to msgspec "NaN" and "Inf" are, in quotes.
        quoted = _listed(page, starts - 1, ends + 1)
        return _quoted_numbers.decode(quoted.replace(b'"+Inf"', b'"Inf"'))


def _listed(page: bytes, starts: _Places, ends: _Places) -> bytes:
    """Return the texts there as a JSON array; raises ValueError if one is too long."""
    widths = ends - starts
    widest = int(widths.max())
    if widest > _WIDEST:
        raise ValueError(f"a number of {widest} characters")
    # One below the other, flush right, what is behind each made a comma.
    texts = _chars(page, ends - widest, widest + 1)
    texts = np.minimum(texts, _chars(_BLANKS, widths + (_WIDEST - widest), widest + 1))
    texts[:, -1] = ord(",")
    texts[-1, -1] = ord("]")
    return b"[" + texts.tobytes()


def _decoded(page: bytes) -> RawPage:
    samples = _decoded_samples(page)
    points = list(map(_points_of, samples))
    is_float_only = None not in points
    if not is_float_only:
        samples = [sample for sample in samples if sample.value is not None]
        points = list(map(_points_of, samples))
    return RawPage(
        LabelText(_joined(list(map(_metrics_of, samples))), len(samples)),
        list(map(_number_of, points)),
        array("d", map(_time_of, points)),
        is_float_only,
    )


def _decoded_samples(page: bytes) -> list[_Sample]:
    try:
        return _samples.decode(page)
    except msgspec.ValidationError:
        return [
            _Sample(
                each.metric, None if each.value is None else (each.value[0], float(each.value[1]))
            )
            for each in _text_samples.decode(page)
        ]


def _joined(texts: list[msgspec.Raw]) -> bytes:
    return b",".join((*texts, b""))
