"""VPAs whose target an HPA scales by the same CPU: their anchors, and the sizes that hang on them.

The anchor is written first, into the VPA's metadata; the size that belongs to it is published by
every pass that finds the anchor, also after a crash in between.
"""

from collections.abc import Callable, Iterator, Sequence

import structlog
from msgspec import Raw, Struct, structs

from podscale.coordinate.anchor import ANNOTATION, MOST_MILLI, Anchor, format_anchor, parse
from podscale.coordinate.demand import LoadOfDays
from podscale.coordinate.horizontal import HorizontalSide, horizontal_side
from podscale.coordinate.pairing import CONDITION
from podscale.coordinate.sizes import HorizontalState, SizeChange, VerticalEstimates, choose
from podscale.core.pod_state import PodPhase
from podscale.core.selectors.selector import Selector
from podscale.kube.client.api import JSON_PATCH, Api
from podscale.kube.client.errors import Forbidden, KubeError, NotLeading, ObjectNotFound
from podscale.kube.client.resource import HPAS, PODAUTOSCALERS, VPAS, Resource
from podscale.kube.client.wire import ObjectMeta, Time, decode, encode
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from vpa.model.api.objects import Vpa, container_policy
from vpa.model.api.policy import allowed
from vpa.model.estimation.estimator import BOUNDS
from vpa.model.estimation.nodes import NodeShape
from vpa.model.estimation.recommendation import AmountTrace, RecommendationTrace
from vpa.model.samples.entries import VpaEntry
from vpa.model.samples.membership import VpaKey
from vpa.recommender.publishing.anchored import AnchoredSize
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stored import StoredVpa
from vpa.stores import VpaStores

_log = structlog.get_logger()

_WRITE_TIMEOUT_S = 10.0
_LONG_AGO_S = 1e9
_IN_TREE = "kube-controller-manager"
_NOTHING = Raw(b"{}")


class _Writer(Struct, frozen=True, rename="camel"):
    manager: str = ""
    subresource: str = ""
    time: Time | None = None


class _HpaMeta(ObjectMeta, frozen=True, rename="camel"):
    managed_fields: tuple[_Writer, ...] = ()


class StoredHpa(Struct, frozen=True):
    """An HPA or PodAutoscaler; without its contents where it does not coordinate."""

    metadata: _HpaMeta
    spec: Raw = _NOTHING
    status: Raw = _NOTHING


