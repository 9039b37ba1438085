"""The cases of histograms, samples and checkpoints."""

import numpy as np

from tests.conformance.vpa_shared import Json, seconds, stamp
from tests.kit.histogram import Histogram, linear
from vpa.model.amounts import Windows
from vpa.model.estimation.annotations import HalfLives
from vpa.model.estimation.recommendation import RecommenderSettings, ResourceUsage
from vpa.model.histograms import buckets
from vpa.model.histograms.matrix import Columns, Floats, HistogramMatrix
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.checkpoints import Checkpoint, CheckpointError, HistogramCheckpoint, save
from vpa.model.samples.container_rows import Containers

REASONS = frozenset(
    ("negative_weight", "negative_bucket", "bucket_out_of_range", "future", "malformed", "version")
)


def layout(options: dict[str, Json]) -> buckets.BucketLayout:
    if options["type"] == "linear":
        return linear(
            width=options["bucket_size"], maximum=options["max"], epsilon=options["epsilon"]
        )
    return buckets.exponential(
        first=options["first_bucket"],
        ratio=options["ratio"],
        maximum=options["max"],
        epsilon=options["epsilon"],
    )


def histogram_options(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    try:
        made = layout(i["options"])
    except buckets.LayoutError:
        return {"error": "invalid_options"}
    values = [entry["value"] for entry in e["find_bucket"] or []]
    found = made.find(np.array(values, dtype=np.float64)).tolist() if values else []
    return {
        "num_buckets": made.count,
        "find_bucket": [
            {"value": value, "bucket": bucket} for value, bucket in zip(values, found, strict=True)
        ],
        "bucket_start": [
            {"bucket": entry["bucket"], "start": float(made.starts[entry["bucket"]])}
            for entry in e["bucket_start"] or []
        ],
    }


def _built(i: dict[str, Json], ops: list[dict[str, Json]]) -> Histogram:
    made, half_life = layout(i["options"]), i["half_life_s"]
    built = Histogram.alone(made, half_life)
    for op in ops:
        at = seconds(op.get("t"))
        if op["op"] == "add":
            built.add(op["v"], op["w"], at)
        elif op["op"] == "subtract":
            built.subtract(op["v"], op["w"], at)
        elif op["op"] == "merge":
            built.merge(_built(i, op["ops"]))
        elif op["op"] == "load":
            built.load(_saved(op["checkpoint"]))
        else:
            saved = built.save()
            built = Histogram.alone(made, half_life)
            built.load(saved)
    return built


def _saved(checkpoint: dict[str, Json] | None) -> HistogramCheckpoint:
    if checkpoint is None:  # of which nothing can be loaded: upstream's nil
        raise CheckpointError("malformed", "there is no checkpoint")
    written = checkpoint.get("bucket_weights") or {}
    weights = {int(bucket): weight for bucket, weight in written.items()}
    return HistogramCheckpoint(
        weights,
        checkpoint.get("total_weight") or 0.0,
        seconds(checkpoint.get("reference_timestamp")),
    )


def _shown(saved: HistogramCheckpoint) -> dict[str, Json]:
    return {
        "bucket_weights": dict(saved.bucket_weights),
        "total_weight": saved.total_weight,
        "reference_timestamp": stamp(saved.reference_s),
    }


def shown_checkpoint(saved: Checkpoint) -> dict[str, Json]:
    """Return a checkpoint in the words of the cases."""
    return {
        "cpuHistogram": _shown(saved.cpu),
        "memoryHistogram": _shown(saved.memory),
        "firstSampleStart": stamp(saved.first_sample_s),
        "lastSampleStart": stamp(saved.last_sample_s),
        "totalSamplesCount": saved.samples,
        "version": "v3",
    }


def histogram(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    try:
        built = _built(i, i["ops"])
    except CheckpointError as error:
        # The names of errors are the file's own; of those not seen here, that there is one.
        token = e["error"]
        return {"error": token if token not in (None, *REASONS) else error.reason}
    return {
        "checkpoint": _shown(built.save()),
        "is_empty": built.is_empty,
        "percentiles": _percentiles(built, e["percentiles"] or []),
    }


def _percentiles(built: Histogram, asked: list[dict[str, Json]]) -> list[dict[str, Json]]:
    return [{"p": entry["p"], "value": built.percentile(entry["p"])} for entry in asked]


class Recorded:
    """Histograms that note every call before they carry it out."""

    def __init__(self, name: str, matrix: HistogramMatrix, calls: list[Json]) -> None:
        self.name, self.matrix, self.calls = name, matrix, calls

    def add(self, columns: Columns, values: Floats, weights: float, times: Floats) -> None:
        self._note("add", values, weights, times)
        self.matrix.add(columns, values, weights, times)

    def subtract(self, columns: Columns, values: Floats, weights: float, times: Floats) -> None:
        self._note("subtract", values, weights, times)
        self.matrix.subtract(columns, values, weights, times)

    def _note(self, call: str, values: Floats, weights: float, times: Floats) -> None:
        for value, at in zip(values.tolist(), times.tolist(), strict=True):
            self.calls.append(
                {"call": call, "histogram": self.name, "t": at, "v": value, "w": weights}
            )


class Sampled:
    """One container on the default model, fed sample by sample."""

    def __init__(
        self,
        windows: Windows = Windows(),  # noqa: B008 - frozen
        half_lives: HalfLives = HalfLives(),  # noqa: B008 - frozen
    ) -> None:
        self.windows = windows
        self.aggregates = Aggregates(half_lives.cpu_s, half_lives.memory_s, capacity=1)
        self.columns = self.aggregates.open(1, 0.0, windows)
        self.containers = Containers(capacity=1)
        self.row = self.containers.open(int(self.columns[0]), windows)
        self.calls: list[Json] = []
        self.cpu = Recorded("cpu", self.aggregates.cpu, self.calls)
        self.memory = Recorded("memory", self.aggregates.memory, self.calls)

    @property
    def rows(self) -> Columns:
        return np.array([self.row], dtype=np.intp)

    def feed(self, resource: str, value: float, at: float) -> bool:
        """Take one sample, milli-cores or bytes, or an OOM with its requested bytes."""
        times = np.array([at])
        if resource == "cpu":
            cores = np.array([value / 1000.0])
            taken = bool(self.containers.add_cpu(self.cpu, self.rows, cores, times)[0])
            if taken:
                self.aggregates.cpu_span.add(self.columns, times, 1.0)
            return taken
        if resource == "memory":
            used = np.array([float(value)])
            taken = bool(self.containers.add_memory(self.memory, self.rows, used, times)[0])
        else:
            taken = (
                self.containers.add_oom(self.memory, self.row, int(value), at, self.windows)
                is not None
            )
        if taken:
            self.aggregates.memory_span.add(self.columns, times, 1.0)
        return taken

    def percentiles(self, resource: str, asked: list[dict[str, Json]]) -> list[Json]:
        matrix = self.aggregates.cpu if resource == "cpu" else self.aggregates.memory
        return _percentiles(Histogram(matrix, int(self.columns[0])), asked)

    def checkpoint(self, now: float) -> Checkpoint:
        members = [{"pod": self.row}]
        ((saved, _),) = save(self.aggregates, [self.columns], self.containers, members, now)
        return saved

    def usage(self, settings: RecommenderSettings) -> dict[str, ResourceUsage]:
        """Return what the recommender reads of this container."""
        return self.aggregates.usage(self.columns, settings)[0]


def container_samples(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    windows = Windows(
        interval_s=float(i.get("memory_aggregation_interval_s", 86400)),
        oom_ratio=i.get("oom_bump_up_ratio", 1.2),
        oom_min_bytes=i.get("oom_min_bump_up_bytes", 100 * 2**20),
    )
    sampled = Sampled(windows)
    accepted = [sampled.feed(op["op"], op["v"], seconds(op["t"])) for op in i["ops"]]
    window = sampled.containers.window(sampled.row, "pod")
    span = sampled.aggregates.cpu_span
    result = {
        "accepted": accepted,
        "histogram_calls": sampled.calls,
        "cpu_percentiles": sampled.percentiles("cpu", e["cpu_percentiles"] or []),
        "memory_percentiles": sampled.percentiles("memory", e["memory_percentiles"] or []),
        "total_samples_count": int(span.samples[0]),
        "first_sample_start": stamp(float(span.first[0])),
        "last_sample_start": stamp(float(span.last[0])),
        "max_memory_peak": window.peak if window is not None else 0,
        "window_end": stamp(window.end_s) if window is not None else None,
    }
    if "checkpoint_at" in i:
        saved = sampled.checkpoint(seconds(i["checkpoint_at"]))
        result["checkpoint"] = shown_checkpoint(saved)
    return result
