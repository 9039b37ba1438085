"""The scale of a target: from the watched workloads, or by one GET for every other kind.

Texts of failures are the API server's, because they reach conditions and events.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import cast

import msgspec
import structlog
from msgspec.structs import replace

from hpa.cluster.record import AutoscalerRecord, TargetScale, WatchedScale
from hpa.cluster.stores import HpaStores, TargetWorkload, is_part, is_unreadable
from hpa.decide.observation import Scale, ScaleUnreadable, UnreadableKind
from podscale.core.goquote import quote
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import SelectorError
from podscale.kube.client import resource as served
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, KubeError, NoMatch, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.kube.discovery import KindResources
from podscale.kube.informer.store import Store
from podscale.kube.objects import scale as wire

_log = structlog.get_logger()

_TIMEOUT_S = 5.0
# A watch that is not to be believed for as long, while others are, may stay so: a right was taken
# away, or etcd cannot read one object of the kind. What it told last is not waited on any longer.
# A healthy one of a kind that never changes is not doubted: silent for 90 s, it begins anew, and is
# believed again once the API server has answered it and lists one object.
_DOUBTED_S = 180.0

Workload = wire.Workload | wire.ReplicationController
_Store = Store[wire.Workload] | Store[wire.ReplicationController]


class ScaleTargets:
    """Reads scales."""

    def __init__(self, api: Api, kinds: KindResources, stores: HpaStores) -> None:
        self._api = api
        self._kinds = kinds
        self._silent: frozenset[tuple[str, str]] = frozenset()  # kinds that are read by GET
        self._workloads: Mapping[tuple[str, str], tuple[served.Resource, _Store]] = {
            ("apps", "Deployment"): (served.DEPLOYMENTS, stores.deployments),
            ("apps", "StatefulSet"): (served.STATEFUL_SETS, stores.stateful_sets),
            ("apps", "ReplicaSet"): (served.REPLICA_SETS, stores.replica_sets),
            ("", "ReplicationController"): (
                served.REPLICATION_CONTROLLERS,
                stores.replication_controllers,
            ),
        }

    def at_hand(self, record: AutoscalerRecord) -> TargetScale | None:
        """Return the scale if no request is needed for it."""
        namespace, group, kind, name = record.target
        watched = self._workloads.get((group, kind))
        if watched is None:
            return None
        resource, store = watched
        if not store.is_synced or (group, kind) in self._silent:
            return None
        workload, kept = store.get(namespace, name), record.observed.scale
        record.foreign.is_target_unreadable = isinstance(
            workload, TargetWorkload
        ) and is_unreadable(workload.metadata.last_writer("scale"))
        if kept is not None and kept.workload is workload:
            return kept.target
        if workload is not None and is_part(workload):
            return None
        target = _watched(resource, workload, name)
        record.observed.scale = None if workload is None else WatchedScale(workload, target)
        return target

    def is_current(
        self, record: AutoscalerRecord, target: TargetScale, *, since: float = math.inf
    ) -> bool:
        """Whether a scale may be believed, and could be ``since``."""
        if target.is_read:
            return True
        namespace, group, kind, _ = record.target
        watched = self._workloads.get((group, kind))
        return watched is None or watched[1].is_current(since=since, namespace=namespace)

    def note_silence(self, now: float, *, is_other_heard: bool) -> None:
        """Choose the kinds whose scales are read by GET though they were listed once.

        ``is_other_heard``: the API server tells what changes of other things, and so can be asked.
        """
        silent = frozenset(
            kind
            for kind, (_, store) in self._workloads.items()
            if store.is_synced
            # Once chosen until it is heard again: what it told last grows no younger.
            and (is_other_heard or kind in self._silent)
            and not store.is_current(now)
            and store.freshness(now).doubted_s > _DOUBTED_S
        )
        if silent - self._silent:
            kinds = sorted(kind for _, kind in silent)
            _log.warning("watch silent: scales are read by GET", kinds=kinds)
        self._silent = silent

    async def fetch(self, record: AutoscalerRecord) -> TargetScale:
        """Return the scale by GET; the first mapping that has one wins, as upstream's.

        The version that the reference names is not looked at, as there.
        """
        namespace, group, kind, name = record.target
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                resources = await self._kinds.for_kind(kind, group)
        except NoMatch as error:
            return TargetScale(ScaleUnreadable(str(error), "mapping", "NotFound"))
        except (KubeError, TimeoutError) as error:
            return TargetScale(ScaleUnreadable(str(error) or "discovery timed out", "mapping"))
        first: ScaleUnreadable | None = None
        for resource in resources:
            try:
                return await self.get(resource, namespace, name)
            except (KubeError, msgspec.DecodeError) as error:
                first = first or ScaleUnreadable(str(error), "get", _kind_of(error))
        return TargetScale(first or ScaleUnreadable("unrecognized resource", "get", "NotFound"))

    def accept(self, record: AutoscalerRecord, written: wire.WireScale) -> None:
        """Make our own write visible at once: the answer carries the workload's version."""
        namespace, group, kind, name = record.target
        watched = self._workloads.get((group, kind))
        workload = watched[1].get(namespace, name) if watched is not None else None
        if watched is not None and workload is not None:
            store = cast("Store[Workload]", watched[1])  # a store gives what it takes
            version = written.metadata.resource_version
            spec = replace(workload.spec, replicas=written.spec.replicas)
            meta = replace(workload.metadata, resource_version=version)
            store.accept(replace(workload, metadata=meta, spec=spec))

    async def get(self, resource: served.Resource, namespace: str, name: str) -> TargetScale:
        """Return the newest scale by GET; raises ``KubeError`` and ``DecodeError``."""
        answer = await self._api.request(
            "GET", resource.path(namespace, name, "scale"), timeout_s=_TIMEOUT_S
        )
        scale = decode(answer.body, wire.WireScale)
        return TargetScale(
            Scale(scale.spec.replicas, scale.status.replicas, converted(scale.status.selector)),
            resource,
            scale.metadata.resource_version,
            scale.metadata.uid,
            is_read=True,
        )


