"""Random series and random queries over them, from one seed: for two servers to agree on."""

import math
import random
from collections.abc import Sequence

from msgspec import Struct

BEGIN_S = 1_700_000_000
LENGTH_S = 1_800


class Series(Struct, frozen=True):
    """One series and its samples, oldest first."""

    name: str
    labels: dict[str, str]
    samples: list[tuple[int, float]]  # unix milliseconds


class Question(Struct, frozen=True):
    """One request to both servers."""

    query: str
    start_s: float
    end_s: float | None = None  # None: an instant query
    step_s: float = 0.0


def series(chance: random.Random) -> list[Series]:
    """Return counters, gauges and histograms with gaps, resets and odd numbers."""
    found = []
    for namespace in ("a", "b"):
        for pod in range(chance.randint(1, 4)):
            labels = {"namespace": namespace, "pod": f"p{pod}", "tier": chance.choice(["x", "y"])}
            if chance.random() < 0.3:
                del labels["tier"]
            found += [
                Series(name, labels, _counter(chance))
                for name in ("requests_total", "errors_total")
            ]
            found += [
                Series("temp", {**labels, "container": container}, _gauge(chance))
                for container in ("app", "side")[: chance.randint(1, 2)]
            ]
            found.append(Series("limit", labels, _gauge(chance)))
            found += _histogram(chance, labels)
    found.append(Series("info", {"namespace": "a", "team": "red"}, _constant(chance, 1.0)))
    found.append(Series("info", {"namespace": "b", "team": "blue"}, _constant(chance, 1.0)))
    return found


def openmetrics(found: Sequence[Series]) -> str:
    """Return what promtool makes blocks of."""
    lines = []
    for each in found:
        labels = ",".join(f'{name}="{value}"' for name, value in each.labels.items())
        lines += [
            f"{each.name}{{{labels}}} {_text(value)} {time / 1000:.3f}"
            for time, value in each.samples
        ]
    return "\n".join([*lines, "# EOF\n"])


def question(chance: random.Random) -> Question:
    """Return a random query at a random time, every fourth over a range."""
    # Mostly where all series are; sometimes before the first and after the last sample.
    within = (-60, LENGTH_S + 400) if chance.random() < 0.2 else (300, LENGTH_S)
    start = BEGIN_S + round(chance.uniform(*within), chance.choice([0, 3]))
    query = _vector(chance, chance.choice([1, 2, 2, 3]))
    if chance.random() < 0.25:
        step = chance.choice([7, 15, 60, 0.5])
        return Question(query, start, start + step * chance.randint(0, 12), step)
    return Question(query, start)


def _text(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value).replace("nan", "NaN"))


def _times(chance: random.Random) -> list[int]:
    interval = chance.choice([5_000, 15_000, 30_000])
    phase, now = chance.randrange(interval), 0
    first = chance.choice([0, 0, 600_000])
    last = chance.choice([LENGTH_S * 1000, LENGTH_S * 1000, 1_200_000])
    found = []
    now = first + phase
    while now < last:
        found.append(BEGIN_S * 1000 + now + chance.choice([0, 0, 1, 3]))
        now += interval
        if chance.random() < 0.01:
            now += chance.choice([2, 10, 30]) * interval  # a gap, sometimes beyond the lookback
    return found


def _counter(chance: random.Random) -> list[tuple[int, float]]:
    value, found = chance.choice([0.0, chance.uniform(0, 1e6)]), []
    for time in _times(chance):
        value += chance.choice([0, 1, chance.uniform(0, 50)])
        if chance.random() < 0.02:
            value = chance.uniform(0, 3)
        found.append((time, value))
    return found


def _gauge(chance: random.Random) -> list[tuple[int, float]]:
    middle, is_odd = chance.uniform(-100, 1000), chance.random() < 0.1
    found = []
    for time in _times(chance):
        value = middle + chance.gauss(0, 30)
        if is_odd and chance.random() < 0.05:
            value = chance.choice([math.nan, math.inf, -math.inf, 0.0])
        found.append((time, value))
    return found


def _constant(chance: random.Random, value: float) -> list[tuple[int, float]]:
    return [((BEGIN_S + at) * 1000, value) for at in range(0, LENGTH_S, 15)]


def _histogram(chance: random.Random, labels: dict[str, str]) -> list[Series]:
    bounds = ["0.1", "0.5", "1", "2.5", "+Inf"]
    times, totals = _times(chance), [0.0] * len(bounds)
    samples: list[list[tuple[int, float]]] = [[] for _ in bounds]
    for time in times:
        count = 0.0
        for place in range(len(bounds)):
            count += chance.choice([0, 0, 1, 4])
            totals[place] += count
            samples[place].append((time, totals[place]))
    return [
        Series("latency_bucket", {**labels, "le": bound}, found)
        for bound, found in zip(bounds, samples, strict=True)
        if found
    ]