class WatchedHpas:
    """The HPAs that coordinate, by their target."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self._resources: tuple[tuple[Resource, Store[StoredHpa]], ...] = tuple(
            (resource, Store(scopes, keep=_thinned)) for resource in (HPAS, PODAUTOSCALERS)
        )
        self._scopes = scopes

    async def run(self, api: Api, resource: Resource, rhythm: WatchTiming = DEFAULT_RHYTHM) -> None:
        """Feed one of the two stores for ever."""
        store = dict(self._resources)[resource]
        source = WatchSource(resource, StoredHpa, rhythm=rhythm)
        await Reflector(api, source.within(self._scopes), store).run()

    @property
    def resources(self) -> list[Resource]:
        """What is to be watched."""
        return [resource for resource, _ in self._resources]

    @property
    def is_known(self) -> bool:
        """Whether it could be seen who coordinates; what may not be listed has none."""
        return all(
            store.is_current()
            or (
                not store.is_synced
                and isinstance(store.freshness().error, Forbidden | ObjectNotFound)
            )
            for _, store in self._resources
        )

    def sides(self) -> Iterator[tuple[tuple[str, str, str, str], HorizontalSide]]:
        """Yield each HPA that coordinates, by namespace, group, kind and name of its target."""
        for _, store in self._resources:
            for hpa in store.values():
                if hpa.status is _NOTHING or _is_in_tree(hpa.metadata):
                    continue
                notes = hpa.metadata.annotations or {}
                side = horizontal_side(hpa.metadata.name, hpa.spec, hpa.status, notes)
                if side is not None:
                    yield (hpa.metadata.namespace, *side.target.key), side


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
        self._api = api
        self._hpas = hpas
        self._stores = stores
        self._metrics = metrics
        self._selector_of = selector_of
        self._pairs: dict[VpaKey, HorizontalSide] = {}
        self._loads: dict[VpaKey, LoadOfDays] = {}
        self.told: dict[VpaKey, str] = {}  # why the size of a pair stays or moved, last

    def follow(self, now: float) -> list[VpaKey]:
        """Find the pairs, and take in what their pods use; return those to be published."""
        if self._hpas.is_known:
            by_target: dict[tuple[str, str, str, str], list[VpaKey]] = {}
            for key, vpa in self._stores.all_vpas():
                ref = vpa.spec.target_ref
                if ref is not None:
                    group = ref.api_version.rpartition("/")[0]
                    by_target.setdefault((key.namespace, group, ref.kind, ref.name), []).append(key)
            found = dict(self._hpas.sides())
            self._pairs = {
                keys[0]: found[target]
                for target, keys in by_target.items()
                if target in found and len(keys) == 1
            }
        for key in self._loads.keys() - self._pairs.keys():
            del self._loads[key]
            self.told.pop(key, None)
        for key, side in self._pairs.items():
            if side.used is not None and side.replicas > 0:
                seen = self._loads.setdefault(key, LoadOfDays())
                seen.add(float(side.used * side.replicas), side.replicas, now)
        self._metrics.coordinated.set(len(self._pairs))
        return list(self._pairs)

    def text(self, key: VpaKey) -> str:
        """Return what holds the CPU of a VPA, for people; empty: nothing does."""
        side, vpa = self._pairs.get(key), self._stores.vpa(key)
        if side is None or vpa is None:
            return ""
        anchor = parse((vpa.metadata.annotations or {}).get(ANNOTATION), self._uid_of(key, vpa))
        if anchor is None:
            return f"HPA {side.name} scales the same pods by CPU, and no anchor is written yet"
        why = self.told.get(key, "")
        return (
            f"HPA {side.name} scales the same pods to {side.utilization} % of an anchor of "
            f"{anchor.milli}m, to which pods of {anchor.size}m belong{f' ({why})' if why else ''}"
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
        uid = self._uid_of(key, vpa)
        anchor = parse((vpa.metadata.annotations or {}).get(ANNOTATION), uid)
        side = self._pairs.get(key)
        if side is None:
            # Before HPAs were listed nobody knows; what was published last stands meanwhile.
            return AnchoredSize("", None, 0) if anchor and not self._hpas.is_known else None
        counted = sorted(
            name for name, resource, bound in trace.amounts
            if (resource, bound) == ("cpu", "target") and side.container in ("", name)
        )  # fmt: skip
        present, others = self._requests(key, side.container, counted)
        if anchor is None:
            if not uid or present <= 0:
                return None  # pods without a request: the VPA gives them one first
            anchor = Anchor(present, present, uid)
            await self._write(key, anchor)
            self.told[key] = "AnchorAdopted"
        elif counted and self._hpas.is_known:
            seen = _estimates(counted, trace, entry, shapes, others)
            found = choose(anchor, seen, self._state(key, side, now, seen.half_life_s), now)
            self.told[key] = found.reason
            if isinstance(found, SizeChange):
                _log.info("coordinated change", namespace=key.namespace, name=key.name,
                          reason=found.reason, before=anchor, after=found.anchor,
                          energies=(round(found.before), round(found.after)))  # fmt: skip
                await self._write(key, found.anchor)
                anchor = found.anchor
        return AnchoredSize(side.container, anchor.size, others)

    def _state(
        self, key: VpaKey, side: HorizontalSide, now: float, half_life_s: float
    ) -> HorizontalState:
        seen = self._loads.get(key)
        quiet_s = _LONG_AGO_S if side.rescaled_s is None else now - side.rescaled_s
        return HorizontalState(
            side.utilization, side.min_replicas, side.max_replicas, side.band(None),
            side.replicas, quiet_s, side.window_s,
            seen.loads(half_life_s) if seen is not None else (),
            seen.seen_s if seen is not None else 0.0,
        )  # fmt: skip

    def _uid_of(self, key: VpaKey, vpa: Vpa) -> str:
        ref = vpa.spec.target_ref
        found = ref and self._stores.workloads.find(key.namespace, ref.kind, ref.name)
        return found.metadata.uid if found else ""

    def _requests(self, key: VpaKey, container: str, counted: Sequence[str]) -> tuple[int, int]:
        """Return what a pod requests that counts for the HPA, and the part of it that the VPA
        does not size: means of the pods that run."""
        selector = self._selector_of(key)
        if selector is None:
            return 0, 0
        every = others = pods = 0
        for view in self._stores.pods.select(key.namespace, selector).views():
            if view.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
                continue
            pods += 1
            sidecars = [each for each in view.template.init_containers if each.is_sidecar]
            for each in (*view.template.containers, *sidecars):
                if container in ("", each.name):
                    request = (each.requests_milli or {}).get("cpu", 0)
                    every += request
                    others += 0 if each.name in counted else request
        return (every // pods, others // pods) if pods else (0, 0)

    async def _write(self, key: VpaKey, anchor: Anchor) -> None:
        seen = self._stores.vpas.get(*key)
        if seen is None:
            raise ObjectNotFound(404, "NotFound", f"VPA {key.namespace}/{key.name}")
        notes = seen.metadata.annotations
        path = f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}"
        version = seen.metadata.resource_version
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            *([] if notes else [{"op": "add", "path": "/metadata/annotations", "value": {}}]),
            {"op": "add", "path": path, "value": format_anchor(anchor)},
        ]
        try:
            answer = await self._api.request(
                "PATCH", VPAS.path(*key), body=encode(patch), content_type=JSON_PATCH,
                timeout_s=_WRITE_TIMEOUT_S,
            )  # fmt: skip
        except NotLeading:
            raise
        except KubeError:
            self._metrics.wrote("anchor", "error")
            raise
        self._metrics.wrote("anchor", "ok")
        self._stores.accept_vpa(decode(answer.body, StoredVpa))


def _estimates(
    counted: Sequence[str],
    trace: RecommendationTrace,
    entry: VpaEntry,
    shapes: Sequence[NodeShape],
    others: int,
) -> VerticalEstimates:
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
        upper += min(_measured(amounts["upperBound"]), top)
        least += max(amounts["target"].derivation.minimum, 0 if lowest is None else lowest.milli)
        most += top
    nodes = max((shape.available("cpu") for shape in shapes), default=MOST_MILLI)
    return VerticalEstimates(
        lower + others, target + others, upper + others, least + others,
        min(most + others, nodes, MOST_MILLI), entry.settings.half_lives.cpu_s,
    )  # fmt: skip


def _measured(amount: AmountTrace) -> int:
    # Without what little is known multiplies it by.
    return max(amount.derivation.with_margin, amount.derivation.minimum)


def _thinned(hpa: StoredHpa) -> StoredHpa:
    if f'"{CONDITION}"'.encode() in bytes(hpa.status):
        return hpa
    return structs.replace(hpa, spec=_NOTHING, status=_NOTHING)


def _is_in_tree(meta: _HpaMeta) -> bool:
    # It keeps conditions that it does not know, and so one that was left behind.
    writers = [each for each in meta.managed_fields if each.subresource == "status" and each.time]
    last = max(writers, key=lambda each: each.time or 0.0, default=None)
    return last is not None and last.manager == _IN_TREE
