"""Checkpoints of histograms, upstream's ``VerticalPodAutoscalerCheckpoint`` v3.

Weights are scaled so that the heaviest bucket is 10,000; buckets that round to 0 are
dropped. What v3 has no place for (open memory windows) is in ``windows``.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.times.rfc3339 import rfc3339
from vpa.model.histograms.matrix import ZERO_TIME, Columns, HistogramMatrix

VERSION = "v3"
HEAVIEST = 10_000
_MOST = 2**63 - 1  # Go reads its whole numbers into no more


class CheckpointError(ValueError):
    """The checkpoint cannot be loaded; ``reason`` is a stable token, the text explains it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HistogramCheckpoint(Struct, frozen=True):
    bucket_weights: Mapping[int, int]
    total_weight: float
    reference_s: float = ZERO_TIME  # unix seconds; the zero time is null on the wire


class Checkpoint(Struct, frozen=True):
    """``status`` of a checkpoint object; times are unix seconds, ZERO_TIME for null."""

    cpu: HistogramCheckpoint
    memory: HistogramCheckpoint
    first_sample_s: float
    last_sample_s: float
    samples: int
    updated_s: float = ZERO_TIME


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
    matrix.load(
        np.array([column], dtype=np.intp),
        weights,
        np.array([saved.total_weight if total else 0.0]),
        np.array([saved.reference_s]),
    )


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


def from_wire(status: object) -> Checkpoint:
    """Return the checkpoint that ``status`` writes; raises CheckpointError."""
    if not isinstance(status, Mapping):
        raise CheckpointError("malformed", "status is not an object")
    if status.get("version") != VERSION:
        raise CheckpointError("version", f"version is {status.get('version')!r}, not {VERSION!r}")
    samples = status.get("totalSamplesCount") or 0
    if not isinstance(samples, int) or not 0 <= samples <= _MOST:
        raise CheckpointError("malformed", f"totalSamplesCount is {samples!r}")
    return Checkpoint(
        cpu=_parsed(status.get("cpuHistogram")),
        memory=_parsed(status.get("memoryHistogram")),
        first_sample_s=_seconds(status.get("firstSampleStart"), "firstSampleStart"),
        last_sample_s=_seconds(status.get("lastSampleStart"), "lastSampleStart"),
        samples=samples,
        updated_s=_seconds(status.get("lastUpdateTime"), "lastUpdateTime"),
    )


def _histogram(saved: HistogramCheckpoint) -> dict[str, Any]:
    # An empty one stands there as upstream's omitempty leaves it: its reference alone.
    wire: dict[str, Any] = {"referenceTimestamp": wire_time(saved.reference_s)}
    if saved.bucket_weights:
        wire["bucketWeights"] = {str(each): weight for each, weight in saved.bucket_weights.items()}
    if saved.total_weight:
        wire["totalWeight"] = saved.total_weight
    return wire


def _parsed(histogram: object) -> HistogramCheckpoint:
    histogram = {} if histogram is None else histogram
    if not isinstance(histogram, Mapping):
        raise CheckpointError("malformed", "a histogram is not an object")
    buckets = histogram.get("bucketWeights") or {}
    total = histogram.get("totalWeight") or 0.0
    if not isinstance(buckets, Mapping) or not isinstance(total, int | float):
        raise CheckpointError("malformed", "bucketWeights or totalWeight has the wrong type")
    try:
        weights = {int(bucket): _whole(weight) for bucket, weight in buckets.items()}
        total = float(total)
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError("malformed", f"bucketWeights or totalWeight: {error}") from error
    return HistogramCheckpoint(
        weights, total, _seconds(histogram.get("referenceTimestamp"), "referenceTimestamp")
    )


def _whole(weight: object) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int) or abs(weight) > _MOST:
        raise TypeError("a weight is not a whole number of 64 bits")
    return weight


@lru_cache(maxsize=4096)
def wire_time(seconds: float) -> str | None:
    """Return a time as it is written; a pass writes the same few thousands of times."""
    if seconds == ZERO_TIME:
        return None
    # metav1.Time has no fractions: what it cannot say is cut off, as Go's formatting does.
    return rfc3339(seconds)


def _seconds(text: object, field: str) -> float:
    if text is None:
        return ZERO_TIME
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise CheckpointError("malformed", f"{field} is {text!r}") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