_WINDOWED = (
    "rate", "rate", "rate", "increase", "delta", "avg_over_time", "sum_over_time",
    "count_over_time", "min_over_time", "max_over_time", "last_over_time", "present_over_time",
)  # fmt: skip
_EACH = ("abs", "ceil", "floor", "sqrt")
_INTO_ONE = ("sum", "sum", "avg", "min", "max", "count", "group")
_METRICS = (
    "requests_total", "requests_total", "errors_total", "temp", "temp", "limit", "limit",
    "latency_bucket", "info", "none",
)  # fmt: skip
_MATCHERS = (
    'namespace="a"', 'namespace!="a"', 'pod=~"p[01]"', 'pod!~"p.|q"', 'tier=""', 'tier!=""',
    'tier=~"x|"', 'container="app"', 'container=~".+"', 'le="1"', 'le!="+Inf"',
)  # fmt: skip
_LABELS = ("namespace", "pod", "tier", "container", "le", "nothing")


def _selector(chance: random.Random, name: str = "", window: str = "") -> str:
    name = name or chance.choice(_METRICS)
    matchers = chance.sample(_MATCHERS, chance.choice([0, 0, 0, 1, 1, 2]))
    text = name + (f"{{{','.join(matchers)}}}" if matchers else "") + window
    if chance.random() < 0.1:
        text += f" offset {chance.choice(['30s', '5m', '-20s', '1m30s'])}"
    return text


def _windows(chance: random.Random) -> str:
    return _selector(chance, window=chance.choice(["[31s]", "[1m]", "[2m]", "[5m]", "[17s]"]))


def _labels(chance: random.Random) -> str:
    return ",".join(chance.sample(_LABELS, chance.randint(0, 3)))


def _vector(chance: random.Random, depth: int) -> str:
    if depth <= 0:
        return _selector(chance)
    kinds = (_over, _over, _over, _aggregated, _aggregated, _aggregated, _binary, _binary, _sets,
             _each, _misc, _selector)  # fmt: skip
    kind = chance.choice(kinds)
    return _selector(chance) if kind is _selector else kind(chance, depth)


def _over(chance: random.Random, _depth: int) -> str:
    return f"{chance.choice(_WINDOWED)}({_windows(chance)})"


def _aggregated(chance: random.Random, depth: int) -> str:
    clause = chance.choice(["", f" by ({_labels(chance)})", f" without ({_labels(chance)})"])
    inner = _vector(chance, depth - 1)
    if chance.random() < 0.08:
        # Ties would be broken by the order of series, which nobody promises: gauges have none.
        gauge = _selector(chance, "temp")
        op = chance.choice(["topk", "bottomk"])
        return f"{op}{clause} ({chance.randint(0, 4)}, {gauge} < Inf)"
    return f"{chance.choice(_INTO_ONE)}{clause} ({inner})"


def _binary(chance: random.Random, depth: int) -> str:
    op = chance.choice(["+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<="])
    is_comparison = op in ("==", "!=", ">", "<", ">=", "<=")
    flag = " bool" if is_comparison and chance.random() < 0.3 else ""
    left = _vector(chance, depth - 1)
    pick = chance.random()
    number = chance.choice(["2", "0", "-1.5", "100", "1e3", "0.1", "time() - 1.7e9"])
    if pick < 0.25:
        return f"({left} {op}{flag} {number})"
    if pick < 0.35:
        return f"({number} {op}{flag} {left})"
    if pick < 0.5:
        side = chance.choice(["group_left", "group_right"])
        info = f'info{{team=~"{chance.choice([".*", "red", "b.+"])}"}}'
        pair = (left, info) if side == "group_left" else (info, left)
        return f"({pair[0]} {op}{flag} on(namespace) {side}(team) {pair[1]})"
    matching = chance.choice(
        ["", f" on({_labels(chance)})", f" ignoring({_labels(chance)})", " on(namespace,pod)"]
    )
    right = left if chance.random() < 0.5 else _vector(chance, depth - 1)
    return f"({left} {op}{flag}{matching} {right})"


def _sets(chance: random.Random, depth: int) -> str:
    op = chance.choice(["and", "or", "unless"])
    matching = chance.choice(["", f" on({_labels(chance)})", f" ignoring({_labels(chance)})"])
    return f"({_vector(chance, depth - 1)} {op}{matching} {_vector(chance, depth - 1)})"


def _each(chance: random.Random, depth: int) -> str:
    inner = _vector(chance, depth - 1)
    return chance.choice([f"{chance.choice(_EACH)}({inner})", f"-({inner})"])


def _misc(chance: random.Random, depth: int) -> str:
    inner = _vector(chance, depth - 1)
    return chance.choice(
        [
            f"timestamp({_selector(chance)})",
            f"round({inner})",
            f"round({inner}, 0.25)",
            f"vector({chance.choice(['1', 'time()', 'NaN'])})",
        ]
    )
