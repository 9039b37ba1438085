"""Autopilot's recommenders: ticks, windows, the ensemble, and what comes out of them."""

import math

import numpy as np
import pytest

from podscale.core.selectors import selector
from tests.unit.vpa.model.worlds import WEB, usage, web
from vpa.model.autopilot import (
    TICK_S,
    Autopilot,
    AutopilotFeed,
    Costs,
    Ensemble,
    Model,
    MovingWindows,
    Tick,
    Ticker,
)
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.recommendation import (
    RecommendedUsage,
    RecommenderSettings,
    recommend,
    without_margin,
)
from vpa.model.groups import Oom
from vpa.model.histograms import buckets
from vpa.model.histograms.matrix import Floats
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.aggregates import usage_of
from vpa.model.samples.membership import VpaKey

NOW = 1_772_409_600.0
ONE = np.array([0], dtype=np.intp)


def tick(number: int, values: list[float], layout: buckets.BucketLayout = buckets.CPU) -> Tick:
    counts = np.zeros((layout.count, 1))
    for bucket in layout.find(np.array(values)):
        counts[bucket, 0] += 1.0
    end = NOW + (number + 1) * TICK_S
    return Tick(end, counts, np.array([max(values, default=0.0)]), np.array([bool(values)]))


def end_of(value: float, layout: buckets.BucketLayout = buckets.CPU) -> float:
    return float(layout.ends[layout.find(np.array([value]))[0]])


def test_memory_counts_each_task_once_a_tick_by_its_peak() -> None:
    ticker = Ticker(buckets.MEMORY, 1, peaks_only=True)
    for second, used in ((0.0, 1e8), (60.0, 9e8), (120.0, 2e8)):
        tasks = np.array([1, 2], dtype=np.intp)
        slots = np.array([0, 0], dtype=np.intp)
        assert ticker.add(tasks, slots, np.array([used, used / 2]), NOW + second) == []
    (done,) = ticker.add(ONE, ONE, np.array([1.0]), NOW + TICK_S)
    assert done.counts.sum() == 2.0
    assert done.counts[buckets.MEMORY.find(np.array([9e8, 4.5e8])), 0].tolist() == [1.0, 1.0]
    assert done.peaks[0] == 9e8


def test_cpu_counts_every_sample() -> None:
    ticker = Ticker(buckets.CPU, 1, peaks_only=False)
    for second in range(0, 300, 60):
        ticker.add(ONE, ONE, np.array([0.2]), NOW + second)
    (done,) = ticker.add(ONE, ONE, np.array([0.2]), NOW + TICK_S)
    assert done.counts.sum() == 5.0


def test_silence_between_samples_is_no_tick_of_zeros() -> None:
    ticker = Ticker(buckets.CPU, 1, peaks_only=False)
    ticker.add(ONE, ONE, np.array([0.2]), NOW)
    (done,) = ticker.add(ONE, ONE, np.array([0.2]), NOW + 10 * TICK_S)
    assert done.counts.sum() == 1.0


def test_high_load_counts_for_more_than_the_same_time_at_low_load() -> None:
    windows = MovingWindows(buckets.CPU, 12 * 3600.0, 1)
    for number in range(100):
        windows.observe(tick(number, [4.0] if number % 10 == 0 else [0.1]))
    # A tenth of the time, but most of the load.
    assert windows.median(ONE)[0] == end_of(4.0)


def test_the_recent_maximum_is_forgotten_after_a_day() -> None:
    windows = MovingWindows(buckets.CPU, 12 * 3600.0, 1)
    windows.observe(tick(0, [8.0]))
    windows.observe(tick(1, [1.0]))
    assert windows.maximum(ONE)[0] == 8.0
    windows.observe(tick(26 * 12, [1.0]))
    assert windows.maximum(ONE)[0] == 1.0


