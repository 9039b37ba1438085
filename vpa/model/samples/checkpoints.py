"""Checkpoints of histograms, upstream's ``VerticalPodAutoscalerCheckpoint`` v3, and what survives a
restart in the middle of a memory window beside them (D5).

Weights are scaled so that the heaviest bucket is 10,000; buckets that round to 0 are dropped.

A v3 checkpoint leaves out the peak of the open window, because the container will add it
again, or a higher one, when its window closes: a restart forgets up to a day of peaks and
every OOM in it. The status stays exactly that, so that upstream can load it. Beside it, in
an annotation of the checkpoint object, stand the open windows by pod. After a restart each
peak counts as part of what the checkpoint brought; when its container is seen again, the
peak moves from there into the container's own aggregate and the window goes on, so it is
counted once; a container that never comes back leaves its peak behind for good.

The annotation holds only for the status it was written with: it repeats lastUpdateTime,
which upstream changes when it writes the status and does not touch annotations.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from podscale.core.json_decoder import JsonDecoder, JsonText, decode_json
from podscale.core.times.rfc3339 import rfc3339
from vpa.model.histograms.matrix import ZERO_TIME, Columns, HistogramMatrix
from vpa.model.samples.aggregates import Aggregates, SampleSpan, merged
from vpa.model.samples.container_rows import MEMORY_WEIGHT, Containers, OpenWindow, as_rows

VERSION = "v3"
HEAVIEST = 10_000
_INT64 = Meta(le=2**63 - 1)  # Go reads its whole numbers into no more
if TYPE_CHECKING:
    Stamp = float
else:

    class Stamp(float):
        """Unix seconds, on the wire RFC 3339, and null for the zero time."""


class CheckpointError(ValueError):
    """The checkpoint cannot be loaded; ``reason`` is a stable token, the text explains it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HistogramCheckpoint(Struct, frozen=True):
    bucket_weights: Mapping[int, Annotated[int, _INT64]] = field(name="bucketWeights", default={})
    total_weight: float = field(name="totalWeight", default=0.0)
    reference_s: Stamp = field(name="referenceTimestamp", default=ZERO_TIME)


_EMPTY = HistogramCheckpoint()


class Checkpoint(Struct, frozen=True):
    """``status`` of a checkpoint object; times are unix seconds, ZERO_TIME for null."""

    cpu: HistogramCheckpoint = field(name="cpuHistogram", default=_EMPTY)
    memory: HistogramCheckpoint = field(name="memoryHistogram", default=_EMPTY)
    first_sample_s: Stamp = field(name="firstSampleStart", default=ZERO_TIME)
    last_sample_s: Stamp = field(name="lastSampleStart", default=ZERO_TIME)
    samples: Annotated[int, Meta(ge=0), _INT64] = field(name="totalSamplesCount", default=0)
    updated_s: Stamp = field(name="lastUpdateTime", default=ZERO_TIME)
    version: str = ""


def normalised(matrix: HistogramMatrix, columns: Columns) -> NDArray[np.int64]:
    """Return the weights of a checkpoint, shape (buckets, columns): the heaviest is 10,000."""
    weights = matrix.weights[:, columns]
    rows = np.arange(matrix.layout.count)[:, None]
    inside = (rows >= matrix.lowest[columns]) & (rows <= matrix.highest[columns])
    weights = np.where(inside, weights, 0.0)
    heaviest = weights.max(axis=0, initial=0.0)
    ratio = HEAVIEST / np.where(heaviest > 0.0, heaviest, 1.0)
    rounded: NDArray[np.int64] = np.floor(weights * ratio + 0.5).astype(np.int64)
    return rounded


def save_histograms(matrix: HistogramMatrix, columns: Columns) -> list[HistogramCheckpoint]:
    """Return a checkpoint per column."""
    rounded = normalised(matrix, columns)
    saved = []
    for i, column in enumerate(columns):
        filled = np.flatnonzero(rounded[:, i])
        pairs = zip(filled.tolist(), rounded[filled, i].tolist(), strict=True)
        saved.append(
            HistogramCheckpoint(
                dict(pairs), float(matrix.total[column]), float(matrix.reference[column])
            )
        )
    return saved


