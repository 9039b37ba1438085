"""VPAs whose target an HPA scales by the same CPU: their anchors, and the sizes that hang on them.

The anchor is written first, into the VPA's metadata; the size that belongs to it is published by
every pass that finds the anchor, also after a crash in between.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct, structs

from podscale.coordinate import sizes
from podscale.coordinate.anchor import ANNOTATION, MOST_MILLI, Anchor, format_anchor, parse
from podscale.coordinate.horizontal import HorizontalSide, horizontal_side
from podscale.coordinate.pairing import CONDITION, pair
from podscale.core.metrics import ContainerColumns
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.selectors.selector import Selector
from podscale.core.settings import COORDINATE
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, KubeError, NotLeading, ObjectNotFound
from podscale.kube.client.resource import HPAS, PODAUTOSCALERS, Resource
from podscale.kube.client.wire import UNREADABLE_MANAGER
from podscale.kube.columns.pods import PodView
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.scale import CronJob
from podscale.kube.objects.vpa import Vpa, container_policy
from vpa.model.amounts import allowed
from vpa.model.estimation.estimator import BOUNDS
from vpa.model.estimation.recommendation import NodeShape, RecommendationTrace
from vpa.model.groups import VpaEntry
from vpa.model.samples.membership import VpaKey
from vpa.recommender.publishing.published import AnchoredSize
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores

_log = structlog.get_logger()

_ACTED_ON_WITHIN_S = 120.0  # an HPA that is new: its controller looks at it four times a minute
_KEPT_FOR_S = 3600.0  # what a disruption budget keeps: all budgets of a namespace are looked at
# It keeps conditions that it does not know, and so one that was left behind. Whom nobody can read
# may be it.
_IN_TREE = ("kube-controller-manager", UNREADABLE_MANAGER)


class WatchedHpas:
    """The HPAs that coordinate, by their target."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self._resources: tuple[tuple[Resource, Store[Autoscaler]], ...] = tuple(
            (resource, Store(scopes, keep=_thinned)) for resource in (HPAS, PODAUTOSCALERS)
        )

    def watches(self, api: Api, rhythm: WatchTiming) -> list[Coroutine[Any, Any, None]]:
        """Return what feeds the two stores for ever."""
        return [
            Reflector(api, WatchSource(resource, Autoscaler, rhythm=rhythm), store).run()
            for resource, store in self._resources
        ]

    def are_known(self, *absent: type[KubeError]) -> bool:
        """Whether it was seen who coordinates; of a kind that is ``absent`` there is nobody."""
        return all(
            store.is_current()
            or (not store.is_synced and isinstance(store.freshness().error, absent))
            for _, store in self._resources
        )

    def sides(self, now: float) -> Iterator[tuple[tuple[str, str, str, str], HorizontalSide]]:
        """Yield each HPA that coordinates, by namespace, group, kind and name of its target."""
        for _, store in self._resources:
            for hpa in store.values():
                last = hpa.metadata.last_writer("status")
                if last is not None and last.manager in _IN_TREE:
                    continue
                side, born = horizontal_side(hpa), hpa.metadata.creation_timestamp
                is_late = born is None or now - born > _ACTED_ON_WITHIN_S
                if side is not None and not (side.is_new and is_late):
                    yield (hpa.metadata.namespace, *side.target.key), side


class _Pair(Struct):
    """A VPA and the HPA that scales the same pods, for as long as they are a pair."""

    side: HorizontalSide
    demand: sizes.LoadOfDays
    latest: sizes.LatestLoads
    told: sizes.SizeReason | None = None  # why the size stays or moved, last
    replicas: int = 0  # that are wanted of the workload
    still_since: float = 0.0  # when these came to be wanted, or the HPA came to follow the anchor
    kept: int | None = None  # pods, by a disruption budget
    kept_at: float = -math.inf


