"""Writes: the scale, the status, and whose turn it is. Everything goes through an ``Api`` that is
fenced by the Lease.

Follows the end of ``reconcileAutoscaler``: a scale PUT is repeated on conflicts only, five
attempts in all, each with the newest resourceVersion, the first with the newest that a watch has
told of. Unlike upstream's, an attempt is made only while nothing speaks against it, and while the
target is the one that was decided on, in its size: what another wrote meanwhile is decided on, not
undone.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count as counted

import msgspec
from msgspec import Struct

from hpa.cluster.record import AutoscalerRecord, TargetScale
from hpa.cluster.targets import ScaleTargets
from hpa.decide.api.spec import (
    HPA,
    HpaStatus,
    MetricSpec,
    MetricStatus,
)
from hpa.decide.decision import Outcome
from hpa.decide.observation import Scale
from podscale.core.quantity import format_milli
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client import errors
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import builtins, decode, encode
from podscale.kube.informer.store import Store
from podscale.kube.objects import scale as wire
from podscale.kube.objects.autoscaler import METRIC_FIELDS, Autoscaler, AutoscalerCondition

_ATTEMPTS = 5
_PAUSE_S = 0.01
_TIMEOUT_S = 10.0
# An API server that answers 5xx may have stored (etcd's answer came too late for it).
_UNKNOWN = (errors.ApiUnreachable, errors.ServerFailed, msgspec.DecodeError)


class ScaleAnswer(Struct, frozen=True):
    """What became of one scale write."""

    outcome: Outcome
    is_lost: bool = False  # the last attempt may have gone in without an answer


class AutoscalerWriter(Struct, eq=False):
    """Writes scales and statuses of one resource's autoscalers."""

    api: Api
    resource: Resource
    store: Store[Autoscaler]
    targets: ScaleTargets
    writes: Counter[tuple[str, ...]]  # requests by ``scale`` or ``status``, what became of them

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
            newest = None if attempt else self.targets.at_hand(record)
            if newest is not None and _is_same(decided_on, newest):
                seen = newest
            try:
                if attempt:
                    await asyncio.sleep(_PAUSE_S * random.uniform(1.0, 1.1))
                    seen = await self.targets.get(resource, namespace, name)
                    if not _is_same(decided_on, seen):
                        # Perhaps ours: a PUT whose connection broke is sent again below us,
                        # and the second meets a conflict with the first.
                        return ScaleAnswer(Outcome("conflict", error), _has(seen, replicas))
                if not may():
                    return ScaleAnswer(Outcome("not_tried"))
                is_sent = True
                scale = await self._put(resource, namespace, name, seen, replicas)
            except errors.WriteConflict as conflict:
                self.writes["scale", "conflict"] += 1
                error = str(conflict)
                continue
            except (errors.KubeError, msgspec.DecodeError) as failure:
                self.writes["scale", "error"] += 1
                # Not sent: the conflict before it may have been one with ourselves, as above.
                is_lost = not is_sent or isinstance(failure, _UNKNOWN)
                return ScaleAnswer(Outcome("failed", str(failure)), is_lost)
            self.writes["scale", "ok"] += 1
            self.targets.accept(record, scale)
            return ScaleAnswer(Outcome("written"))
        return ScaleAnswer(Outcome("conflict", error))

    async def write_status(
        self, record: AutoscalerRecord, version: str, old: HpaStatus, new: HpaStatus
    ) -> str | None:
        """Patch what differs from ``old``, the status at ``version``; returns why that failed.

        Raises ``NotLeading``.
        """
        patch = {"metadata": {"resourceVersion": version}, "status": status_changes(old, new)}
        try:
            answer = await self.api.request(
                "PATCH",
                self.resource.path(*record.key, "status"),
                body=encode(patch),
                content_type=MERGE_PATCH,
                timeout_s=_TIMEOUT_S,
            )
            self.store.accept(decode(answer.body, Autoscaler))
        except (errors.KubeError, msgspec.DecodeError) as failure:
            result = "conflict" if isinstance(failure, errors.WriteConflict) else "error"
            self.writes["status", result] += 1
            return str(failure)
        self.writes["status", "ok"] += 1
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
        answer = await self.api.request(
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


_SHARE = 4  # a namespace gets one turn in so many

# Since when, a number of its own, what ends its waiting, its namespace.
_Waiter = tuple[float, int, "asyncio.Future[None]", "_Space"]


class _Space(Struct, eq=False):
    free: int
    waiting: list[_Waiter]  # a heap


class WriteTurns:
    """The turns of one term: so many at once, and of them only a share for any one namespace.

    A namespace whose webhook hangs would otherwise hold every turn for as long as requests may
    take, and nothing would be scaled anywhere. Whose write has been due for longest comes first,
    across decisions: what waited too long is decided anew, and does not start to wait anew.
    """

    def __init__(self, count: int) -> None:
        """``count`` is how many may write at once."""
        self._free = count
        self._share = max(count // _SHARE, 1)
        self._spaces: dict[str, _Space] = {}
        self._next: list[_Waiter] = []  # a heap of those whose namespace has a turn for them
        self._numbers = counted()

    @asynccontextmanager
    async def turn(self, namespace: str, since: float) -> AsyncIterator[None]:
        """Hold a turn; ``since`` is when the write was wanted first."""
        space = self._spaces.setdefault(namespace, _Space(self._share, []))
        granted = asyncio.get_running_loop().create_future()
        heappush(space.waiting, (since, next(self._numbers), granted, space))
        self._give(space)
        try:
            try:
                await granted
            except asyncio.CancelledError:
                if not granted.cancelled():  # it was given in the same moment
                    self._free += 1
                    space.free += 1
                raise
            try:
                yield
            finally:
                self._free += 1
                space.free += 1
        finally:
            self._give(space)
            if space.free == self._share and not space.waiting:
                self._spaces.pop(namespace, None)

    def _give(self, space: _Space) -> None:
        """Hand out what is free, ``space`` having come to have a turn or a waiter more."""
        self._let_through(space)
        while self._free and self._next:
            _, _, granted, other = heappop(self._next)
            if granted.done():  # cancelled since
                other.free += 1
                self._let_through(other)
            else:
                self._free -= 1
                granted.set_result(None)

    def _let_through(self, space: _Space) -> None:
        while space.free and space.waiting:
            waiter = heappop(space.waiting)
            if not waiter[2].done():
                space.free -= 1
                heappush(self._next, waiter)


REPORTS_S = 300.0  # values are written once in this time, however little they moved


def is_status_due(hpa: HPA, new: HpaStatus, age_s: float, *, deadband: float) -> bool:
    """Return whether ``new`` is to be written, values alone having been written ``age_s`` ago.

    Conditions, counts and times go out at once; a metric's value alone waits until it moved by a
    share of its target or five minutes are over: status writes dominate the cost of a controller.
    """
    return age_s >= REPORTS_S or tells_more(hpa, new, deadband=deadband)


def tells_more(hpa: HPA, new: HpaStatus, *, deadband: float) -> bool:
    """Return whether ``new`` differs from ``hpa.status`` by more than values that moved by less
    than ``deadband``, a share of each metric's target; with 0 every change is more."""
    old = hpa.status
    if deadband <= 0 or (
        old.conditions != new.conditions
        or old.current_replicas != new.current_replicas
        or old.desired_replicas != new.desired_replicas
        or old.last_scale_s != new.last_scale_s
        or old.observed_generation != new.observed_generation
        or len(old.metrics) != len(new.metrics)
    ):
        return True
    for place, (before, after) in enumerate(zip(old.metrics, new.metrics, strict=True)):
        spec = hpa.metrics[place] if place < len(hpa.metrics) else None
        if before != after and _moved(before, after, spec, deadband):
            return True
    return False


def status_changes(old: HpaStatus, new: HpaStatus) -> dict[str, object]:
    """Return the fields of ``status`` that differ, for a merge patch; lists are whole."""
    fields: dict[str, object] = {}
    if old.current_replicas != new.current_replicas:
        fields["currentReplicas"] = new.current_replicas
    # Required by the schema: a first status needs it, whatever its value.
    if old.desired_replicas != new.desired_replicas or not old.conditions:
        fields["desiredReplicas"] = new.desired_replicas
    if old.last_scale_s != new.last_scale_s:
        fields["lastScaleTime"] = None if new.last_scale_s is None else rfc3339(new.last_scale_s)
    if old.observed_generation != new.observed_generation:
        fields["observedGeneration"] = new.observed_generation
    if old.metrics != new.metrics:
        fields["currentMetrics"] = [_metric(each) for each in new.metrics] or None
    if old.conditions != new.conditions:
        fields["conditions"] = [_condition(each) for each in new.conditions]
    return fields


def _condition(condition: AutoscalerCondition) -> dict[str, object]:
    at = condition.last_transition_time
    written = {**builtins(condition), "lastTransitionTime": None if at is None else rfc3339(at)}
    if condition.observed_generation is None:
        del written["observedGeneration"]
    return written


def _moved(
    before: MetricStatus, after: MetricStatus, spec: MetricSpec | None, deadband: float
) -> bool:
    if spec is None or before.type != after.type or before.name != after.name:
        return True
    if after.average_utilization is not None:
        # The average belongs to it and moves with it.
        both = before.average_utilization, after.average_utilization
        return _is_apart(*both, spec.average_utilization, deadband)
    averages = before.average_value_milli, after.average_value_milli
    return _is_apart(*averages, spec.average_value_milli, deadband) or _is_apart(
        before.value_milli, after.value_milli, spec.value_milli, deadband
    )


def _is_apart(was: int | None, now: int | None, target: int | None, deadband: float) -> bool:
    if was is None or now is None:
        return was is not now
    return not target or abs(now - was) >= deadband * target


def _metric(metric: MetricStatus) -> dict[str, object]:
    field = METRIC_FIELDS.get(metric.type)
    if field is None:
        return {"type": metric.type}
    is_resource = metric.type in ("Resource", "ContainerResource")
    current: dict[str, object] = {}
    if metric.value_milli is not None:
        current["value"] = format_milli(metric.value_milli)
    if metric.average_value_milli is not None:
        is_memory = is_resource and metric.name == "memory"
        current["averageValue"] = format_milli(
            metric.average_value_milli, "BinarySI" if is_memory else "DecimalSI"
        )
    if metric.average_utilization is not None:
        current["averageUtilization"] = metric.average_utilization
    source: dict[str, object] = {"current": current}
    if is_resource:
        source["name"] = metric.name
        if metric.container:
            source["container"] = metric.container
    else:
        identifier: dict[str, object] = {"name": metric.name}
        source["metric"] = identifier
        if metric.selector is not None:
            identifier["selector"] = builtins(metric.selector)
        if metric.described is not None:
            described = builtins(metric.described)
            source["describedObject"] = {name: text for name, text in described.items() if text}
    return {"type": metric.type, field: source}
