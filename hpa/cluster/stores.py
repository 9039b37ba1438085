"""The watches that the HPA lives on: its objects, the pods, the workloads it scales, and the VPAs
that have the same target; and what is kept of each.

``PodAutoscaler`` of ``autoscaling.podscale.io`` has the HPA's schema, so one type serves both;
which resource is acted on is a parameter everywhere else.
"""

import asyncio
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import astuple, replace

from hpa.decide.api.spec import HPA
from hpa.decide.metrics.measuring import is_utilization_of_cpu
from hpa.decide.observation import HeldTarget
from hpa.decide.settings import Settings
from podscale.coordinate.anchor import ANNOTATION, anchor_clause, parse
from podscale.coordinate.pairing import pair
from podscale.core.json_decoder import JsonDecoder
from podscale.core.settings import PREFIX
from podscale.kube.client import resource as resources
from podscale.kube.client import wire
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store, StoreIndex
from podscale.kube.objects.autoscaler import (
    Autoscaler,
    AutoscalerSpec,
    CrossVersionObjectReference,
)
from podscale.kube.objects.scale import ReplicationController, Workload
from podscale.kube.objects.vpa import ObjectError, StoredVpa, Vpa, read, vpa_of

V = TypeVar("V")
MOST_SHARED = 2000  # fields of one value: no autoscaler of some ten metrics has more
TargetKey = tuple[str, str, str, str]  # namespace, group, kind, name


class TargetWorkload(Workload, frozen=True, gc=False, rename="camel", kw_only=True):
    """A Deployment or StatefulSet. Not a ReplicaSet: there are ten times as many, most of
    them at zero, and what scales one owns it."""

    metadata: wire.ManagedMeta


def is_part(found: Workload | ReplicationController) -> bool:
    """Whether a workload is a Deployment's ReplicaSet: scaling it would be undone, so that its
    selector is not kept. Whoever scales it all the same reads its scale by GET."""
    owner = found.metadata.controller
    return (
        not isinstance(found, TargetWorkload)
        and owner is not None
        and owner.kind == "Deployment"
        and owner.api_version.startswith("apps/")
    )


def target_of(namespace: str, reference: CrossVersionObjectReference) -> TargetKey:
    """Return what ``reference`` names, whatever version it is written in."""
    return (namespace, *reference.key)


def is_unreadable(writer: wire.ManagedField | None) -> bool:
    """Whether who wrote was left out, because managedFields nest too deep."""
    return writer is not None and writer.manager == wire.UNREADABLE_MANAGER


def kept_autoscaler(written: Autoscaler) -> Autoscaler:
    """Return an equal autoscaler, but for its owners and annotations of others."""
    meta, spec = written.metadata, _with_shared_texts(written.spec)
    target = spec.scale_target_ref
    if target.name == meta.name:  # nearly always
        spec = replace(spec, scale_target_ref=replace(target, name=meta.name))
    meta = replace(
        meta,
        namespace=sys.intern(meta.namespace),
        annotations=_ours(meta.annotations),
        owner_references=(),
        managed_fields=_with_shared_texts(meta.managed_fields),
    )
    return Autoscaler(meta, spec, _with_shared_texts(written.status))


def kept_claim(written: Autoscaler) -> Autoscaler:
    """Return what an in-tree HPA tells of whose target it scales."""
    spec = AutoscalerSpec(written.spec.scale_target_ref)
    return kept_autoscaler(Autoscaler(written.metadata, spec))


def kept_workload(found: Workload) -> Workload:
    """Return an equal workload, but for labels and annotations.

    A Deployment's ReplicaSets, ten for each, have no selector either: a dict of two labels
    takes as much as ten texts.
    """
    meta, spec = found.metadata, found.spec
    meta = replace(
        meta,
        namespace=sys.intern(meta.namespace),
        labels=None,
        annotations=None,
        owner_references=_with_shared_texts(meta.owner_references),
    )
    if isinstance(found, TargetWorkload):
        managed = _with_shared_texts(found.metadata.managed_fields)
        meta = replace(meta, managed_fields=managed)
    elif is_part(found):
        spec = replace(spec, selector=None)
    return replace(found, metadata=meta, spec=spec)


