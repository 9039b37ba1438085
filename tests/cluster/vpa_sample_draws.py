"""Random histories for the recommender's kinds of vpa.yaml, drawn towards the borders.

Time is carried along: a sample comes after, at or shortly before the one that went before
it, a window or a hundred half-lives later; a value lies at the edge of a bucket or beside it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

from vpa.model.histograms import buckets

Json = Any
Draw = Callable[[Random], dict[str, Json]]

START = 1_772_409_600  # 2026-03-02T00:00:00Z
DAY = 86_400
CONTAINERS = ("app", "side", "proxy")
_MIB = 2**20
_FRACTIONS = (0.0, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.98, 0.99, 1.0)


def text(time_s: float) -> str:
    """Return a time as API objects have it."""
    return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")


def _step(random: Random, period: int) -> int:
    return random.choice(
        (0, 0, 1, -1, 15, 60, 60, 60, 3600, -3600, period // 2, period - 1, period, period + 1)
        + (period * 5 // 2, -period, -period - 1, -period + 1)
        + (
            (period * 99, period * 100, period * 101, period * 300)
            if not random.randrange(8)
            else ()
        )
    )


def milli_cores(random: Random) -> int:
    """Return usage of CPU."""
    edge = round(random.choice(buckets.CPU.starts) * 1000)
    return random.choice(
        (0, 1, 9, 10, 11, 100, 250, 1000, edge, edge + 1, max(edge - 1, 0), 2 * 10**6)
    )


def some_bytes(random: Random) -> int:
    """Return usage of memory, never 0."""
    edge = round(random.choice(buckets.MEMORY.starts[1:]))
    return random.choice(
        (
            1,
            10**7 - 1,
            10**7,
            10**7 + 1,
            500 * _MIB,
            500 * _MIB + 1,
            2**30,
            edge,
            edge + 1,
            max(edge - 1, 1),
            10**12,
            3 * 10**12,
            random.randrange(1, 2**36),
        )
    )


def container_samples(random: Random) -> dict[str, Json]:
    """Draw the life of one container: usage, OOMs, now and then a checkpoint."""
    inputs: dict[str, Json] = {}
    period = DAY
    if random.random() < 0.4:
        period = random.choice((1, 60, 3600, 3601, 604_800))
        inputs["memory_aggregation_interval_s"] = period
    if random.random() < 0.4:
        inputs["oom_bump_up_ratio"] = random.choice((1.0, 1.05, 1.2, 1.5, 2.0, 1.0001))
    if random.random() < 0.4:
        inputs["oom_min_bump_up_bytes"] = random.choice((0.0, 1.0, 1e6, 100.0 * _MIB, 0.5))
    now, used, ops = START + random.choice((0, 1, 61_200, 86_399)), some_bytes(random), []
    for _ in range(random.choice((1, 2, 3, 8, 20, 60))):
        now = max(now + _step(random, period), START - DAY)
        match random.choice(("cpu", "memory", "memory", "memory", "oom")):
            case "cpu":
                value = milli_cores(random) if random.random() < 0.97 else -1
                ops.append({"op": "cpu", "v": value, "t": text(now)})
            case "memory":
                used = random.choice((used, used, used + 1, max(used - 1, 1), some_bytes(random)))
                value = random.choice((0, -1)) if random.random() < 0.02 else used
                ops.append({"op": "memory", "v": value, "t": text(now)})
            case "oom":
                edges = (0, used, used + 1, used // 2, used * 6 // 5)
                value = random.choice((*edges, some_bytes(random)))
                ops.append({"op": "oom", "v": value, "t": text(now)})
    if random.random() < 0.5:
        inputs["checkpoint_at"] = text(
            now + random.choice((0, 1, period - 1, period, -1, 9 * period))
        )
    return {**inputs, "ops": ops}


def _hides_its_window(inputs: Json) -> bool:
    """Whether a memory peak is 0, after which upstream hides the rest of the window."""
    least = inputs.get("oom_min_bump_up_bytes", 1.0)
    return any(
        op["v"] == 0 and (op["op"] == "memory" or (op["op"] == "oom" and least < 1.0))
        for op in inputs["ops"]
    )


def _layout(random: Random) -> dict[str, Json]:
    return random.choice(
        (
            {"type": "linear", "max": 10.0, "bucket_size": 1.0, "epsilon": 0.001},
            {"type": "linear", "max": 1.0, "bucket_size": 0.1, "epsilon": 1e-15},
            {
                "type": "exponential",
                "max": 1000.0,
                "first_bucket": 0.01,
                "ratio": 1.05,
                "epsilon": 1e-4,
            },
            {
                "type": "exponential",
                "max": 1000.0,
                "first_bucket": 0.01,
                "ratio": 1.05,
                "epsilon": 1e-4,
            },
            {
                "type": "exponential",
                "max": 1e12,
                "first_bucket": 1e7,
                "ratio": 1.05,
                "epsilon": 1e-4,
            },
        )
    )


def _value(random: Random, options: Json) -> float:
    if options["type"] == "linear":
        size, most = options["bucket_size"], options["max"]
        return float(random.choice((0.0, size, 3 * size, most, most - size, 2 * most, size / 2)))
    if options["max"] == 1000.0:
        return milli_cores(random) / 1000.0
    return float(some_bytes(random))


def _saved(random: Random, count: int, reference: float | None) -> dict[str, Json]:
    filled = random.sample(range(count), random.randrange(min(count, 6)))
    saved: dict[str, Json] = {
        "bucket_weights": {
            str(bucket): random.choice((0, 1, 1, 2, 5000, 9999, 10_000)) for bucket in filled
        },
        "total_weight": random.choice((0.0, 1e-5, 0.1, 1.0, 255.0, 0.30000000000000004, 1e20)),
    }
    if reference is not None:
        saved["reference_timestamp"] = text(reference)
    return saved


def _counted(options: Json) -> int:
    return 176 if options["type"] == "exponential" else 11


def _operations(
    random: Random, options: Json, half_life: int | None, now: float, depth: int = 0
) -> list[Json]:
    ops: list[Json] = []
    added: list[Json] = []
    pool = [_value(random, options) for _ in range(random.choice((1, 2, 5, 9)))]
    for _ in range(random.choice((0, 1, 2, 4, 12, 40))):
        if half_life is not None:
            now = max(now + _step(random, half_life), START - 30 * DAY)
        kind = random.choice(("add",) * 8 + ("subtract",) * 2 + ("merge", "load", "save_and_load"))
        if kind == "subtract" and added:
            # What is taken back was added before, at its own time.
            ops.append({**added.pop(random.randrange(len(added))), "op": "subtract"})
        elif kind == "merge" and depth < 2:
            at = now + random.choice((0, 1, -1, 7, -7)) * (half_life or 0)
            other = _operations(random, options, half_life, at, depth + 1)
            ops.append({"op": "merge", "ops": other})
        elif kind == "load" and not ops:
            reference = None
            if half_life is not None and random.random() < 0.9:
                # Rounded to the half-life that was set when it was written.
                pace = half_life if random.random() < 0.7 else random.choice((3600, DAY, 2 * DAY))
                reference = now // pace * pace
            ops.append({"op": "load", "checkpoint": _saved(random, _counted(options), reference)})
        elif kind == "save_and_load":
            ops.append({"op": "save_and_load"})
        else:
            op = {"op": "add", "v": random.choice(pool), "w": random.choice((0.1, 1.0, 0.1, 2.5))}
            if half_life is not None:
                op["t"] = text(now)
            ops.append(op)
            added.append(op)
    return ops


def histogram(random: Random) -> dict[str, Json]:
    """Draw a histogram's samples, merges, and passages through checkpoints."""
    options = _layout(random)
    half_life = random.choice((None, 3600, DAY, DAY, DAY, 2 * DAY, 5 * 3600, 604_800))
    if options["type"] == "linear" and options["epsilon"] < 1e-9:
        half_life = None
    return {
        "options": options,
        "half_life_s": half_life,
        "ops": _operations(random, options, half_life, START + random.choice((0, 1, 43_200))),
        "percentiles": [*_FRACTIONS, random.random()],
    }


