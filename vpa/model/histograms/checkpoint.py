"""Checkpoints of histograms, upstream's ``VerticalPodAutoscalerCheckpoint`` v3.

Weights are scaled so that the heaviest bucket is 10,000; buckets that round to 0 are
dropped. What v3 has no place for (open memory windows) is in ``windows``.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from podscale.core.json_decoder import JsonDecoder, JsonText
from podscale.core.times.rfc3339 import rfc3339
from vpa.model.histograms.matrix import ZERO_TIME, Columns, HistogramMatrix

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