def _watched(resource: served.Resource, workload: Workload | None, name: str) -> TargetScale:
    if workload is None:
        text = f'{resource.group_resource} "{name}" not found'
        return TargetScale(ScaleUnreadable(text, "get", "NotFound"), resource)
    meta, spec = workload.metadata, workload.spec
    try:
        selector = "" if spec.selector is None else str(wire.selector_of(spec.selector))
    except SelectorError as error:
        return TargetScale(ScaleUnreadable(since_1_36(str(error)), "get", "Selector"), resource)
    replicas = 1 if spec.replicas is None else spec.replicas
    scale = Scale(replicas, workload.status.replicas, selector)
    return TargetScale(scale, resource, meta.resource_version, meta.uid)


def _kind_of(error: Exception) -> UnreadableKind:
    if isinstance(error, ObjectNotFound):
        return "NotFound"
    if isinstance(error, NotConvertible):
        return "Selector"
    return "Forbidden" if isinstance(error, Forbidden) else "Other"


_NOT_CONVERTIBLE = (
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
    "failed to parse target selector: "
)


class NotConvertible(KubeError):
    """The scale's selector has no object form; the message is upstream's."""


def converted(text: str) -> str:
    """Return the canonical text of a scale's selector; of several ``=`` on one key the last stays.

    Follows ``scale/client.go`` (``convertToScale``) and ``ParseToLabelSelector``, Kubernetes 1.36
    and 1.37: client-go turns the selector into an object and back. Raises ``NotConvertible`` for
    what the object form has no word for, as there, before the HPA sees the scale.
    """
    try:
        found = selectors.parse(text)
    except SelectorError as error:
        said = since_1_36(str(error))
        raise NotConvertible(
            f'{_NOT_CONVERTIBLE}couldn\'t parse the selector string "{text}": {said}'
        ) from None
    for requirement in found.requirements:
        if requirement.operator in ("gt", "lt"):
            shown = f"{quote(requirement.operator)} isn't supported in label selectors"
            raise NotConvertible(_NOT_CONVERTIBLE + shown)
        if requirement.operator == "!=":
            raise NotConvertible(f'{_NOT_CONVERTIBLE}"!=" is not a valid label selector operator')
    return str(selectors.from_wire(selectors.to_wire(found) or {}))
