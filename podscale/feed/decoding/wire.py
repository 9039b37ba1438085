"""Prometheus's JSON as values: instant answers.

Pure decoding; follows ``web/api/v1/api.go`` of Prometheus 3 and tolerates what Thanos, Mimir and
VictoriaMetrics add (``isPartial``, warnings). The label sets of raw pages stay text: 400,000 rows a
round at ten thousand autoscalers, with the same labels as the last time.
"""

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.json_decoder import JsonDecoder
from podscale.core.times.rfc3339 import LAST_S
from podscale.feed.decoding.splitter import PAGE_BYTES

T = TypeVar("T")


class LabelSets(list[dict[str, str]]):
    """Decoded label sets; a long list is freed a part in a turn of the loop, since it takes 12 ms
    to free those of 100,000 rows."""

    __slots__ = ()
    MOST_FREED = 256  # in one turn, about 0.03 ms

    @classmethod
    def of(cls, labels: Sequence[dict[str, str]]) -> "LabelSets":
        """Return ``labels`` themselves where they are some."""
        return labels if isinstance(labels, cls) else cls(labels)

    def __del__(self) -> None:
        if len(self) > self.MOST_FREED:
            # No loop: another thread, or the end of the process, and nobody waits.
            with suppress(RuntimeError):
                asyncio.get_running_loop().call_soon(self._free)

    def _free(self) -> None:
        del self[-self.MOST_FREED :]
        if self:
            asyncio.get_running_loop().call_soon(self._free)


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


_raw_samples = JsonDecoder(list[_Sample], strict=False)
_text_samples = JsonDecoder(list[_TextSample])
_label_sets = JsonDecoder(list[dict[str, str]])
_label_texts = JsonDecoder(list[msgspec.Raw])
_metrics_of, _points_of = attrgetter("metric"), attrgetter("value")
_time_of, _number_of = itemgetter(0), itemgetter(1)


def read_raw_page(page: bytes) -> RawPage:
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
        return _raw_samples.decode(page)
    except msgspec.ValidationError:
        return [
            _Sample(
                each.metric, None if each.value is None else (each.value[0], float(each.value[1]))
            )
            for each in _text_samples.decode(page)
        ]


def _joined(texts: list[msgspec.Raw]) -> bytes:
    return b",".join((*texts, b""))


ResultType = Literal["vector", "scalar", "string", "matrix"]

PAGE_ROWS = 125  # sorted out in one turn of the loop, about an eighth of a millisecond


class WireSample(Struct, gc=False):
    """One entry of a vector; a native histogram has no ``value``."""

    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None


class _Data(Struct):
    result_type: ResultType = msgspec.field(name="resultType")
    result: msgspec.Raw


class Envelope(Struct):
    """What every answer of Prometheus is in."""

    status: Literal["success", "error"]
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = msgspec.field(name="isPartial", default=False)


class InstantAnswer(Struct):
    """One instant answer: entries in Prometheus's order, values as floats."""

    kind: ResultType
    metrics: Sequence[dict[str, str]]
    values: Sequence[float]
    times: Sequence[float]  # as stamped by the source; Prometheus writes the evaluation time
    is_float_only: bool = True  # False: at least one entry was a native histogram
    is_partial: bool = False
    warnings: tuple[str, ...] = ()
    raw: Sequence[LabelText] | None = None  # the label sets undecoded; ``metrics`` is then empty
    digest: bytes | None = None  # of ``raw``: equal digests are equal label sets in equal order

    @property
    def has_times(self) -> bool:
        """Whether every sample is of a time between 1970 and the year 9999."""
        times = np.array(self.times, np.float64)
        return not len(times) or bool(times.min() >= 0.0 and times.max() <= LAST_S)

    def labelled(self) -> "InstantAnswer":
        """Return the answer with its label sets decoded; raises one of ``DECODE_ERRORS``."""
        if self.raw is None:
            return self
        metrics = [labels for text in self.raw for labels in text.decoded()]
        return replace(self, metrics=metrics, raw=None)

    def pages(self, rows: int = PAGE_ROWS) -> "Iterator[InstantAnswer]":
        """Yield the answer in parts of at most so many rows; one that is small, as it is.

        Raises one of ``DECODE_ERRORS`` if label sets are undecoded.
        """
        if len(self.values) <= rows:
            yield self
            return
        if self.raw is None:
            for start in range(0, len(self.values), rows):
                part = slice(start, start + rows)
                yield self._part(part, self.metrics[part], None)
            return
        start = 0
        for text in self.raw:
            for piece in text.parts(rows):
                yield self._part(slice(start, start + piece.rows), (), (piece,))
                start += piece.rows

    def _part(
        self, part: slice, metrics: Sequence[dict[str, str]], raw: Sequence[LabelText] | None
    ) -> "InstantAnswer":
        values, times = self.values[part], self.times[part]
        return replace(self, metrics=metrics, raw=raw, values=values, times=times)