def _series(random: Random, resource: str) -> dict[str, Json]:
    draw = milli_cores if resource == "cpu" else some_bytes
    values = [draw(random) for _ in range(random.choice((1, 1, 2, 5, 12)))]
    return {
        "resource": resource,
        "start": text(START + random.choice((0, 0, 1, 60, 61_200, DAY))),
        "step_s": random.choice((1, 15, 60, 60, 3600, DAY)),
        "values": values,
        "repeat": random.choice((1, 1, 1, 2, 6)),
    }


def _used(random: Random, name: str) -> dict[str, Json]:
    container: dict[str, Json] = {
        "name": name,
        "series": [
            _series(random, resource)
            for resource in ("cpu", "memory", "cpu", "memory")[: random.choice((2, 2, 3, 4))]
        ],
    }
    if random.random() < 0.05:
        container["series"] = random.choice(([], container["series"][:1], container["series"][1:2]))
    if random.random() < 0.3:
        container["ooms"] = [
            {
                "t": text(START + random.choice((0, 60, 3600, DAY, 3 * DAY, -2 * DAY))),
                "requested_memory_bytes": random.choice((0, some_bytes(random))),
            }
            for _ in range(random.choice((1, 1, 2, 5)))
        ]
    if random.random() < 0.2:
        container["controlled_resources"] = random.choice(
            ([], ["cpu"], ["memory"], ["cpu", "memory"], ["memory", "cpu"])
        )
    return container


