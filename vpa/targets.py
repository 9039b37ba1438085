"""Which pods a VPA means, and which controller stands on top of a pod.

Well-known controllers come from watches; every other kind through its scale subresource,
remembered for a while. Follows upstream's ``target/fetcher.go`` and
``controllerfetcher/controller_fetcher.go``.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from podscale.core.boundedcache import BoundedCache
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.labels import is_subdomain
from podscale.core.selectors.selector import Selector, SelectorError
from podscale.kube.client import resource as resources
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, KubeError, ObjectNotFound
from podscale.kube.client.wire import HasMetadata, LabelSelector, OwnerReference, decode
from podscale.kube.discovery import KindResources
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.scale import CronJob, ReplicationController, Workload, selector_of
from vpa.admission.matching import OwningController
from vpa.explain.recommendation import TargetState
from vpa.scale_cache import ScaleCache

T = TypeVar("T", bound=HasMetadata)

_KINDS: Mapping[str, resources.Resource] = {
    "DaemonSet": resources.DAEMON_SETS,
    "Deployment": resources.DEPLOYMENTS,
    "ReplicaSet": resources.REPLICA_SETS,
    "StatefulSet": resources.STATEFUL_SETS,
    "Job": resources.JOBS,
}
_TIMEOUT_S = 5.0
_ABSENT_S = 10.0  # how long a controller that is not there is not asked for again
_MOST_BYTES = 32 * 1024 * 1024  # of selectors; of what is not there an eighth
_SELECTOR_BYTES = 800
_DEEPEST = 10
_PATIENCE_S = 0.5  # of a review, with what has been slow before

TargetController = Workload | ReplicationController | CronJob
_Written = LabelSelector | Mapping[str, str] | None


class ResolvedTarget(Struct, frozen=True):
    """What became of a targetRef; ``unsupported`` is the message of ConfigUnsupported."""

    selector: Selector | None
    unsupported: str | None = None
    state: TargetState = TargetState(True)


class _Climbed(Struct, frozen=True):
    # The last controller on the way up; a problem: who stands there cannot be said.
    top: OwningController | None
    problem: str = ""


class Workloads:
    """The watches of well-known controllers, and scales of all others."""

    def __init__(
        self,
        api: Api,
        kinds: KindResources,
        scopes: tuple[str, ...] = ("",),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self.by_kind: Mapping[str, Store[Workload]] = {kind: Store(scopes) for kind in _KINDS}
        self.controllers: Store[ReplicationController] = Store(scopes)
        self.cron_jobs: Store[CronJob] = Store(scopes)
        self.scales = ScaleCache(api, kinds, clock=clock)
        self._clock = clock
        # By UID, parsed once per object: the store keeps the struct until it changes.
        self._selectors: BoundedCache[str, tuple[object, Selector | None]] = BoundedCache(
            _MOST_BYTES, age_s=3600.0
        )
        # Since when, by namespace, kind, name and UID: an owner that is invented is not that
        # of a pod, whose UID nobody knows before it is there.
        self._absences: BoundedCache[tuple[str, str, str, str], float] = BoundedCache(
            _MOST_BYTES // 8
        )

    async def run(self, rhythm: WatchTiming = DEFAULT_RHYTHM) -> None:
        """Feed the stores for ever."""

        def watch(what: resources.Resource, as_: type[T], store: Store[T]) -> None:
            source = WatchSource(what, as_, rhythm=rhythm)
            group.create_task(Reflector(self._api, source, store).run())

        try:
            async with asyncio.TaskGroup() as group:
                for kind, resource in _KINDS.items():
                    watch(resource, Workload, self.by_kind[kind])
                watch(resources.REPLICATION_CONTROLLERS, ReplicationController, self.controllers)
                watch(resources.CRON_JOBS, CronJob, self.cron_jobs)
        finally:
            await self.scales.stop()

    async def wait_synced(self) -> None:
        """Wait for the first lists; a kind that may not be listed has no objects."""
        for store in self._stores():
            await store.wait_listed()

    def is_current(self) -> bool:
        """Whether every watch may be believed; a kind that may not be listed has no objects."""
        return all(
            store.is_current()
            or (not store.is_synced and isinstance(store.freshness().error, Forbidden))
            for store in self._stores()
        )

    def find(self, namespace: str, kind: str, name: str) -> TargetController | None:
        if kind == "ReplicationController":
            return self.controllers.get(namespace, name)
        if kind == "CronJob":
            return self.cron_jobs.get(namespace, name)
        store = self.by_kind.get(kind)
        return store.get(namespace, name) if store is not None else None

    async def find_or_get(
        self, namespace: str, kind: str, name: str, uid: str = "", *, asks: bool = True
    ) -> TargetController | None:
        """Return a well-known controller; with ``asks`` also one that no watch has shown yet.

        The first pod of a Deployment is created milliseconds after its ReplicaSet. Raises
        ``KubeError`` or ``DecodeError`` when nobody can say; what may not be read is not there.
        """
        found = self.find(namespace, kind, name)
        resource = _KINDS.get(kind)
        if found is not None or resource is None or not asks or not is_subdomain(name):
            return found
        key, now = (namespace, kind, name, uid), self._clock()
        absent_since = self._absences.get(key)
        if absent_since is not None and now - absent_since < _ABSENT_S:
            return None
        try:
            path = resource.path(namespace, name)
            answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
            workload = decode(answer.body, Workload)
        except (ObjectNotFound, Forbidden):
            self._absences.put(key, now, 500 + sum(map(len, key)))
            return None
        self.by_kind[kind].accept(workload)
        return workload

    async def resolve(
        self, namespace: str, target: CrossVersionObjectReference | None, *, asks: bool = False
    ) -> ResolvedTarget:
        """Return the pods' selector of a targetRef, or what is wrong with it.

        ``asks``: do not take a controller for missing that no watch has shown yet.
        """
        if target is None:
            text = "Cannot read targetRef. Reason: spec.targetRef is not set"
            return ResolvedTarget(None, text, TargetState(False))
        if is_well_known(target.kind):
            found = await self.find_or_get(namespace, target.kind, target.name, asks=asks)
            if found is None:
                text = f"{target.kind} {namespace}/{target.name} {self._absent(target.kind)}"
                return _unreadable(text, TargetState(False))
            selector = self._selector_of(found)
        else:
            asked = await self.scales.get(namespace, target.api_version, target.kind, target.name)
            if asked.scale is None:
                return _unreadable(asked.problem, TargetState(False))
            selector = _selector(asked.scale.status.selector)
        if selector is None:
            text = f"{target.kind} {target.name} does not say which pods are its own"
            return _unreadable(text, TargetState(True, has_selector=False))
        owner = OwnerReference(target.kind, target.name, "", target.api_version, True)
        climbed = await self._climb(namespace, owner, asks=asks)
        named = f"{target.api_version}.{target.kind}/{target.name}"
        if climbed.problem:
            text = (
                f"Error checking if target {named} is a topmost well-known or scalable "
                f"controller: {climbed.problem}"
            )
            return ResolvedTarget(None, text, TargetState(True))
        top = climbed.top
        if top is not None and (top.kind, top.name) != (target.kind, target.name):
            text = (
                f"The target {named} has a parent controller but it should point to a topmost "
                "well-known or scalable controller"
            )
            return ResolvedTarget(None, text, TargetState(True, topmost=f"{top.kind}/{top.name}"))
        return ResolvedTarget(selector)

    async def topmost(
        self, namespace: str, owner: OwnerReference | None, *, asks: bool = False
    ) -> OwningController | None:
        """Return the last well-known or scalable controller on the way up from ``owner``.

        None also where somebody stands above and nobody could say who: a lower one would be
        sized although it may not be the topmost (``FindTopMostWellKnownOrScalable``). With
        ``asks``, as for ``resolve``, that raises ``KubeError`` or ``DecodeError``.
        """
        climbed = await self._climb(namespace, owner, asks=asks)
        if asks and climbed.problem:
            raise KubeError(climbed.problem)
        return climbed.top

    async def _climb(self, namespace: str, owner: OwnerReference | None, *, asks: bool) -> _Climbed:
        patience_s = _PATIENCE_S if asks else 0.0
        top: OwningController | None = None
        visited: set[tuple[str, str, str]] = set()
        for _ in range(_DEEPEST + 1):  # the last finds that nobody stands above
            if owner is None or owner.kind == "Node":
                return _Climbed(top)
            step = (owner.api_version, owner.kind, owner.name)
            if step in visited:
                return _Climbed(None, "cycle detected in ownership chain")
            visited.add(step)
            if not is_well_known(owner.kind):
                asked = await self.scales.get(namespace, *step, patience_s=patience_s)
                if not asked.is_answered:
                    return _Climbed(None, asked.problem)
                if asked.scale is None:
                    return _Climbed(top)
                top = OwningController(namespace, owner.kind, owner.name)
                owner = asked.scale.metadata.controller
                continue
            found = await self.find_or_get(namespace, owner.kind, owner.name, owner.uid, asks=asks)
            top = OwningController(namespace, owner.kind, owner.name)
            owner = found.metadata.controller if found is not None else None
        return _Climbed(None, f"more than {_DEEPEST} owners above each other")

    def ask_ahead(self, targets: Iterable[tuple[str, CrossVersionObjectReference | None]]) -> None:
        """Begin to ask for what ``resolve`` will want to know, all at once."""
        for namespace, target in targets:
            if target is not None and not is_well_known(target.kind):
                self.scales.begin(namespace, target.api_version, target.kind, target.name)

    def _stores(self) -> list[Store[Workload] | Store[ReplicationController] | Store[CronJob]]:
        return [*self.by_kind.values(), self.controllers, self.cron_jobs]

    def _absent(self, kind: str) -> str:
        store = self.by_kind.get(kind)
        error = store.freshness().error if store is not None and not store.is_synced else None
        return f"may not be read: {error}" if isinstance(error, Forbidden) else "does not exist"

    def _selector_of(self, found: TargetController) -> Selector | None:
        if isinstance(found, CronJob):
            written: _Written = found.spec.job_template.spec.template.metadata.labels
        else:
            written = found.spec.selector
        uid = found.metadata.uid
        known = self._selectors.get(uid)
        if known is not None and known[0] is written:
            return known[1]
        selector = _selector(written)
        size = _SELECTOR_BYTES + 20 * len(str(selector))
        self._selectors.put(uid, (written, selector), size)
        return selector


def is_well_known(kind: str) -> bool:
    """Return whether upstream knows the kind by name, of whatever group."""
    return kind in _KINDS or kind in ("ReplicationController", "CronJob")


def _unreadable(reason: str, state: TargetState) -> ResolvedTarget:
    return ResolvedTarget(None, f"Cannot read targetRef. Reason: {reason}", state)


def _selector(written: _Written | str) -> Selector | None:
    # An empty selector would match every pod of the namespace.
    if not written:
        return None
    try:
        return selectors.parse(written) if isinstance(written, str) else selector_of(written)
    except SelectorError:
        return None
