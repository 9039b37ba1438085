"""Weeks of usage from Prometheus, replayed into the model as if it had been there.

A child process reads and decodes (``podscale.feed.range_reader``); here each step of time is one
batch for the model, in order, so that histograms and memory windows are those of a
recommender that was fed live at the same step. One slice is held at a time.

Whoever shares the event loop goes on answering: work of half a millisecond is followed by a
rest of one at least.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryColumns, HistoryReader, RangeReader
from vpa.model.cluster import ClusterModel
from vpa.model.groups import ContainerKey
from vpa.model.histograms.matrix import Floats

Labels = Mapping[str, str]
# An admission review waits for the piece that is under way. Pieces of twice the size are done
# after two fifths of the time, and then one review in a hundred takes more than twice as long.
_PAGE = 256  # samples in one piece, some 0.4 ms
_NAMES = 25  # containers in one piece, some 0.3 ms where they are new
_POINTS = 40_000  # of one slice
_WORK_S = 0.00025  # between two rests, and no more than one piece longer
_SHORTEST_REST_S, _LONGEST_REST_S = 0.001, 0.005  # timers of the loop count milliseconds
_PAUSES = ("", "POD")  # what cAdvisor calls sandboxes and cgroups of whole pods


class UsageRangeQuery(Struct, frozen=True):
    """A query whose series are containers, and which of their labels say so."""

    text: str
    pod: str
    container: str
    namespace: str  # label; "" where all series are of ``only``
    only: str = ""


class PodLabels(Struct, frozen=True):
    """A query whose series carry the labels of pods: kube_pod_labels, or what scraped them."""

    text: str
    namespace: str
    pod: str
    prefix: str


class UsageHistory(Struct, frozen=True):
    """What is read, and where."""

    prometheus: PrometheusOptions
    cpu: tuple[UsageRangeQuery, ...]
    memory: tuple[UsageRangeQuery, ...]
    labels: PodLabels | None = None


class HistorySpan(Struct, frozen=True):
    """How far back, and how dense."""

    length_s: float = 8 * 86400.0
    step_s: int = 300


class LoadedHistory(Struct, frozen=True):
    """What came of it."""

    containers: int
    samples: int
    unknown: int  # containers of pods whose labels nobody knows any more


LabelsOf = Callable[[str, str], Labels | None]  # of a pod, by namespace and name


async def load(
    past: UsageHistory,
    span: HistorySpan,
    cluster: ClusterModel,
    now: float,
    labels_of: LabelsOf,
    progress: Callable[[float], None],
) -> LoadedHistory:
    """Replay history up to ``now``; raises ``QueryError``. ``progress`` takes 0 to 1.

    ``labels_of`` returns None for pods that are unknown, or that nobody wants.
    """
    async with HistoryReader(past.prometheus) as reader:
        replay = _Replay(cluster, span, now, labels_of)
        if past.labels is not None:
            await replay.learn_labels(reader, past.labels)
        asked = [("cpu", each) for each in past.cpu] + [("memory", each) for each in past.memory]
        try:
            for number, (resource, query) in enumerate(asked):
                async for part in reader.read(
                    query.text, replay.start_s, now, span.step_s, points=_POINTS
                ):
                    await replay.take(resource, query, part.series)
                    progress((number + part.done) / len(asked))
        finally:
            replay.close()
    return LoadedHistory(len(replay.taken), replay.samples, len(replay.unknown))


class _Replay:
    # History on its way into one model.

    def __init__(
        self, cluster: ClusterModel, span: HistorySpan, now: float, labels_of: LabelsOf
    ) -> None:
        self._cluster, self._span, self._now = cluster, span, now
        self._labels_of = labels_of
        self.start_s = now - span.length_s
        self._told: dict[tuple[str, str], dict[str, str]] = {}
        self._gone: dict[tuple[str, str], tuple[Labels, set[str]]] = {}
        self.taken: set[ContainerKey] = set()
        self.unknown: set[ContainerKey] = set()
        self.samples = 0
        self._rested_at = time.perf_counter()

    async def learn_labels(self, reader: RangeReader, query: PodLabels) -> None:
        # As a range, so that pods that have gone are told of: upstream's instant query
        # cannot work as shipped (D15). Labels rarely change: an hour is dense enough.
        step = max(self._span.step_s, 3600)
        async for part in reader.read(query.text, self.start_s, self._now, step, points=_POINTS):
            self._rested_at = time.perf_counter()
            for number, series in enumerate(part.series):
                found = series.labels
                place = found.get(query.namespace, ""), found.get(query.pod, "")
                if all(place):
                    self._told[place] = {
                        name.removeprefix(query.prefix): value
                        for name, value in found.items()
                        if name.startswith(query.prefix)
                    }
                if number % _NAMES == 0:
                    await self._rest()

    async def take(self, resource: str, query: UsageRangeQuery, series: HistoryColumns) -> None:
        """Add one slice, step by step."""
        self._rested_at = time.perf_counter()
        rows = np.full(len(series), -1, dtype=np.intp)
        for begin in range(0, len(series), _NAMES):
            places = range(begin, min(begin + _NAMES, len(series)))
            keys = [self._key(query, series[place].labels) for place in places]
            for key in keys:
                if key is not None:
                    self._open(key)
            known = [number for number, key in enumerate(keys) if key is not None]
            named = [key for key in keys if key is not None]
            found = self._cluster.rows_of(named)
            rows[begin + np.array(known, dtype=np.intp)] = found
            self.taken.update(key for key, row in zip(named, found, strict=True) if row >= 0)
            await self._rest()
        grid, start_s = self._grid(series)
        await self._rest()
        minutes = self._span.step_s / 60.0
        for number, values in enumerate(grid):
            given = np.flatnonzero((rows >= 0) & ~np.isnan(values))
            for page in range(0, given.size, _PAGE):
                chosen = given[page : page + _PAGE]
                at = np.full(chosen.size, start_s + number * self._span.step_s)
                self.samples += self._cluster.intake.add(
                    resource, rows[chosen], values[chosen], at, minutes
                )
                await self._rest()

    def _grid(self, series: HistoryColumns) -> tuple[Floats, float]:
        # Values by step and series, NaN where there is none, and the time of the first step:
        # the samples of a range query lie on its steps.
        times, step_s = series.time_s, self._span.step_s
        if not times.size:
            return np.empty((0, len(series))), 0.0
        start_s = float(times.min())
        places = np.rint((times - start_s) / step_s).astype(np.intp)
        grid = np.full((int(places.max()) + 1, len(series)), np.nan)
        grid[places, np.repeat(np.arange(len(series)), series.counts)] = series.values
        return grid, start_s

    async def _rest(self) -> None:
        worked_s = time.perf_counter() - self._rested_at
        if worked_s >= _WORK_S:
            await asyncio.sleep(min(max(worked_s, _SHORTEST_REST_S), _LONGEST_REST_S))
            self._rested_at = time.perf_counter()

    def close(self) -> None:
        """Let pods go that only history knew; what they have used stays."""
        for namespace, pod in self._gone:
            self._cluster.remove_pod(namespace, pod)

    def _key(self, query: UsageRangeQuery, labels: Labels) -> ContainerKey | None:
        namespace = labels.get(query.namespace, "") if query.namespace else query.only
        pod, container = labels.get(query.pod, ""), labels.get(query.container, "")
        if not namespace or not pod or container in _PAUSES:
            return None
        return namespace, pod, container

    def _open(self, key: ContainerKey) -> None:
        namespace, pod, container = key
        if key in self.unknown or self._cluster.has_container(key):
            return
        known = self._gone.get((namespace, pod))
        if known is None:
            labels = None
            if not self._cluster.has_pod(namespace, pod):
                labels = self._told.get((namespace, pod)) or self._labels_of(namespace, pod)
            if labels is None:  # also a container that a living pod does not have
                self.unknown.add(key)
                return
            known = self._gone[namespace, pod] = (labels, set())
        labels, containers = known
        containers.add(container)
        self._cluster.put_pod(
            namespace, pod, labels, sorted(containers), self._now, is_active=False
        )
