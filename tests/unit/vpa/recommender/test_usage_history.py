"""Slices of history on their way into the model."""

import msgspec
import numpy as np

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from podscale.feed.range_reader import HistoryColumns, HistorySeries
from tests.unit.loop_turns import others
from tests.unit.vpa.model.worlds import NOW, vpa
from vpa.model.cluster import ClusterModel
from vpa.recommender.history.usage_history import HistorySpan, UsageRangeQuery, _Replay

STEP_S, STEPS, PODS = 300, 60, 120
QUERY = UsageRangeQuery("", "pod", "container", "namespace")


def cluster() -> ClusterModel:
    made = ClusterModel()
    made.put_vpa(vpa(), selector.parse("app=web"), NOW)
    for pod in range(PODS):
        made.put_pod("shop", f"web-{pod}", {"app": "web"}, ["app"], NOW)
    return made


def with_holes() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(3)
    values = random.lognormal(18.0, 0.5, (STEPS, PODS))
    values[random.random(values.shape) < 0.3] = np.nan
    values[:, 7] = np.nan  # a series without a sample in this slice
    return values


def labels(pod: int) -> dict[str, str]:
    return {"namespace": "shop", "pod": f"web-{pod}", "container": "app"}


def columns(series: list[HistorySeries]) -> HistoryColumns:
    return HistoryColumns(
        [msgspec.Raw(msgspec.msgpack.encode(each.labels)) for each in series],
        [each.values.size for each in series],
        np.concatenate([each.time_s for each in series]),
        np.concatenate([each.values for each in series]),
    )


async def test_a_slice_with_holes_teaches_what_its_steps_teach_one_by_one() -> None:
    values, times = with_holes(), NOW + STEP_S * np.arange(STEPS, dtype=np.float64)
    series = []
    for pod in range(PODS):
        given = ~np.isnan(values[:, pod])
        series.append(HistorySeries(labels(pod), times[given], values[given, pod]))
    series.append(HistorySeries({"pod": "web-0"}, times, np.full(STEPS, 1e12)))  # whose?
    past, live = cluster(), cluster()
    replay = _Replay(past, HistorySpan(86400.0, STEP_S), NOW, lambda *_: None)
    await replay.take("memory", QUERY, columns(series))
    names = ["shop"] * PODS, [f"web-{pod}" for pod in range(PODS)], ["app"] * PODS
    for at, row in zip(times, values, strict=True):
        nothing = np.full(PODS, np.nan)
        live.take(ContainerColumns(*names, nothing, row, np.full(PODS, at), at), STEP_S / 60.0)
    assert replay.samples == np.isfinite(values).sum()
    assert np.array_equal(past.aggregates.memory.weights, live.aggregates.memory.weights)
    assert past.aggregates.memory_span.samples.sum() == live.aggregates.memory_span.samples.sum()


async def test_others_get_their_turn_while_a_slice_is_replayed() -> None:
    times = NOW + STEP_S * np.arange(STEPS, dtype=np.float64)
    series = [HistorySeries(labels(pod), times, np.full(STEPS, 1e8)) for pod in range(PODS)]
    replay = _Replay(cluster(), HistorySpan(86400.0, STEP_S), NOW, lambda *_: None)
    async with others() as turns:
        await replay.take("memory", QUERY, columns(series))
    assert turns.taken > 10