def plain_model(fed: list[list[float]], model: Model, costs: Costs) -> tuple[int, float]:
    """Return limit and cost of one model, from the paper's recurrences bucket by bucket."""
    count = buckets.CPU.count
    usage = [0.0] * count
    raw, limit, cost = -1, -1, 0.0
    for values in fed:
        share = [0.0] * count
        for bucket in buckets.CPU.find(np.array(values)):
            share[bucket] += 1.0 / len(values)
        rate = 1.0 if raw < 0 else model.decay
        usage = [u * (1 - rate) + s * rate for u, s in zip(usage, share, strict=True)]

        def price(at: int, weights: list[float] = usage) -> float:
            over = math.fsum(weights[at + 1 :])
            under = math.fsum(weights[:at])
            return costs.overrun * over + costs.underrun * under

        raw = (
            min(
                range(count),
                key=lambda at: (price(at) + (costs.limit_change if at != raw >= 0 else 0.0), at),
            )
            if raw >= 0
            else min(range(count), key=lambda at: (price(at), at))
        )
        new = min(raw + model.margin_buckets, count - 1)
        paid = price(new) + (costs.limit_change if 0 <= limit != new else 0.0)
        cost = paid if limit < 0 else costs.decay * paid + (1 - costs.decay) * cost
        limit = new
    return limit, cost


def test_a_model_follows_the_recurrences_of_the_paper() -> None:
    random = np.random.default_rng(3)
    model, costs = Model(0.1, 2), Costs()
    fed = [(0.2 * np.exp(random.normal(0, 0.6, 5))).tolist() for _ in range(60)]
    ensemble = Ensemble(buckets.CPU, 1, (model,), costs)
    for number, values in enumerate(fed):
        ensemble.observe(tick(number, values))
    limit, cost = plain_model(fed, model, costs)
    assert ensemble.limits()[0] == float(buckets.CPU.ends[limit])
    assert ensemble._cost[0, 0] == pytest.approx(cost)


def test_the_ensemble_prefers_a_margin_where_usage_jumps() -> None:
    models = (Model(0.1, 0), Model(0.1, 8))
    steady = Ensemble(buckets.CPU, 1, models)
    jumpy = Ensemble(buckets.CPU, 1, models, Costs(overrun=50.0))
    for number in range(200):
        steady.observe(tick(number, [0.2]))
        jumpy.observe(tick(number, [0.2] * 9 + [0.28 if number % 2 else 0.2]))
    assert models[steady._model[0]].margin_buckets == 0
    assert jumpy.limits()[0] > steady.limits()[0]


def usages(autopilot: Autopilot, key: VpaKey, containers: list[str]) -> list[RecommendedUsage]:
    named = [(key, container) for container in containers]
    reads = {resource: autopilot.read(resource, named) for resource in ("cpu", "memory")}
    return [
        RecommendedUsage(container, usage_of(reads, place))
        for place, container in enumerate(containers)
    ]


def feed(autopilot: Autopilot, minutes: int, cores: Floats, memory: Floats) -> None:
    slot = autopilot.slot(WEB, "app")
    tasks = np.arange(cores.size)
    slots = np.full(cores.size, slot)
    for minute in range(minutes):
        at = NOW + minute * 60.0
        autopilot.take("cpu", tasks, slots, cores, at)
        autopilot.take("memory", tasks, slots, memory, at)


def test_a_steady_container_gets_its_usage_and_a_margin() -> None:
    autopilot = Autopilot()
    feed(autopilot, 24 * 60, np.array([0.2, 0.2]), np.array([5e8, 5e8]))
    settings = without_margin(RecommenderSettings())
    trace = recommend(usages(autopilot, WEB, ["app"]), settings)
    (entry,) = trace.recommendation.container_recommendations or ()
    target, lower, upper = entry.target or {}, entry.lower_bound or {}, entry.upper_bound or {}
    assert 200 <= target["cpu"].milli <= 270
    assert 5e8 <= target["memory"].value <= 6.6e8
    for name in ("cpu", "memory"):
        assert lower[name].nano <= target[name].nano <= upper[name].nano