def _with_shared_texts(value: V) -> V:
    """Return an equal value of structs, tuples and texts, each text kept once, but for what is
    beyond ``MOST_SHARED``. Amounts and times, of which there is no end, are kept once within the
    value only: CPython 3.12.0 to 3.12.6 keep what they intern for ever.
    """
    varying: dict[str, str] = {}
    numbers = iter(range(MOST_SHARED))

    def shared(value: object) -> object:
        if next(numbers, None) is None:
            return value
        if isinstance(value, str):
            return varying.setdefault(value, value) if value[:1].isdigit() else sys.intern(value)
        if isinstance(value, tuple):
            return tuple(map(shared, value))
        return type(value)(*map(shared, astuple(value))) if isinstance(value, Struct) else value

    return shared(value)  # type: ignore[return-value]


def _ours(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)} or None


T = TypeVar("T", bound=wire.HasMetadata)

_log = structlog.get_logger()

_PATIENCE_S = 60.0  # with the lists that can be done without


class HpaStores:
    def __init__(self, namespaces: Sequence[str], pods: PodStore) -> None:
        """``namespaces``: only these; none named is all. ``pods`` are fed by others."""
        self.scopes = tuple(namespaces) or ("",)
        self.autoscalers: Store[Autoscaler] = Store(self.scopes, keep=kept_autoscaler)
        self.pods = pods
        self.deployments: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.stateful_sets: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.replica_sets: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.replication_controllers: Store[ReplicationController] = Store(self.scopes)
        # Fed where ours is another resource.
        self.claims: Store[Autoscaler] = Store(self.scopes, keep=kept_claim)
        # Both would scale a target, and the in-tree one does not read ours: we stand still.
        self.claimed = StoreIndex(self.claims, _claimed)
        self._has_claims = False
        self.anchors = VpaAnchors(self.scopes)

    async def run(
        self,
        api: Api,
        resource: resources.Resource,
        *,
        selector: str = "",
        rhythm: WatchTiming = DEFAULT_RHYTHM,
    ) -> None:
        """Feed every store but the pods' for ever. ``selector`` narrows the autoscalers."""
        self._has_claims = resource != resources.HPAS

        def watch(
            what: resources.Resource, as_: type[T], store: Store[T], labels: str = ""
        ) -> None:
            source = WatchSource(what, as_, label_selector=labels, rhythm=rhythm)
            group.create_task(Reflector(api, source, store).run())

        async with asyncio.TaskGroup() as group:
            if self._has_claims:
                watch(resources.HPAS, Autoscaler, self.claims)
            group.create_task(self.anchors.run(api, rhythm))
            watch(resource, Autoscaler, self.autoscalers, selector)
            watch(resources.DEPLOYMENTS, TargetWorkload, self.deployments)
            watch(resources.STATEFUL_SETS, TargetWorkload, self.stateful_sets)
            watch(resources.REPLICA_SETS, Workload, self.replica_sets)
            watch(
                resources.REPLICATION_CONTROLLERS,
                ReplicationController,
                self.replication_controllers,
            )

    async def wait_synced(self) -> None:
        """Wait for the first lists, but not for what may not be listed, and not for ever for what
        cannot be: a workload is read by GET instead, and an in-tree HPA on a target of ours then
        shows by its deeds only."""
        await self.autoscalers.wait_synced()
        await self.pods.wait_synced()
        now = asyncio.get_running_loop().time
        until = now() + _PATIENCE_S
        for name, store in (
            ("deployments", self.deployments),
            ("statefulsets", self.stateful_sets),
            ("replicasets", self.replica_sets),
            ("replicationcontrollers", self.replication_controllers),
            *([("horizontalpodautoscalers", self.claims)] if self._has_claims else ()),
        ):
            if not await store.wait_listed(until - now()):
                # One object that etcd cannot read fails the list of its kind for ever.
                _log.error("not listed, going on without", resource=name)

    @property
    def is_synced(self) -> bool:
        return self.autoscalers.is_synced and self.pods.is_synced

    def is_current(self, *, since: float = math.inf, namespace: str | None = None) -> bool:
        """Whether the watches of autoscalers and pods, or of those of one namespace, may be
        believed, and could be ``since``."""
        return all(
            store.is_current(since=since, namespace=namespace)
            for store in (self.autoscalers, self.pods)
        )


