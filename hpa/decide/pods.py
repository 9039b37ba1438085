"""The pods of one target in columns, and which of them count for a metric.

Follows ``groupPods``, Kubernetes 1.37. Columns instead of objects because ten thousand
HPAs with ten pods each would otherwise make a hundred thousand objects a period.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from hpa.decide.settings import Settings
from podscale.core.metrics import Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.samplecolumns import SampleColumns
from podscale.kube.objects.pod import WirePodTemplate

DEFAULT_WINDOW_S = 60.0  # of a sample whose rate window is not known


_RUNNING = int(PodPhase.RUNNING)


class Pods(Struct, frozen=True, gc=False):
    """All pods behind the selector, sorted by name; every column has one entry a pod."""

    names: tuple[str, ...] = ()
    phase: bytes = b""  # Phase
    ready: bytes = b""  # Ready
    deleted: bytes = b""  # 1: deletionTimestamp is set
    started: tuple[float | None, ...] = ()  # status.startTime
    # lastTransitionTime of the Ready condition; None where it is null, or ``ready`` ABSENT
    ready_since: tuple[float | None, ...] = ()
    template: tuple[int, ...] = ()  # position in ``templates``
    templates: tuple[WirePodTemplate, ...] = ()
    owner: tuple[int, ...] = ()  # position in ``owners``; no entries: owners are not known
    owners: tuple[str, ...] = ()  # topmost controllers, "Kind/name"; "" is none

    def __len__(self) -> int:
        return len(self.names)

    def chosen(self, rows: list[int]) -> "Pods":
        """Return the pods at ``rows``, which are ascending."""
        return Pods(
            names=tuple(self.names[row] for row in rows),
            phase=bytes(self.phase[row] for row in rows),
            ready=bytes(self.ready[row] for row in rows),
            deleted=bytes(self.deleted[row] for row in rows),
            started=tuple(self.started[row] for row in rows),
            ready_since=tuple(self.ready_since[row] for row in rows),
            template=tuple(self.template[row] for row in rows),
            templates=self.templates,
            owner=tuple(self.owner[row] for row in rows) if self.owner else (),
            owners=self.owners,
        )

    def rows_owned_by(self, owner: str) -> list[int]:
        """Return the rows whose topmost controller is ``owner``; all where unknown."""
        if not self.owner:
            return list(range(len(self.names)))
        return [row for row, index in enumerate(self.owner) if self.owners[index] == owner]

    def all_run(self) -> bool:
        """Return whether every pod runs and none is being deleted."""
        count = len(self.names)
        return self.phase.count(_RUNNING) == count and self.deleted.count(0) == count

    def ready_count(self) -> int:
        """Return the running pods whose Ready condition is true, deleted ones included.

        Follows getReadyPodsCount: a Value target multiplies by these.
        """
        return sum(
            phase == PodPhase.RUNNING and ready == PodReadiness.TRUE
            for phase, ready in zip(self.phase, self.ready, strict=True)
        )

    def unfinished_count(self) -> int:
        return sum(phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED) for phase in self.phase)


class PodGroups(Struct, frozen=True, gc=False):
    """The pods of one metric by how they count; names in order of the columns."""

    ready: int
    missing: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    initializing: tuple[str, ...] = ()  # cpu: started lately, its sample cannot be trusted
    never_ready: tuple[str, ...] = ()  # cpu: past its start, not ready since
    finished: tuple[str, ...] = ()  # ignored: Failed (from 1.38 on Succeeded too)
    terminating: tuple[str, ...] = ()  # ignored: being deleted

    @property
    def unready(self) -> tuple[str, ...]:
        return self.pending + self.initializing + self.never_ready

    @property
    def ignored(self) -> tuple[str, ...]:
        return self.finished + self.terminating

    @property
    def filled(self) -> tuple[bool, bool, bool]:
        """Whether there are missing, unready and ignored pods."""
        return (
            bool(self.missing),
            bool(self.pending or self.initializing or self.never_ready),
            bool(self.finished or self.terminating),
        )


def group(
    pods: Pods,
    samples: Mapping[str, Sample],
    resource: str,
    settings: Settings,
    now: float,
    asked_s: float,
) -> PodGroups:
    """Return how each pod counts. ``resource`` is "" for a metric that is no resource;
    readiness is looked at for cpu only.
    """
    if resource != "cpu" and pods.all_run():
        if type(samples) is SampleColumns and samples.names == pods.names:
            return PodGroups(len(pods.names))
        missing = tuple([name for name in pods.names if name not in samples])
        return PodGroups(len(pods.names) - len(missing), missing)
    ready = 0
    buckets: dict[str, list[str]] = {}
    for row, name in enumerate(pods.names):
        bucket = _bucket(pods, row, samples.get(name), resource, settings, now, asked_s)
        if bucket:
            buckets.setdefault(bucket, []).append(name)
        else:
            ready += 1
    return PodGroups(ready, **{bucket: tuple(names) for bucket, names in buckets.items()})


def _bucket(
    pods: Pods,
    row: int,
    sample: Sample | None,
    resource: str,
    settings: Settings,
    now: float,
    asked_s: float,
) -> str:
    # The first line that holds decides; "" is ready.
    phase = pods.phase[row]
    if pods.deleted[row]:
        return "terminating"
    if phase == PodPhase.FAILED or (phase == PodPhase.SUCCEEDED and settings.ignores_succeeded):
        return "finished"
    if phase == PodPhase.PENDING:
        return "pending"
    if sample is None:
        return "missing"
    if resource != "cpu":
        return ""
    started, since = pods.started[row], pods.ready_since[row]
    if pods.ready[row] == PodReadiness.ABSENT or started is None:
        return "never_ready"
    if since is None:
        since = -math.inf  # a null lastTransitionTime is Go's zero time, before every start
    if started + settings.cpu_initialization_s > now:
        # The window of the sample must lie wholly after the last change of readiness.
        taken = asked_s if sample.time_s is None else sample.time_s
        window = DEFAULT_WINDOW_S if sample.window_s is None else sample.window_s
        is_unready = pods.ready[row] == PodReadiness.FALSE or taken < since + window
        return "initializing" if is_unready else ""
    has_not_been_ready = started + settings.initial_readiness_delay_s > since
    return "never_ready" if pods.ready[row] == PodReadiness.FALSE and has_not_been_ready else ""
