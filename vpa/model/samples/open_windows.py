"""Checkpoints that survive a restart in the middle of a memory window (D5).

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

import msgspec
import numpy as np
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from vpa.model.histograms.checkpoint import Checkpoint, load_histogram, save_histograms, wire_time
from vpa.model.histograms.matrix import ZERO_TIME, Columns
from vpa.model.samples.aggregates import Aggregates, SampleSpan, merged
from vpa.model.samples.container_rows import MEMORY_WEIGHT, Containers, OpenWindow, as_rows

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


def decode(text: str | None, last_update: str | None) -> Extra | None:
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