class Coordination:
    """Pairs of one term of leadership."""

    def __init__(
        self,
        api: Api,
        hpas: WatchedHpas,
        stores: VpaStores,
        metrics: RecommenderMetrics,
        selector_of: Callable[[VpaKey], Selector | None],
    ) -> None:
        self._api, self._hpas, self._stores = api, hpas, stores
        self._metrics, self._selector_of = metrics, selector_of
        self._pairs: dict[VpaKey, _Pair] = {}
        self._usage: dict[tuple[str, str], dict[str, float]] = {}  # of pods, by container
        self._has_listed = False  # when pairs were looked for, and not since

    async def follow(self, now: float, usage: ContainerColumns | None) -> list[VpaKey]:
        """Find the pairs, and take in what their pods use; return those to be published."""
        # Rights to list them may be missing for a moment.
        self._has_listed = self._hpas.are_known(ObjectNotFound)
        if self._hpas.are_known(Forbidden, ObjectNotFound):
            before = self._pairs
            self._pairs = {
                key: structs.replace(before[key], side=side)
                if key in before and before[key].side.container == side.container
                else _Pair(side, sizes.LoadOfDays(), sizes.LatestLoads())
                for key, side in self._sides(now).items()
            }
        namespaces, self._usage = {key.namespace for key in self._pairs}, {}
        if usage is not None and namespaces:
            # A tenth of a second for 100,000 containers, which the event loop does not wait for.
            self._usage = await asyncio.to_thread(_by_pod, usage, namespaces)
        self._metrics.coordinated.set(len(self._pairs))
        return list(self._pairs)

    def _sides(self, now: float) -> dict[VpaKey, HorizontalSide]:
        found = dict(self._hpas.sides(now))
        by_target: dict[tuple[str, str, str, str], list[Vpa]] = {}
        for key, vpa in self._stores.all_vpas() if found else ():
            ref = vpa.spec.target_ref
            target = (key.namespace, *ref.key) if ref is not None else None
            if target in found:
                by_target.setdefault(target, []).append(vpa)
        sides = {}
        for target, vpas in by_target.items():
            paired = pair(found[target].container, vpas).vpa
            if paired is not None:
                sides[VpaKey(target[0], paired.metadata.name)] = found[target]
        return sides

    def text(self, key: VpaKey) -> str:
        """Return what holds the CPU of a VPA, for people; empty: nothing does."""
        found, vpa = self._pairs.get(key), self._stores.vpa(key)
        if found is None or vpa is None:
            return ""
        side = found.side
        uid, _ = self._workload(key, vpa)
        anchor = parse(_annotation(vpa), uid, side.container)
        if anchor is None:
            return f"HPA {side.name} scales the same pods by CPU, and no anchor is written yet"
        return (
            f"HPA {side.name} scales the same pods to {side.utilization}% of a fixed "
            f"{anchor.milli}m per pod (the anchor)"
            f"{f'; {sizes.REASONS[found.told]}' if found.told else ''}"
        )

    async def size_of(
        self,
        key: VpaKey,
        vpa: Vpa,
        entry: VpaEntry,
        trace: RecommendationTrace,
        shapes: Sequence[NodeShape],
        now: float,
    ) -> AnchoredSize | None:
        """Return the size that belongs to the anchor, which is written first where it moves; None
        where no HPA wants one. Raises ``KubeError`` where it could not be written.
        """
        text, found = _annotation(vpa), self._pairs.get(key)
        uid, replicas = self._workload(key, vpa)
        is_waiting = found is not None and found.side.is_new
        if found is None or not uid or is_waiting:
            if text is None and not is_waiting:
                return None
            if found is not None or not self._has_listed:
                return AnchoredSize("", None, {})
            # Whoever coordinates later begins at what pods request then.
            await self._write(vpa, None)
            return None
        side, views = found.side, self._views(key)
        anchor = parse(text, uid, side.container)
        requests = _requests(views, side.container)
        if anchor is None:
            present = sum(requests.values())
            if present <= 0:
                return None  # pods without a request: the VPA gives them one first
            anchor = Anchor(present, present, uid, container=side.container)
            await self._write(vpa, anchor)
            found.told = "AnchorAdopted"
            return AnchoredSize(side.container, present, requests, may_shrink=False)
        is_followed = side.follows(anchor)
        if not is_followed or replicas != found.replicas:
            found.replicas, found.still_since = replicas, now
        ready = [each for each in views
                 if each.ready == PodReadiness.TRUE and math.isnan(each.deleted)]  # fmt: skip
        measured = sum(self._is_measured(each, side.container) for each in ready)
        load = self._take_load(found, views, len(ready), measured, anchor, now)
        if not is_followed:
            found.told = "HorizontalIdle"
        elif side.is_stabilizing:
            found.told = "HorizontalMoving"
        elif self._hpas.are_known(Forbidden, ObjectNotFound) and (
            seen := _estimates(side.container, trace, entry, shapes, requests)
        ):
            state = self._state(key, found, views, now, seen.half_life_s)
            chosen = sizes.choose(anchor, seen, state, now)
            found.told = chosen.reason
            if isinstance(chosen, sizes.SizeChange):
                _log.info("coordinated change", **key._asdict(),
                          reason=chosen.reason, before=anchor, after=chosen.anchor,
                          energies=(round(chosen.before), round(chosen.after)))  # fmt: skip
                await self._write(vpa, chosen.anchor)
                anchor, is_followed = chosen.anchor, False
        # Pods whose load is not known carry none of that which is.
        is_ready = is_followed and sizes.may_shrink(anchor, load, min(replicas, measured))
        if not is_ready and sum(requests.values()) > anchor.size:
            found.told = "PodsMissing"
        return AnchoredSize(side.container, anchor.size, requests, may_shrink=is_ready)

    def _is_measured(self, view: PodView, container: str) -> bool:
        usage = self._usage.get((view.namespace, view.name), {})
        counted = [container] if container else [each.name for each in view.template.containers]
        return all(name in usage for name in counted)

    def _take_load(
        self,
        found: _Pair,
        views: Sequence[PodView],
        ready: int,
        measured: int,
        anchor: Anchor,
        now: float,
    ) -> float | None:
        """Take in what the pods use; return the highest of the last minutes, None: not known.

        It counts for the days where the HPA tells of the same: one that is dead makes no pods, and
        how many there are says nothing of how many its anchor asks for. Of those that are ready,
        the ones that were not measured use as much as the others.
        """
        container = found.side.container
        used = [
            cpu
            for view in views
            for name, cpu in self._usage.get((view.namespace, view.name), {}).items()
            if container in ("", name)
        ]
        if not measured:
            return None
        load = sum(used)
        found.latest.add(load, now)
        if found.side.knows(load / measured, anchor):
            found.demand.add(load * ready / measured, ready, now)
        return found.latest.highest

    def _state(
        self, key: VpaKey, found: _Pair, views: Sequence[PodView], now: float, half_life_s: float
    ) -> sizes.HorizontalState:
        side = found.side
        if now - found.kept_at >= _KEPT_FOR_S:
            # A budget that keeps a share of the pods sets no least.
            kept = [
                budget.spec.min_available
                for budget in self._stores.budgets.values(key.namespace)
                if isinstance(budget.spec.min_available, int)
                and views
                and budget.covers(views[0].labels)
            ]
            found.kept, found.kept_at = max(kept, default=None), now
        found.demand.follow(now)
        return sizes.HorizontalState(
            side.utilization, side.min_replicas, side.max_replicas, side.band(found.kept),
            found.replicas, now - found.still_since, side.window_s,
            found.demand.loads(half_life_s), found.demand.seen_s,
        )  # fmt: skip

    def _workload(self, key: VpaKey, vpa: Vpa) -> tuple[str, int]:
        # UID and replicas of the target; "" where it is not known.
        ref, workloads = vpa.spec.target_ref, self._stores.workloads
        found = None if ref is None else workloads.find(key.namespace, ref.kind, ref.name)
        if found is None:
            return "", 0
        return found.metadata.uid, 0 if isinstance(found, CronJob) else found.spec.replicas or 0

    def _views(self, key: VpaKey) -> list[PodView]:
        selector = self._selector_of(key)
        views = self._stores.pods.select(key.namespace, selector).views() if selector else []
        return [each for each in views if each.phase in (PodPhase.PENDING, PodPhase.RUNNING)]

    async def _write(self, vpa: Vpa, anchor: Anchor | None) -> None:
        path = f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}"
        patch: list[dict[str, Any]] = [{"op": "remove", "path": path}]
        if anchor is not None:
            patch = [{"op": "add", "path": path, "value": format_anchor(anchor)}]
            if not vpa.metadata.annotations:
                patch.insert(0, {"op": "add", "path": "/metadata/annotations", "value": {}})
        try:
            await self._stores.patch(self._api, vpa, patch)
        except NotLeading:
            raise
        except KubeError:
            self._metrics.wrote("anchor", "error")
            raise
        self._metrics.wrote("anchor", "ok")


