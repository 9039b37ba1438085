"""Writes: the scale, the status. Everything goes through an ``Api`` that is fenced by the Lease.

Follows the end of ``reconcileAutoscaler``: a scale PUT is repeated on conflicts only, five
attempts in all, each with the newest resourceVersion, the first with the newest that a watch has
told of. Unlike upstream's, an attempt is made
only while nothing speaks against it, and while the target is the one that was decided on, in
its size: what another wrote meanwhile is decided on, not undone.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec import Struct

from hpa.cluster import statuses
from hpa.cluster.objects import Autoscaler
from hpa.cluster.record import AutoscalerRecord, TargetScale
from hpa.cluster.targets import ScaleTargets
from hpa.decide.api.spec import HpaStatus
from hpa.decide.decision import Outcome
from hpa.decide.observation import Scale
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import (
    ApiUnreachable,
    KubeError,
    ServerFailed,
    WriteConflict,
)
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.store import Store
from podscale.kube.objects import scale as wire

_ATTEMPTS = 5
_PAUSE_S = 0.01
_TIMEOUT_S = 10.0
# An API server that answers 5xx may have stored (etcd's answer came too late for it).
_UNKNOWN = (ApiUnreachable, ServerFailed, msgspec.DecodeError)


class ScaleAnswer(Struct, frozen=True):
    """What became of one scale write."""

    outcome: Outcome
    is_lost: bool = False  # the last attempt may have gone in without an answer


class AutoscalerWriter:
    """Writes scales and statuses of one resource's autoscalers."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        store: Store[Autoscaler],
        targets: ScaleTargets,
        writes: Counter[tuple[str, ...]],
    ) -> None:
        """``writes`` counts requests by ``scale`` or ``status`` and what became of them."""
        self._api = api
        self._resource = resource
        self._store = store
        self._targets = targets
        self._writes = writes

    async def rescale(
        self,
        record: AutoscalerRecord,
        seen: TargetScale,
        replicas: int,
        *,
        may: Callable[[], bool],
    ) -> ScaleAnswer:
        """Write the size; ``may`` is asked before each attempt. Raises ``NotLeading`` when
        nothing may be written any more."""
        resource, decided_on = seen.resource, seen
        if resource is None:
            return ScaleAnswer(Outcome("failed", "the target's resource is not known"))
        namespace, name = record.target[0], record.target[3]
        error = ""
        for attempt in range(_ATTEMPTS):
            is_sent = False
            # The target's own controller writes its status while metrics are waited for.
            newest = None if attempt else self._targets.at_hand(record)
            if newest is not None and _is_same(decided_on, newest):
                seen = newest
            try:
                if attempt:
                    await asyncio.sleep(_PAUSE_S * random.uniform(1.0, 1.1))
                    seen = await self._targets.get(resource, namespace, name)
                    if not _is_same(decided_on, seen):
                        # Perhaps ours: a PUT whose connection broke is sent again below us,
                        # and the second meets a conflict with the first.
                        return ScaleAnswer(Outcome("conflict", error), _has(seen, replicas))
                if not may():
                    return ScaleAnswer(Outcome("not_tried"))
                is_sent = True
                scale = await self._put(resource, namespace, name, seen, replicas)
            except WriteConflict as conflict:
                self._writes["scale", "conflict"] += 1
                error = str(conflict)
                continue
            except (KubeError, msgspec.DecodeError) as failure:
                self._writes["scale", "error"] += 1
                # Not sent: the conflict before it may have been one with ourselves, as above.
                is_lost = not is_sent or isinstance(failure, _UNKNOWN)
                return ScaleAnswer(Outcome("failed", str(failure)), is_lost)
            self._writes["scale", "ok"] += 1
            self._targets.accept(record, scale)
            return ScaleAnswer(Outcome("written"))
        return ScaleAnswer(Outcome("conflict", error))

    async def write_status(
        self, record: AutoscalerRecord, version: str, old: HpaStatus, new: HpaStatus
    ) -> str | None:
        """Patch what differs from ``old``, the status at ``version``; returns why that failed.

        Raises ``NotLeading``.
        """
        patch = {"metadata": {"resourceVersion": version}, "status": statuses.changes(old, new)}
        try:
            answer = await self._api.request(
                "PATCH",
                self._resource.path(*record.key, "status"),
                body=encode(patch),
                content_type=MERGE_PATCH,
                timeout_s=_TIMEOUT_S,
            )
            self._store.accept(decode(answer.body, Autoscaler))
        except (KubeError, msgspec.DecodeError) as failure:
            result = "conflict" if isinstance(failure, WriteConflict) else "error"
            self._writes["status", result] += 1
            return str(failure)
        self._writes["status", "ok"] += 1
        return None

    async def _put(
        self, resource: Resource, namespace: str, name: str, seen: TargetScale, replicas: int
    ) -> wire.WireScale:
        metadata = {
            "name": name,
            "namespace": namespace,
            "resourceVersion": seen.resource_version,
            "uid": seen.uid,
        }
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": {"replicas": replicas},
        }
        answer = await self._api.request(
            "PUT",
            resource.path(namespace, name, "scale"),
            body=encode(body),
            timeout_s=_TIMEOUT_S,
        )
        return decode(answer.body, wire.WireScale)


def _has(seen: TargetScale, replicas: int) -> bool:
    return isinstance(seen.scale, Scale) and seen.scale.spec_replicas == replicas


def _is_same(before: TargetScale, after: TargetScale) -> bool:
    if not isinstance(before.scale, Scale) or not isinstance(after.scale, Scale):
        return False
    return before.uid == after.uid and before.scale.spec_replicas == after.scale.spec_replicas
