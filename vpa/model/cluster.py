"""The recommender's model: pods, containers, aggregates and VPAs, without any I/O.

The shell puts objects and samples in and takes recommendations and checkpoints out. Every
method is a step of one pass; times are given, never read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors.selector import Selector
from podscale.kube.objects.vpa import Vpa, container_policy
from vpa.model.amounts import Windows, mistakes_of, windows_of
from vpa.model.estimation.annotations import VpaSettings, settings_from
from vpa.model.estimation.recommendation import without_margin
from vpa.model.groups import (
    AggregateEntry,
    ContainerGroups,
    ContainerKey,
    Named,
    Oom,
    ParkedCheckpoints,
    PodEntry,
    VpaEntry,
)
from vpa.model.histograms.matrix import Columns
from vpa.model.samples import checkpoints
from vpa.model.samples.aggregates import AggregateKey, Aggregates, merged
from vpa.model.samples.checkpoints import Checkpoint, check_times
from vpa.model.samples.container_rows import Containers, Intake, PeakWindow, as_rows, holding
from vpa.model.samples.membership import Labels, Membership, VpaKey, canonical


class ClusterModel:
    """All that the recommender remembers."""

    def __init__(
        self,
        defaults: VpaSettings = VpaSettings(),  # noqa: B008 - frozen
        windows: Windows = Windows(),  # noqa: B008 - frozen
        *,
        per_vpa_config: bool = False,
    ) -> None:
        self.defaults = defaults
        self._autopilot_defaults = replace(
            defaults, recommender=without_margin(defaults.recommender), is_autopilot=True
        )
        self.windows = windows
        self.per_vpa_config = per_vpa_config
        self.aggregates = Aggregates(defaults.half_lives.cpu_s, defaults.half_lives.memory_s)
        self.rows = Containers()
        self.intake = Intake(self.aggregates, self.rows)
        self.vpas: dict[VpaKey, VpaEntry] = {}
        self._membership = Membership()
        self._pods: dict[tuple[str, str], PodEntry] = {}
        self._row_of: dict[ContainerKey, int] = {}
        self._entries: dict[AggregateKey, AggregateEntry] = {}
        self._with_labels: dict[tuple[str, Labels], list[AggregateKey]] = {}  # by namespace
        # Pods by namespace and labels. Finished ones too, as upstream: a CronJob matches pods
        # between two of its runs.
        self._pod_counts: Counter[tuple[str, Labels]] = Counter()
        # What checkpoints brought, of VPAs that left.
        self._parked: dict[VpaKey, ParkedCheckpoints] = {}
        self.killed: set[tuple[VpaKey, str]] = set()  # by an OOM, not yet in a checkpoint
        self.version = 0  # changes whenever a VPA has other columns than before
        self._groups = ContainerGroups(self.aggregates, {})
        self._batch: tuple[Sequence[str], Sequence[str], Sequence[str], Columns] | None = None

    def groups(self) -> ContainerGroups:
        """Return the columns of every VPA and container name, the same object until they change."""
        if self._groups.version != self.version:
            self._groups = ContainerGroups(self.aggregates, self.vpas, self.version)
        return self._groups

    def put_vpa(
        self, vpa: Vpa, selector: Selector | None, now: float, *, is_autopilot: bool = False
    ) -> VpaEntry:
        """Add a VPA or take over its new version; ``selector`` None: target not resolved.

        A selector that changes moves the VPA to other aggregates and keeps what its
        checkpoints brought. While the target cannot be resolved the VPA stays with what it
        had: a Deployment that is made anew would otherwise fall back to the checkpoint.
        """
        key = VpaKey(vpa.metadata.namespace, vpa.metadata.name)
        defaults = self._autopilot_defaults if is_autopilot else self.defaults
        settings, mistakes = settings_from(vpa.metadata.annotations, defaults)
        mistakes += mistakes_of(vpa.spec.resource_policy, per_vpa_config=self.per_vpa_config)
        entry = self.vpas.get(key)
        if entry is None:
            parked = self._parked.pop(key, None)
            if parked is not None and not parked.is_of(vpa.spec.target_ref):
                # The name of one VPA, the workload of another.
                self.aggregates.close(as_rows(*parked.initial.values()))
                parked = None
            initial, pending = (parked.initial, parked.pending) if parked else ({}, {})
            entry = VpaEntry(vpa, settings, mistakes, {}, initial, pending)
            self.vpas[key] = entry
            self.version += 1
        if (
            entry.vpa.spec.resource_policy != vpa.spec.resource_policy
            or entry.settings.is_autopilot != is_autopilot
        ):
            self.version += 1
        entry.vpa, entry.settings, entry.mistakes = vpa, settings, mistakes
        entry.is_resolved = selector is not None
        matched = self._membership.put(key, selector) if selector is not None else None
        if matched is not None:
            self.version += 1
            entry.columns = {}
            for labels in matched:
                for aggregate in self._with_labels.get((key.namespace, labels), ()):
                    self._link(entry, aggregate)
        for named in entry.columns.values():
            for aggregate in named:
                self._configure(aggregate, entry, now)
        return entry

    def remove_vpa(self, key: VpaKey, now: float, *, is_for_good: bool = False) -> None:
        """Take a VPA out; its aggregates stay, another VPA may use them.

        What its checkpoints brought waits as long as a silent aggregate: one that is made
        anew, or was out of sight for a pass, goes on where it was. ``is_for_good``: what it
        had is of another workload.
        """
        entry = self.vpas.pop(key, None)
        if entry is None:
            return
        self._membership.remove(key)
        self.version += 1
        if is_for_good:
            self.aggregates.close(as_rows(*entry.initial.values()))
        elif entry.initial:
            target = entry.vpa.spec.target_ref
            self._parked[key] = ParkedCheckpoints(now, target, entry.initial, entry.pending)

    def put_pod(
        self,
        namespace: str,
        name: str,
        labels: Mapping[str, str],
        containers: Sequence[str],
        now: float,
        *,
        is_active: bool = True,
    ) -> None:
        """Add a pod or take over its new version."""
        entry = PodEntry(canonical(labels), tuple(containers), is_active)
        known = self._pods.get((namespace, name))
        if known == entry:
            return
        self._pod_counts[namespace, entry.labels] += 1
        self._pods[namespace, name] = entry
        if known is not None:
            self._uncount(namespace, known)
            moved = known.labels != entry.labels
            gone = set(known.containers) - (set() if moved else set(entry.containers))
            self._close(namespace, name, known.labels, gone)
        for container in entry.containers:
            if (namespace, name, container) not in self._row_of:
                self._open((namespace, name, container), entry.labels, now)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Forget a pod; what its containers have used stays."""
        entry = self._pods.pop((namespace, name), None)
        if entry is not None:
            self._uncount(namespace, entry)
            self._close(namespace, name, entry.labels, entry.containers)

    def take(self, usage: ContainerColumns, minutes: float | None = None) -> tuple[int, int]:
        """Add one sample per container; ``minutes`` and the result are those of ``Intake.take``."""
        return self.intake.take(self.rows_of_usage(usage), usage, minutes)

    def has_pod(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._pods

    def has_container(self, key: ContainerKey) -> bool:
        """Return whether the container of a pod is known."""
        return key in self._row_of

    def rows_of(self, keys: Sequence[ContainerKey]) -> Columns:
        """Return the rows of containers; -1 for those that are not known."""
        find = self._row_of.get
        return np.array([find(key, -1) for key in keys], dtype=np.intp)

    def rows_of_usage(self, usage: ContainerColumns) -> Columns:
        """Return the rows of a batch; -1 for containers that are not known."""
        # Prometheus answers in the same order minute by minute: the same three lists have
        # the same rows, as long as no pod came or went.
        named = (usage.namespace, usage.pod, usage.container)
        if self._batch is not None and self._batch[:3] == named:
            return self._batch[3]
        rows = self.rows_of(list(zip(*named, strict=True)))
        self._batch = (*named, rows)
        return rows

    def record_oom(self, oom: Oom) -> bool:
        """Add a kill; False for a container that is not known, or a kill that is too old."""
        row = self._row_of.get((oom.namespace, oom.pod, oom.container))
        if row is None:
            return False
        labels = self._pods[oom.namespace, oom.pod].labels
        windows = self._entries[AggregateKey(oom.namespace, oom.container, labels)].windows
        if not self.intake.add_oom(row, oom.memory_bytes, oom.time_s, windows):
            return False
        for key in self._membership.of(oom.namespace, labels):
            self.killed.add((key, oom.container))
        return True

    def load_checkpoint(
        self,
        key: VpaKey,
        container: str,
        checkpoint: Checkpoint,
        extra: checkpoints.Extra | None,
        now: float,
    ) -> None:
        """Take over what an earlier process had learned; raises CheckpointError."""
        entry = self.vpas[key]
        settings = self._windows(entry, container)
        # A memory sample is stamped with the end of its window, ahead of the clock, and the time
        # that weights refer to is rounded by the half-life.
        latest_s = now + settings.interval_s * settings.interval_count
        half_lives = entry.settings.half_lives
        check_times(checkpoint, latest_s + max(half_lives.cpu_s, half_lives.memory_s))
        column = int(self.aggregates.open(1, now, settings)[0])
        self.aggregates.set_half_lives(as_rows(column), half_lives, now)
        try:
            open_ones = checkpoints.load(self.aggregates, column, checkpoint, extra, latest_s)
        except ValueError:
            self.aggregates.close(as_rows(column))
            raise
        before = entry.initial.pop(container, None)
        if before is not None:
            self.aggregates.close(as_rows(before))
        entry.initial[container] = column
        self.version += 1
        entry.pending[container] = open_ones
        for pod in list(open_ones):
            row = self._row_of.get((key.namespace, pod, container))
            if row is not None and self.rows.window(row, pod) is None:
                self._resume(entry, container, pod, row)

    def checkpoints(
        self, named: Sequence[Named], now: float
    ) -> list[tuple[Checkpoint, str | None]]:
        """Return status and annotation of checkpoints, by VPA and container name."""
        entries = [(self.vpas[key], container) for key, container in named]
        groups = [entry.group(container) for entry, container in entries]
        members = [self._members(entry, container) for entry, container in entries]
        return checkpoints.save(self.aggregates, groups, self.rows, members, now)

    def windows_of(self, key: VpaKey, container: str) -> list[PeakWindow]:
        """Return the memory windows that are remembered, for explanations."""
        members = self._members(self.vpas[key], container)
        return [window for row in members.values() for window in self.rows.past_windows(row)]

    def held(self, key: VpaKey, container: str, fraction: float) -> PeakWindow | None:
        """Return the window that holds a memory percentile up, for explanations."""
        group = self.vpas[key].group(container)
        if not group.size:
            return None
        sums = merged(self.aggregates, [group])
        return holding(sums.memory, 0, self.windows_of(key, container), fraction)

    def matched(self) -> dict[VpaKey, int]:
        """Return the number of pods per VPA, finished ones too, of VPAs that have a target
        and any.
        """
        counts: dict[VpaKey, int] = {}
        for (namespace, labels), count in self._pod_counts.items():
            for key in self._membership.of(namespace, labels):
                if self.vpas[key].is_resolved:
                    counts[key] = counts.get(key, 0) + count
        return counts

    def is_matched(self, key: VpaKey) -> bool:
        """Return whether ``matched`` has one VPA, at the cost of its own label sets only."""
        return self.vpas[key].is_resolved and any(
            (key.namespace, labels) in self._pod_counts for labels in self._membership.matching(key)
        )

    def runs(self, key: VpaKey) -> bool:
        """Return whether a pod of the VPA is neither succeeded nor failed."""
        named = self.vpas[key].columns.values()
        return any(self._is_live(aggregate) for columns in named for aggregate in columns)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether any VPA means pods with these labels."""
        return bool(self._membership.asked(namespace, canonical(labels)))

    @property
    def tracked(self) -> int:
        return len(self._entries)

    def collect(self, now: float) -> int:
        """Forget aggregates that are silent for too long, or empty with no pod behind."""
        kept_s = self.windows.interval_s * self.windows.interval_count
        for vpa in [vpa for vpa, each in self._parked.items() if now - each.since_s >= kept_s]:
            self.aggregates.close(as_rows(*self._parked.pop(vpa).initial.values()))
        keys = list(self._entries)
        columns = np.array([self._entries[key].column for key in keys], dtype=np.intp)
        in_use = np.array([self._is_live(key) for key in keys], dtype=np.bool_)
        expendable = self.aggregates.expendable(columns, now, in_use)
        # Containers that still run go on in the same column, emptied.
        emptied = columns[expendable & in_use]
        self.aggregates.reset(emptied, now)
        for i in np.flatnonzero(expendable & ~in_use):
            self._drop(keys[i])
        return int(expendable.sum())

    def _open(self, key: ContainerKey, labels: Labels, now: float) -> None:
        namespace, pod, container = key
        aggregate = AggregateKey(namespace, container, labels)
        entry = self._entries.get(aggregate)
        if entry is None:
            column = int(self.aggregates.open(1, now, self.windows)[0])
            entry = self._entries[aggregate] = AggregateEntry(column, self.windows, set())
            self._with_labels.setdefault((namespace, labels), []).append(aggregate)
            for vpa in self._membership.of(namespace, labels):
                self._link(self.vpas[vpa], aggregate)
                self._configure(aggregate, self.vpas[vpa], now)
        row = self._row_of[key] = self.rows.open(entry.column, entry.windows)
        entry.users.add(key)
        self._batch = None
        for vpa in self._membership.of(namespace, labels):
            self._resume(self.vpas[vpa], container, pod, row)

    def _close(self, namespace: str, pod: str, labels: Labels, containers: Iterable[str]) -> None:
        for container in containers:
            key = (namespace, pod, container)
            row = self._row_of.pop(key, None)
            if row is not None:
                self.rows.close(row)
                self._entries[AggregateKey(namespace, container, labels)].users.discard(key)
                self._batch = None

    def _uncount(self, namespace: str, pod: PodEntry) -> None:
        self._pod_counts[namespace, pod.labels] -= 1
        if not self._pod_counts[namespace, pod.labels]:
            del self._pod_counts[namespace, pod.labels]

    def _is_live(self, aggregate: AggregateKey) -> bool:
        return any(self._pods[ns, pod].is_active for ns, pod, _ in self._entries[aggregate].users)

    def _link(self, entry: VpaEntry, aggregate: AggregateKey) -> None:
        named = entry.columns.setdefault(aggregate.container, {})
        named[aggregate] = self._entries[aggregate].column
        self.version += 1

    def _configure(self, aggregate: AggregateKey, entry: VpaEntry, now: float) -> None:
        # Several VPAs may share an aggregate; the one that was put last sets it up.
        mine = self._entries[aggregate]
        windows = mine.windows = self._windows(entry, aggregate.container)
        self.aggregates.keep(as_rows(mine.column), windows)
        self.aggregates.set_half_lives(as_rows(mine.column), entry.settings.half_lives, now)
        for key in mine.users:
            self.rows.interval[self._row_of[key]] = windows.interval_s

    def _windows(self, entry: VpaEntry, container: str) -> Windows:
        policy = container_policy(entry.vpa.spec.resource_policy, container)
        return windows_of(policy, self.windows, per_vpa_config=self.per_vpa_config)

    def _resume(self, entry: VpaEntry, container: str, pod: str, row: int) -> None:
        window = entry.pending.get(container, {}).pop(pod, None)
        initial = entry.initial.get(container)
        if window is not None and initial is not None:
            checkpoints.resume(self.aggregates, initial, self.rows, row, window)

    def _members(self, entry: VpaEntry, container: str) -> dict[str, int]:
        return {
            key[1]: self._row_of[key]
            for aggregate in entry.columns.get(container, {})
            for key in self._entries[aggregate].users
        }

    def _drop(self, aggregate: AggregateKey) -> None:
        mine, labels = self._entries[aggregate], aggregate.labels
        for key in self._membership.of(aggregate.namespace, labels):
            named = self.vpas[key].columns.get(aggregate.container, {})
            named.pop(aggregate, None)
            if not named:
                self.vpas[key].columns.pop(aggregate.container, None)
        # Only finished pods can be left; their containers never have a sample again.
        for namespace, pod, container in list(mine.users):
            self._close(namespace, pod, labels, [container])
        del self._entries[aggregate]
        self.aggregates.close(as_rows(mine.column))
        alike = self._with_labels[aggregate.namespace, labels]
        alike.remove(aggregate)
        if not alike:
            del self._with_labels[aggregate.namespace, labels]
            self._membership.forget(aggregate.namespace, labels)
        self.version += 1