def load_histogram(matrix: HistogramMatrix, column: int, saved: HistogramCheckpoint) -> None:
    """Add the samples of ``saved`` to a column; raises CheckpointError and changes nothing.

    The reference of the checkpoint replaces the column's, verbatim, as upstream does: a
    checkpoint is loaded into a fresh histogram.
    """
    check_histogram(saved, matrix.layout.count)
    weights = np.zeros((matrix.layout.count, 1))
    total = sum(saved.bucket_weights.values())
    if total:
        for bucket, weight in saved.bucket_weights.items():
            weights[bucket] = weight * (saved.total_weight / total)
    totals = np.array([saved.total_weight if total else 0.0])
    matrix.load(np.array([column]), weights, totals, np.array([saved.reference_s]))


def check_histogram(saved: HistogramCheckpoint, buckets: int) -> None:
    """Raise CheckpointError for what no histogram can have been."""
    if not 0.0 <= saved.total_weight < float("inf"):
        raise CheckpointError("negative_weight", f"totalWeight is {saved.total_weight}")
    for bucket, weight in saved.bucket_weights.items():
        if bucket < 0:
            raise CheckpointError("negative_bucket", f"bucketWeights has bucket {bucket}")
        if bucket >= buckets:
            raise CheckpointError(
                "bucket_out_of_range", f"bucketWeights has bucket {bucket}, there are {buckets}"
            )
        if weight < 0:
            raise CheckpointError("negative_weight", f"bucket {bucket} weighs {weight}")


def check_times(checkpoint: Checkpoint, latest_s: float) -> None:
    """Raise CheckpointError for times far ahead: beside such a reference every new sample
    weighs nothing, so what the checkpoint holds would stand for ever.
    """
    for time_s in (
        checkpoint.cpu.reference_s,
        checkpoint.memory.reference_s,
        checkpoint.first_sample_s,
        checkpoint.last_sample_s,
    ):
        if time_s > latest_s:
            raise CheckpointError("future", f"a time in it is {wire_time(time_s)}, far ahead")