def recommendation(random: Random) -> dict[str, Json]:
    """Draw what the containers of a VPA have used, and the recommender's flags."""
    names = random.sample(CONTAINERS, random.choice((1, 1, 2, 3)))
    inputs: dict[str, Json] = {"containers": [_used(random, name) for name in names]}
    config: dict[str, Json] = {
        name: random.choice(values)
        for name, values in {
            "safety_margin_fraction": (0.0, 0.15, 0.1, 1.0, 0.333),
            "target_cpu_percentile": (0.0, 0.5, 0.9, 0.99, 1.0),
            "target_memory_percentile": (0.0, 0.5, 0.9, 0.99, 1.0),
            "lower_bound_cpu_percentile": (0.0, 0.1, 0.5),
            "lower_bound_memory_percentile": (0.0, 0.1, 0.5),
            "upper_bound_cpu_percentile": (0.95, 0.99, 1.0),
            "upper_bound_memory_percentile": (0.95, 0.99, 1.0),
            "pod_min_cpu_millicores": (0, 1, 10, 25, 2.5, 1000),
            "pod_min_memory_mb": (0, 1, 250, 0.5, 1000),
        }.items()
        if random.random() < 0.2
    }
    if random.random() < 0.2:
        interval = random.choice((60, 3600, 86_400, 604_800))
        config |= {f"confidence_interval_{name}_s": interval for name in ("cpu", "memory")}
    if config:
        inputs["config"] = config
    if random.random() < 0.2:
        inputs["round_cpu_millicores"] = random.choice((1, 2, 3, 50, 1000))
    if random.random() < 0.2:
        inputs["round_memory_bytes"] = random.choice((1, 1024, _MIB, 3, 10**6))
    if random.random() < 0.1:
        inputs["humanize_memory"] = True
    return inputs


def _is_unmeasured(inputs: Json) -> bool:
    """Whether a container lacks samples of a resource."""
    return any(
        {"cpu", "memory"} != {each["resource"] for each in container["series"]}
        for container in inputs["containers"]
    )


DRAWS: Mapping[str, Draw] = {
    "container_samples": container_samples,
    "histogram": histogram,
    "recommendation": recommendation,
}

DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "container_samples": {"D8": _hides_its_window},
    "recommendation": {
        "D6, D7": _is_unmeasured,
        "D12": lambda inputs: inputs.get("humanize_memory", False),
    },
}
