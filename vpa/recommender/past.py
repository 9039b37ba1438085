"""Weeks of usage from Prometheus, replayed into the model as if it had been there.

A child process reads and decodes (``podscale.feed.history``); here each step of time is one
batch for the model, in order, so that histograms and memory windows are those of a
recommender that was fed live at the same step. One slice is held at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from podscale.feed.history import HistoryReader, HistorySeries, HistorySlice
from podscale.feed.options import PrometheusOptions
from vpa.model.cluster import Cluster
from vpa.model.entries import ContainerKey

Labels = Mapping[str, str]
_PAGE = 512  # containers between two looks at the event loop, some 2 ms
_POINTS = 40_000  # of one slice: it is sorted in one piece, in some 5 ms
_PAUSES = ("", "POD")  # what cAdvisor calls sandboxes and cgroups of whole pods


class PastQuery(Struct, frozen=True):
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


class Past(Struct, frozen=True):
    """What is read, and where."""

    prometheus: PrometheusOptions
    cpu: tuple[PastQuery, ...]
    memory: tuple[PastQuery, ...]
    labels: PodLabels | None = None


class Span(Struct, frozen=True):
    """How far back, and how dense."""

    length_s: float = 8 * 86400.0
    step_s: int = 300


class Loaded(Struct, frozen=True):
    """What came of it."""

    containers: int
    samples: int
    unknown: int  # containers of pods whose labels nobody knows any more


class Reads(Protocol):
    """Reads range queries (``HistoryReader``)."""

    def read(
        self, query: str, start_s: float, end_s: float, step_s: int, *, points: int
    ) -> AsyncIterator[HistorySlice]: ...


LabelsOf = Callable[[str, str], Labels | None]  # of a pod, by namespace and name


async def load(
    past: Past,
    span: Span,
    cluster: Cluster,
    now: float,
    labels_of: LabelsOf,
    progress: Callable[[float], None],
) -> Loaded:
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
    return Loaded(len(replay.taken), replay.samples, len(replay.unknown))


class _Replay:
    # History on its way into one model.

    def __init__(self, cluster: Cluster, span: Span, now: float, labels_of: LabelsOf) -> None:
        self._cluster, self._span, self._now = cluster, span, now
        self._labels_of = labels_of
        self.start_s = now - span.length_s
        self._told: dict[tuple[str, str], dict[str, str]] = {}
        self._gone: dict[tuple[str, str], tuple[Labels, set[str]]] = {}
        self.taken: set[ContainerKey] = set()
        self.unknown: set[ContainerKey] = set()
        self.samples = 0

    async def learn_labels(self, reader: Reads, query: PodLabels) -> None:
        # As a range, so that pods that have gone are told of: upstream's instant query
        # cannot work as shipped (D15). Labels rarely change: an hour is dense enough.
        step = max(self._span.step_s, 3600)
        async for part in reader.read(query.text, self.start_s, self._now, step, points=_POINTS):
            for series in part.series:
                found = series.labels
                place = found.get(query.namespace, ""), found.get(query.pod, "")
                if all(place):
                    self._told[place] = {
                        name.removeprefix(query.prefix): value
                        for name, value in found.items()
                        if name.startswith(query.prefix)
                    }

    async def take(self, resource: str, query: PastQuery, series: Sequence[HistorySeries]) -> None:
        """Add one slice, step by step."""
        keys = [self._key(query, each.labels) for each in series]
        for number, key in enumerate(keys):
            if number % _PAGE == 0:
                await asyncio.sleep(0)
            if key is not None:
                self._open(key)
        known = [(key, each) for key, each in zip(keys, series, strict=True) if key is not None]
        rows = self._cluster.rows_of([key for key, _ in known])
        found = np.flatnonzero(rows >= 0)
        if not found.size:
            return
        counts = [known[i][1].values.size for i in found]
        of_row = np.repeat(rows[found], counts)
        times = np.concatenate([known[i][1].time_s for i in found])
        values = np.concatenate([known[i][1].values for i in found])
        await asyncio.sleep(0)
        order = np.argsort(times, kind="stable")
        of_row, times, values = of_row[order], times[order], values[order]
        self.taken.update(known[i][0] for i in found)
        minutes = self._span.step_s / 60.0
        starts = np.flatnonzero(np.diff(times, prepend=-np.inf))
        for start, end in zip(starts, [*starts[1:], times.size], strict=True):
            for page in range(start, end, _PAGE):
                chosen = slice(page, min(page + _PAGE, end))
                self.samples += self._cluster.intake.add(
                    resource, of_row[chosen], values[chosen], times[chosen], minutes
                )
                await asyncio.sleep(0)

    def close(self) -> None:
        """Let pods go that only history knew; what they have used stays."""
        for namespace, pod in self._gone:
            self._cluster.remove_pod(namespace, pod)

    def _key(self, query: PastQuery, labels: Labels) -> ContainerKey | None:
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