def _by_pod(
    usage: ContainerColumns, namespaces: Collection[str]
) -> dict[tuple[str, str], dict[str, float]]:
    """Return milli-cores by namespace and pod, and container."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    rows = zip(usage.namespace, usage.pod, usage.container, usage.cpu_cores.tolist(), strict=True)
    for namespace, pod, container, cores in rows:
        if namespace in namespaces and 0.0 <= cores < math.inf:
            found.setdefault((namespace, pod), {})[container] = 1000.0 * cores
    return found


def _requests(views: Sequence[PodView], container: str) -> dict[str, int]:
    """Return what pods request by container, of those that count for the HPA: means."""
    found: dict[str, int] = {}
    for view in views:
        for each in view.template.running:
            if container in ("", each.name):
                found[each.name] = found.get(each.name, 0) + each.requests_milli.get("cpu", 0)
    return {name: request // len(views) for name, request in found.items()}


def _annotation(vpa: Vpa) -> str | None:
    return (vpa.metadata.annotations or {}).get(ANNOTATION)


def _estimates(
    container: str,
    trace: RecommendationTrace,
    entry: VpaEntry,
    shapes: Sequence[NodeShape],
    requests: Mapping[str, int],
) -> sizes.VerticalEstimates | None:
    counted = sorted(
        name for name, resource, bound in trace.amounts
        if (resource, bound) == ("cpu", "target") and container in ("", name)
    )  # fmt: skip
    if not counted:
        return None
    others = sum(request for name, request in requests.items() if name not in counted)
    lower = target = upper = least = most = 0
    for name in counted:
        bounds = allowed(
            container_policy(entry.vpa.spec.resource_policy, name),
            entry.settings.recommender.max_allowed,
        )
        highest = bounds.highest.get("cpu")
        lowest = bounds.lowest.get("cpu")
        top = MOST_MILLI if highest is None else highest.milli
        amounts = {bound: trace.amounts[name, "cpu", bound] for bound in BOUNDS}
        lower += amounts["lowerBound"].published.milli
        target += amounts["target"].published.milli
        # Without what little is known multiplies it by.
        above = amounts["upperBound"].derivation
        upper += min(max(above.with_margin, above.minimum), top)
        least += max(amounts["target"].derivation.minimum, 0 if lowest is None else lowest.milli)
        most += top
    nodes = max((shape.available("cpu") for shape in shapes), default=MOST_MILLI)
    return sizes.VerticalEstimates(
        lower + others, target + others, upper + others, least + others,
        min(most + others, nodes, MOST_MILLI), entry.settings.half_lives.cpu_s,
    )  # fmt: skip


def _thinned(hpa: Autoscaler) -> Autoscaler:
    is_asking = (hpa.metadata.annotations or {}).get(COORDINATE) == "on"
    if is_asking or any(each.type == CONDITION for each in hpa.status.conditions or ()):
        return hpa
    return Autoscaler(hpa.metadata)