def to_wire(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return ``status`` as JSON, with upstream's field names."""
    return {
        "lastUpdateTime": wire_time(checkpoint.updated_s),
        "version": VERSION,
        "cpuHistogram": _histogram(checkpoint.cpu),
        "memoryHistogram": _histogram(checkpoint.memory),
        "firstSampleStart": wire_time(checkpoint.first_sample_s),
        "lastSampleStart": wire_time(checkpoint.last_sample_s),
        "totalSamplesCount": checkpoint.samples,
    }


def from_wire(status: JsonText) -> Checkpoint:
    """Return the checkpoint that ``status`` writes; raises CheckpointError."""
    try:
        checkpoint = _DECODER.decode(status)
    except msgspec.DecodeError as error:
        raise CheckpointError("malformed", str(error)) from error
    if checkpoint.version != VERSION:
        raise CheckpointError("version", f"version is {checkpoint.version!r}, not {VERSION!r}")
    return checkpoint


def _histogram(saved: HistogramCheckpoint) -> dict[str, Any]:
    # An empty one stands there as upstream's omitempty leaves it: its reference alone.
    wire: dict[str, Any] = {"referenceTimestamp": wire_time(saved.reference_s)}
    if saved.bucket_weights:
        wire["bucketWeights"] = {str(each): weight for each, weight in saved.bucket_weights.items()}
    if saved.total_weight:
        wire["totalWeight"] = saved.total_weight
    return wire


@lru_cache(maxsize=4096)
def wire_time(seconds: float) -> str | None:
    """Return a time as it is written; a pass writes the same few thousands of times."""
    if seconds == ZERO_TIME:
        return None
    # metav1.Time has no fractions: what it cannot say is cut off, as Go's formatting does.
    return rfc3339(seconds)


def _from_wire(_: type, text: object) -> Stamp:
    if text is None:
        return Stamp(ZERO_TIME)
    time = datetime.fromisoformat(str(text))
    return Stamp((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


_DECODER = JsonDecoder(Checkpoint, dec_hook=_from_wire)


ANNOTATION = "vpa.podscale.io/open-windows"
# 256 KB is what all annotations of an object may take; 60 bytes a window leave room.
MAX_WINDOWS = 2000


class SavedSpan(Struct, frozen=True):
    """Memory samples of a state that has no CPU samples to count by."""

    first_s: float
    last_s: float
    samples: float


class Extra(Struct, frozen=True):
    """Content of the annotation."""

    at: str  # lastUpdateTime of the status that it belongs to
    windows: tuple[OpenWindow, ...] = ()
    memory: SavedSpan | None = None


def save(
    aggregates: Aggregates,
    groups: Sequence[Columns],
    containers: Containers,
    members: Sequence[Mapping[str, int]],
    now: float,
) -> list[tuple[Checkpoint, str | None]]:
    """Return a checkpoint per group, and its annotation; None if there is nothing to keep in it.

    ``members`` are the rows of the containers that feed each group, by pod.
    """
    sums = merged(aggregates, groups)
    pairs = [(group, row) for group, rows in enumerate(members) for row in rows.values()]
    groups_of, rows = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    is_open = containers.window_end[rows] > now
    taken = rows[is_open]
    if taken.size:
        peaks, ends = containers.peak(taken), containers.window_end[taken]
        sums.memory.subtract(groups_of[is_open], peaks, MEMORY_WEIGHT, ends)
    everything = np.arange(len(groups))
    cpu = save_histograms(sums.cpu, everything)
    memory = save_histograms(sums.memory, everything)
    first = np.where(np.isfinite(sums.cpu_span.first), sums.cpu_span.first, ZERO_TIME)
    saved = []
    for i, group in enumerate(groups):
        span = sums.cpu_span
        samples = round(float(span.samples[i]))
        status = Checkpoint(cpu[i], memory[i], float(first[i]), float(span.last[i]), samples, now)
        text = _annotation(containers, members[i], aggregates.memory_span, group, now)
        saved.append((status, text))
    return saved


def _annotation(
    containers: Containers, rows: Mapping[str, int], span: SampleSpan, columns: Columns, now: float
) -> str | None:
    # Of too many windows the highest peaks are kept.
    found = [containers.window(row, pod) for pod, row in rows.items()]
    windows = [window for window in found if window is not None and window.end_s > now]
    windows.sort(key=lambda window: -window.peak)
    samples = float(span.samples[columns].sum())
    memory = None
    if samples:
        first = float(span.first[columns].min())
        memory = SavedSpan(first, float(span.last[columns].max()), samples)
    if not windows and memory is None:
        return None
    extra = Extra(str(wire_time(now)), tuple(windows[:MAX_WINDOWS]), memory)
    return msgspec.json.encode(extra).decode()


def decode_extra(text: str | None, last_update: str | None) -> Extra | None:
    """Return the annotation's content; None if there is none that belongs to the status."""
    if text is None:
        return None
    try:
        extra = decode_json(text, Extra)
    except msgspec.DecodeError:
        return None
    return extra if extra.at == last_update else None


def load(
    aggregates: Aggregates,
    column: int,
    checkpoint: Checkpoint,
    extra: Extra | None,
    latest_s: float = math.inf,
) -> dict[str, OpenWindow]:
    """Fill an empty column from a checkpoint; raises CheckpointError and changes nothing.

    Returns the open windows by pod, whose peaks are in the column until ``resume``. Those
    that end after ``latest_s`` are left out.
    """
    columns = as_rows(column)
    try:
        load_histogram(aggregates.memory, column, checkpoint.memory)
        load_histogram(aggregates.cpu, column, checkpoint.cpu)
    except ValueError:
        aggregates.memory.clear(columns)
        aggregates.cpu.clear(columns)
        raise
    if checkpoint.samples:
        first_s, last_s = checkpoint.first_sample_s, checkpoint.last_sample_s
        _fill(aggregates.cpu_span, column, first_s, last_s, float(checkpoint.samples))
    if extra is None:
        return {}
    if extra.memory is not None:
        saved = extra.memory
        _fill(aggregates.memory_span, column, saved.first_s, saved.last_s, saved.samples)
    windows = [window for window in extra.windows if window.end_s <= latest_s]
    for window in windows:
        peak, end = np.array([float(window.peak)]), np.array([window.end_s])
        aggregates.memory.add(columns, peak, MEMORY_WEIGHT, end)
    return {window.pod: window for window in windows}


def resume(
    aggregates: Aggregates, column: int, containers: Containers, row: int, window: OpenWindow
) -> None:
    """Give a container its window back: its peak moves from ``column`` to its aggregate."""
    peak, end = np.array([float(window.peak)]), np.array([window.end_s])
    aggregates.memory.subtract(np.array([column]), peak, MEMORY_WEIGHT, end)
    own = containers.column[row : row + 1]
    aggregates.memory.add(own, peak, MEMORY_WEIGHT, end)
    containers.resume(row, window)


def _fill(span: SampleSpan, column: int, first: float, last: float, samples: float) -> None:
    span.first[column] = first
    span.last[column] = last
    span.samples[column] = samples