DECODE_ERRORS = (ValueError,)  # msgspec.DecodeError is one

_samples = JsonDecoder(list[WireSample])
_envelope = JsonDecoder(Envelope)
_data = JsonDecoder(_Data)
_point = JsonDecoder(tuple[float, str])


class VectorReader:
    """Collects an instant answer page by page."""

    def __init__(self, *, is_raw: bool = False) -> None:
        """``is_raw``: label sets are not decoded, for somebody who may know them already."""
        self._raw: list[LabelText] | None = [] if is_raw else None
        # What a page is decoded to stays in the processor's caches: of three times as large ones a
        # row takes a fifth longer, of the 80 MB that ten thousand autoscalers ask for in a round.
        self.page_bytes = 4 * PAGE_BYTES if is_raw else PAGE_BYTES
        self._digest = sha256()
        self._metrics = LabelSets()
        self._values = array("d")
        self._times = array("d")
        self._is_float_only = True

    def page(self, page: bytes) -> None:
        """Take entries; raises one of ``DECODE_ERRORS``."""
        if self._raw is not None:
            self._raw_page(self._raw, page)
            return
        for sample in _samples.decode(page):
            if sample.value is None:
                self._is_float_only = False
                continue
            self._metrics.append(sample.metric)
            self._values.append(float(sample.value[1]))
            self._times.append(sample.value[0])

    def _raw_page(self, raw: list[LabelText], page: bytes) -> None:
        found = read_raw_page(page)
        self._digest.update(found.labels.text)
        raw.append(found.labels)
        self._values.fromlist(found.values)
        self._times.extend(found.times)
        self._is_float_only = self._is_float_only and found.is_float_only

    def end(self, rest: bytes) -> InstantAnswer:
        """Return the answer; ``rest`` is the document without the entries taken so far."""
        envelope = success(rest)
        data = _data.decode(envelope.data)
        if data.result_type == "vector":
            # Go writes a list that was never made as null.
            if bytes(data.result) != b"null":
                self.page(bytes(data.result))
        elif data.result_type == "scalar":
            self._metrics.append({})
            self._raw = None
            time_s, text = _point.decode(data.result)
            self._values.append(float(text))
            self._times.append(time_s)
        # Undecoded texts prove themselves by the digest of decoded ones, and so many rows.
        self._digest.update(b"%d" % len(self._values))
        warnings = tuple(envelope.warnings or ())
        return InstantAnswer(
            data.result_type,
            self._metrics,
            self._values,
            self._times,
            self._is_float_only,
            is_partial(envelope),
            warnings,
            self._raw,
            None if self._raw is None else self._digest.digest(),
        )


def refusal(body: bytes) -> Envelope | None:
    """Return what an error answer says, or ``None`` if it is not Prometheus's JSON."""
    try:
        envelope = _envelope.decode(body)
    except DECODE_ERRORS:
        return None
    return envelope if envelope.status == "error" else None


def success(document: bytes) -> Envelope:
    """Return what an answer says; raises one of ``DECODE_ERRORS``, for a refusal, too."""
    envelope = _envelope.decode(document)
    if envelope.status != "success":
        raise ValueError(f"status {envelope.status}: {envelope.error}")
    return envelope


def is_partial(envelope: Envelope) -> bool:
    """Return whether a store behind Prometheus did not answer."""
    return envelope.is_partial or any(map(_is_partial_response, envelope.warnings or ()))


def _is_partial_response(warning: str) -> bool:
    # Prometheus 3 annotates results with "PromQL warning: ..."; every other warning (remote
    # read, Thanos stores) means that something could not be asked.
    return not warning.startswith(("PromQL warning:", "PromQL info:"))