def test_the_highest_recommendation_of_the_last_hour_counts() -> None:
    autopilot = Autopilot()
    slot = autopilot.slot(WEB, "app")
    # A model that follows the newest tick alone.
    hasty = Ensemble(buckets.CPU, 64, (Model(1.0, 0),), Costs(limit_change=0.0))
    autopilot._of["cpu"].ensemble = hasty

    def target(values: list[float], start: float) -> float:
        for number, value in enumerate(values):
            at = start + number * TICK_S
            autopilot.take("cpu", ONE, np.array([slot]), np.array([value]), at)
        return usages(autopilot, WEB, ["app"])[0].resources["cpu"].percentiles[1]

    high = target([8.0] * 12, NOW)
    assert target([0.01] * 6, NOW + 12 * TICK_S) == high
    assert target([0.01] * 12, NOW + 18 * TICK_S) < high


def test_what_was_never_seen_is_not_recommended() -> None:
    autopilot = Autopilot()
    autopilot.slot(WEB, "app")
    assert usages(autopilot, WEB, ["app", "other"])[0].resources == {}
    nothing = np.array([float("nan")])
    autopilot.take("cpu", ONE, ONE, nothing, NOW)
    autopilot.take("cpu", ONE, ONE, nothing, NOW + TICK_S)
    assert usages(autopilot, WEB, ["app"])[0].resources == {}


def test_a_slot_that_is_used_again_remembers_nothing() -> None:
    autopilot = Autopilot()
    feed(autopilot, 30, np.array([4.0]), np.array([5e9]))
    assert usages(autopilot, WEB, ["app"])[0].resources
    before = autopilot.slot(WEB, "app")
    autopilot.remove(WEB)
    other = VpaKey("shop", "other")
    assert autopilot.slot(other, "app") == before
    assert usages(autopilot, other, ["app"])[0].resources == {}
    assert autopilot._of["cpu"].ensemble.limits()[before] == 0.0


def chosen(cluster: ClusterModel) -> None:
    entry = cluster.vpas[WEB]
    cluster.put_vpa(entry.vpa, selector.parse("app=web"), NOW, is_autopilot=True)


def test_a_cluster_feeds_it_with_the_samples_it_accepts() -> None:
    cluster, autopilot = ClusterModel(), Autopilot()
    AutopilotFeed(cluster, autopilot)
    web(cluster, "web-0", "web-1")
    chosen(cluster)
    for minute in range(12):
        cluster.take(usage(NOW + minute * 60.0, 0.2, 5e8, pods=("web-0", "web-1")))
    assert set(usages(autopilot, WEB, ["app"])[0].resources) == {"cpu", "memory"}
    cluster.remove_vpa(WEB, NOW)
    cluster.take(usage(NOW + 1200.0, 0.2, 5e8))
    assert usages(autopilot, WEB, ["app"])[0].resources == {}


def test_only_vpas_that_chose_it_get_its_recommendation() -> None:
    cluster, autopilot = ClusterModel(), Autopilot()
    AutopilotFeed(cluster, autopilot)
    reader = RecommendationReader(cluster, autopilot)
    web(cluster, "web-0")

    def target(minute: int) -> int:
        for number in range(12):
            cluster.take(usage(NOW + (minute + number) * 60.0, 0.2, 5e8))
        trace = reader.recommendation(reader.read(), WEB)
        (entry,) = trace.recommendation.container_recommendations or ()
        return (entry.target or {})["cpu"].milli

    # 215 m is the end of the bucket of 200 m: 15 % on top, or one bucket as the model adds.
    assert target(0) == 247
    assert reader.is_young(WEB) is False
    chosen(cluster)
    learned = target(12)
    assert learned != 247
    assert 200 <= learned <= 270
    assert reader.is_young(WEB) is True


def test_an_oom_reaches_it_as_the_memory_that_was_needed() -> None:
    cluster, autopilot = ClusterModel(), Autopilot()
    AutopilotFeed(cluster, autopilot)
    web(cluster, "web-0")
    chosen(cluster)
    for minute in range(6):
        cluster.take(usage(NOW + minute * 60.0, 0.2, 5e8))
    at = NOW + 330.0
    assert cluster.record_oom(Oom("shop", "web-0", "app", 2**30, at))
    for minute in range(6, 12):
        cluster.take(usage(NOW + minute * 60.0, 0.2, 5e8))
    upper = autopilot.read("memory", [(WEB, "app")]).percentiles[2, 0]
    assert upper >= 1.2 * 2**30