def _claimed(claim: Autoscaler) -> tuple[TargetKey, str]:
    meta = claim.metadata
    name = f"HorizontalPodAutoscaler/{meta.name}"
    return target_of(meta.namespace, claim.spec.scale_target_ref), name


class VpaAnchors:
    """The VPAs and their anchors, by target."""

    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.store: Store[StoredVpa] = Store(scopes)
        self._is_wanted = asyncio.Event()
        self.by_target = StoreIndex(self.store, _target_vpa)

    async def run(self, api: Api, rhythm: WatchTiming) -> None:
        """Watch for ever, from when somebody is to be coordinated."""
        await self._is_wanted.wait()
        await Reflector(
            api, WatchSource(resources.VPAS, StoredVpa, rhythm=rhythm), self.store
        ).run()

    async def wait_listed(self) -> None:
        """Wait for the first list: before it, pods that are smaller than their anchor would look
        overloaded. Not for ever: whoever has to grow grows."""
        self._is_wanted.set()
        if not await self.store.wait_listed(_PATIENCE_S):
            _log.error("not listed, going on without", resource="verticalpodautoscalers")

    def held(self, hpa: HPA, uid: str) -> HeldTarget:
        """Return what holds the target of ``hpa``, which is to be coordinated, and whose workload
        has that UID."""
        self._is_wanted.set()
        containers = (each.container for each in hpa.metrics if is_utilization_of_cpu(each))
        container = next(containers, None)
        if container is not None and not self._are_known():
            text = "the VPAs are not known at present"
            return HeldTarget("VpasUnknown", text, container, may_shrink=False)
        vpas = self.by_target.get((hpa.namespace, *hpa.target.key))
        found = pair(container, list(vpas))
        if found.vpa is None or container is None:
            return HeldTarget(found.reason, found.text)
        if found.vpa.spec.target_ref is None:
            text = f"the spec of VPA {found.vpa.metadata.name} cannot be read"
            return HeldTarget("VpasUnknown", text, container, may_shrink=False)
        notes = found.vpa.metadata.annotations or {}
        anchor = parse(notes.get(ANNOTATION), uid, container)
        if anchor is None:
            text = f"{found.text}, and has no anchor of this target yet"
            return HeldTarget("NoAnchor", text, container, may_shrink=False)
        return HeldTarget("AnchorHeld", f"{found.text}; {anchor_clause(anchor)}", container, anchor)

    def _are_known(self) -> bool:
        # A cluster without the CRD has no VPAs, and nobody will tell of any.
        is_absent = isinstance(self.store.freshness().error, ObjectNotFound)
        return self.store.is_current() or (is_absent and not self.store.is_synced)


def is_coordinated(hpa: HPA, settings: Settings) -> bool:
    """Return whether ``hpa`` is to be coordinated with a VPA: as its annotation says, or the flag;
    in shadow mode whoever acts knows no anchor."""
    asked = hpa.options.coordinates
    return settings.mode != "shadow" and (settings.coordinates if asked is None else asked)


class _TargetSpec(Struct, frozen=True, rename="camel"):
    """What a VPA's spec has to say for its HPA to know of it."""

    target_ref: CrossVersionObjectReference | None = None


_TARGET = JsonDecoder(_TargetSpec)


def _target_vpa(stored: StoredVpa) -> tuple[TargetKey, Vpa] | None:
    """Return a VPA by its target; without a spec where no more than the target can be read."""
    try:
        target = read(_TARGET, stored.spec, "spec").target_ref
    except ObjectError:
        return None
    vpa = Vpa(stored.metadata)
    with suppress(ObjectError):
        vpa = vpa_of(stored)
    return None if target is None else ((stored.metadata.namespace, *target.key), vpa)
