"""Pages of an instant answer whose label sets stay text: 400,000 rows a round at ten thousand
autoscalers, with the same labels as the last time.
"""

from array import array
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import TypeVar

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import JsonDecoder

T = TypeVar("T")


class LabelText(Struct, frozen=True):
    """The label sets of successive rows, each with a comma behind it: ``{...},{...},``."""

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

    def _each(self, decoder: JsonDecoder[list[T]]) -> list[T]:
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


_samples = JsonDecoder(list[_Sample], strict=False)
_text_samples = JsonDecoder(list[_TextSample])
_label_sets = JsonDecoder(list[dict[str, str]])
_label_texts = JsonDecoder(list[msgspec.Raw])
_metrics_of, _points_of = attrgetter("metric"), attrgetter("value")
_time_of, _number_of = itemgetter(0), itemgetter(1)


def read(page: bytes) -> RawPage:
    """Return the rows of a JSON array of samples; raises one of ``DECODE_ERRORS``."""
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
