"""What a pass of the in-tree controller may have seen, read by our own code.

The watched workload in the very version that the pass got its scale of, the logged answers
through the paths we would ask ourselves, the pods through our store, and the other HPAs'
selectors as far as they had registered. What no log tells is there in every way it may have
been.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.record import AutoscalerRecord
from hpa.cluster.stores import HpaStores, TargetWorkload
from hpa.cluster.targets import ScaleTargets, converted
from hpa.decide.api import reading
from hpa.decide.api.spec import HPA
from hpa.decide.observation import MetricAnswer, Observation, Past, Scale, ScaleUnreadable
from hpa.decide.pods import Pods
from hpa.loop.observe import SelectedPods, questions
from podscale.cli.evaluation.observation import settings_for
from podscale.core.metrics import ExternalMetric, PodResource, Question, Unavailable
from podscale.core.selectors.selector import SelectorError, parse
from podscale.kube.client.api import Method, Response
from podscale.kube.client.errors import ApiError
from podscale.kube.client.resource import (
    DEPLOYMENTS,
    NAMESPACES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.informer.store import Store
from podscale.kube.metrics_apis.provider import ApiProvider
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import ReplicationController, Workload
from tests.cluster.beside_cast import Role
from tests.cluster.beside_passes import Pass, Request
from tests.cluster.beside_stage import Told
from tests.cluster.beside_watch import History
from tests.kit.stores import fill
from tests.tools.programs import release

INFORMER_LAG_S = 0.25  # the controller's cache and our watch are told of a change apart
# What 1.37.2 shows for status.replicas 0, on amd64; the cases have 0, and so do we.
_QUOTIENT = '"averageValue": "-9223372036854775808m"'
_NOT_A_NUMBER = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_GIZMOS = Resource("shop.example", "v1", "gizmos", "Gizmo")
_MAPPER = Mapper(
    (NAMESPACES, REPLICATION_CONTROLLERS, DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, _GIZMOS),
    {"custom.metrics.k8s.io": ["v1beta2"]},
)


class UnaskedError(Exception):
    """We would have asked what the in-tree controller did not ask."""


class Recorded:
    """An ``Api`` that gives one pass the answers it got, each once, in order."""

    user_agent = "podscale-hpa/replay"

    def __init__(self, told: Iterable[Told]) -> None:
        self.left = list(told)

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        **_: object,
    ) -> Response:
        wanted = {key: value for key, value in (query or {}).items() if value}
        for each in self.left:
            asked = {key: value for key, value in each.query if value}
            if each.path == unquote(path) and asked == wanted:
                self.left.remove(each)
                return _response(each.status, each.body)
        raise UnaskedError(f"{path} {wanted}")


class ScaleAnswer:
    """An ``Api`` that gives the scale that the pass got."""

    user_agent = "podscale-hpa/replay"

    def __init__(self, scale: Request | None) -> None:
        self._scale = scale

    async def request(self, method: Method, path: str, **_: object) -> Response:
        assert self._scale is not None, f"the scale was not asked for: {path}"
        return _response(self._scale.code, json.dumps(self._scale.answer).encode())


def _response(code: int, body: bytes) -> Response:
    if code >= 400:
        told = json.loads(body)
        raise ApiError.of(code, told["reason"], told["message"])
    return Response(code, {}, body)


class Discovered:
    """Discovery that knows what the plane serves."""

    mapper = _MAPPER

    async def for_kind(self, kind: str, group: str) -> tuple[Resource, ...]:
        return _MAPPER.for_kind(kind, group)


class Sight(NamedTuple):
    """One way in which the pass may have seen the world."""

    past: Past
    hpa: HPA
    scale: Scale | ScaleUnreadable
    pods: Pods
    rivals: tuple[str, ...]
    same_target: tuple[str, ...]
    answers: tuple[MetricAnswer | None, ...]
    now: float
    rule: str  # in ``LISTED`` of beside_replay, where we would see it otherwise

    @property
    def observation(self) -> Observation:
        return Observation(
            self.hpa, self.scale, self.pods, self.answers, self.rivals, self.same_target
        )


class World(NamedTuple):
    """What was watched, and who plays."""

    namespace: str
    roles: Sequence[Role]
    hpas: History
    pods: History
    targets: Mapping[str, History]  # by plural


class Selectors:
    """Which selectors the HPAs had registered, and when."""

    def __init__(self, world: World, passes: Mapping[str, Sequence[Pass]]) -> None:
        changes: list[tuple[float, str, str | None]] = []
        for name, states in world.hpas.told.items():
            changes += [(at, name, None) for at, state in states if state is None]
        for name, mine in passes.items():
            for one in mine:
                if one.registers and one.scale:
                    text = converted(one.scale.answer["status"]["selector"])
                    changes.append((one.scale.ended, name, text))
        self._namespace = world.namespace
        self._known: list[tuple[float, dict[str, str]]] = [(0.0, {})]
        self._indexes: dict[int, OverlappingHpas] = {}
        for at, name, text in sorted(changes, key=lambda each: each[0]):
            before = self._known[-1][1]
            if before.get(name) != text:
                after = {**before, name: text} if text else dict(before)
                if text is None:
                    del after[name]
                self._known.append((at, after))

    def rivals(
        self, one: Pass, labels: Sequence[Mapping[str, str]], lag_s: float
    ) -> set[tuple[str, ...]]:
        """Return whom the pass may have found to select pods with these labels, sorted."""
        since, until = one.began - lag_s, one.ended + lag_s
        last = max(number for number, (at, _) in enumerate(self._known) if at <= until)
        first = max(number for number, (at, _) in enumerate(self._known) if at <= since)
        return {
            self._index(number).of(self._namespace, one.name, labels)
            for number in range(first, last + 1)
        }

    def _index(self, number: int) -> OverlappingHpas:
        if number not in self._indexes:
            index = self._indexes[number] = OverlappingHpas()
            for name, text in self._known[number][1].items():
                index.add(self._namespace, name, parse(text))
        return self._indexes[number]


class Sights:
    """Looks at the passes of one HPA."""

    def __init__(self, role: Role, world: World, selectors: Selectors) -> None:
        self._role, self._world, self._selectors = role, world, selectors
        self._columns: dict[tuple[str, ...], Pods] = {}
        self._candidates: dict[str, list[str]] = {}

    def states(self, one: Pass) -> list[dict[str, Any]]:
        """Return the versions of the HPA that the pass may have had, the newest first."""
        since = one.began - INFORMER_LAG_S
        seen = [each for each in self._world.hpas.versions(one.name, since, one.began) if each]
        if one.statuses:
            # The write names the version that the pass had in its hands.
            version = one.statuses[0].sent["metadata"]["resourceVersion"]
            seen = [
                state
                for _, state in self._world.hpas.told[one.name]
                if state and state["metadata"]["resourceVersion"] == version
            ]
        return list(reversed(seen))

    async def of(
        self,
        one: Pass,
        states: Sequence[dict[str, Any]],
        pasts: Sequence[tuple[Past, str]],
        lag_s: float = INFORMER_LAG_S,
    ) -> list[Sight]:
        """Return every way in which a watch was at most ``lag_s`` late with a pod or a rival.

        Raises ``UnaskedError`` where we read metrics otherwise in each.
        """
        scale = await self._scale(one, states[0])
        found: list[Sight] = []
        unasked: UnaskedError | None = None
        for state in states:
            try:
                found += await self._at(one, read(state), scale, pasts, lag_s)
            except UnaskedError as error:
                unasked = error
        if unasked and not found:
            raise unasked
        return found

    async def _scale(self, one: Pass, state: dict[str, Any]) -> Scale | ScaleUnreadable:
        """Return the scale as our own reader of targets has it."""
        stores = HpaStores((), PodStore(keep_annotations=()))
        watched: Sequence[tuple[Resource, type[Any], Store[Any]]] = (
            (DEPLOYMENTS, TargetWorkload, stores.deployments),
            (STATEFUL_SETS, TargetWorkload, stores.stateful_sets),
            (REPLICA_SETS, Workload, stores.replica_sets),
            (REPLICATION_CONTROLLERS, ReplicationController, stores.replication_controllers),
        )
        for resource, kind, store in watched:
            items = []
            if self._role.target[0] == resource.plural and one.scale and one.scale.code < 400:
                version = one.scale.answer["metadata"]["resourceVersion"]
                items = [
                    decode(json.dumps(found).encode(), kind)
                    for _, found in self._world.targets[resource.plural].told[self._role.target[1]]
                    if found and found["metadata"]["resourceVersion"] == version
                ]
            fill(store, items, now=0.0, watched_s=None)
        targets = ScaleTargets(ScaleAnswer(one.scale), Discovered(), stores)  # type: ignore[arg-type]
        record = AutoscalerRecord.of(decode(json.dumps(state).encode(), Autoscaler))
        return (targets.at_hand(record) or await targets.fetch(record)).scale

    async def _at(
        self,
        one: Pass,
        hpa: HPA,
        scale: Scale | ScaleUnreadable,
        pasts: Sequence[tuple[Past, str]],
        lag_s: float,
    ) -> list[Sight]:
        selector = scale.selector if isinstance(scale, Scale) else ""
        others = tuple(
            role.name
            for role in self._world.roles
            if role.name != one.name
            and role.target == self._role.target
            and self._world.hpas.versions(role.name, one.began, one.began)[-1]
        )
        ways = product(
            pasts,
            self._pods_at(one, selector, lag_s),
            [(others, ""), ((), "same-target")] if others else [((), "")],
            await self._answers(one, hpa, selector),
            _moments(one),
        )
        return [
            Sight(past, hpa, scale, pods, rivals, same, told, now, by_past or by_told or by_same)
            for (past, by_past), (pods, rivals), (same, by_same), (told, by_told), now in ways
        ]

    async def _answers(
        self, one: Pass, hpa: HPA, selector: str
    ) -> list[tuple[tuple[MetricAnswer | None, ...], str]]:
        """Return the answers as we read them, and as Kubernetes does where that differs."""
        if not one.told:
            # Nothing was read: a correction to a bound, rivals, or no scale.
            return [((), "")]
        recorded = Recorded(one.told)
        provider = ApiProvider(recorded, Discovered())  # type: ignore[arg-type]
        found: list[MetricAnswer | None] = []
        theirs: list[MetricAnswer | None] = []
        for asked in questions(hpa, selector, _MAPPER):
            if asked is None or not isinstance(asked, Question):
                found.append(asked)
                theirs.append(asked)
                continue
            before = list(recorded.left)
            # One by one: in-tree asks twice where two metrics need one answer.
            found += cast("Sequence[MetricAnswer]", await provider.answer([asked]))
            bodies = [each.body for each in before if each not in recorded.left]
            failed = f"unable to fetch metrics from {_family(asked)} metrics API: {_NOT_A_NUMBER}"
            is_odd = any(b'"NaN"' in each for each in bodies)
            theirs.append(Unavailable("BadAnswer", failed) if is_odd else found[-1])
        if recorded.left:
            raise UnaskedError(f"not by us: {[each.path for each in recorded.left]}")
        listed = [(tuple(theirs), "not-a-number")] if theirs != found else []
        return [(tuple(found), ""), *listed]

    def _pods_at(
        self, one: Pass, selector: str, lag_s: float
    ) -> list[tuple[Pods, tuple[str, ...]]]:
        """Return which pods it may have seen, and whose selectors meet them."""
        try:
            wanted = parse(selector)
        except SelectorError:
            wanted = None
        if not one.registers or wanted is None or not selector:
            return [(Pods(), ())]
        if selector not in self._candidates:
            self._candidates[selector] = [
                pod
                for pod, told in self._world.pods.told.items()
                if any(state and wanted.matches(_labels(state)) for _, state in told)
            ]
        since, until = one.began - lag_s, one.ended + lag_s
        moments = {since}
        for name in self._candidates[selector]:
            moments |= {at for at, _ in self._world.pods.told[name] if since < at <= until}
        found = {}
        for at in sorted(moments):
            states = [
                state
                for name in self._candidates[selector]
                if (state := self._world.pods.versions(name, at, at)[-1]) is not None
                and wanted.matches(_labels(state))
            ]
            pods = self._made(states, selector)
            for rivals in self._selectors.rivals(one, list(map(_labels, states)), lag_s):
                found[repr(pods), rivals] = (pods, rivals)
        return list(found.values())

    def _made(self, states: list[dict[str, Any]], selector: str) -> Pods:
        key = (
            selector,
            *(
                f"{each['metadata']['name']}/{each['metadata']['resourceVersion']}"
                for each in states
            ),
        )
        if key not in self._columns:
            store = PodStore(keep_annotations=())
            items = [decode(json.dumps(each).encode(), Pod) for each in states]
            fill(store, items, now=0.0, watched_s=None)
            namespace = self._world.namespace
            found = store.select(namespace, parse(selector))
            self._columns[key] = SelectedPods(lambda _ns, owner: owner).of(namespace, found)
        return self._columns[key]


def _family(asked: Question) -> str:
    if isinstance(asked, PodResource):
        return "resource"
    return "external" if isinstance(asked, ExternalMetric) else "custom"


def _labels(state: Mapping[str, Any]) -> dict[str, str]:
    return state["metadata"].get("labels") or {}


def read(found: dict[str, Any]) -> HPA:
    """Return the HPA as decisions read it."""
    text = json.dumps(found)
    if has_quotient(found):
        text = text.replace(_QUOTIENT, '"averageValue": "0"')
    return reading.read(decode(text.encode(), Autoscaler))


def has_quotient(found: Mapping[str, Any]) -> bool:
    """Return whether it shows what Go makes of a division by zero."""
    return settings_for(release()).is_after_1_36 and _QUOTIENT in json.dumps(found)


def _moments(one: Pass) -> list[float]:
    """The first and the last moment at which the pass can have asked for the time."""
    read = one.scale.ended if one.scale else one.began
    # Not their ends: those are noted after the answer has gone.
    first = max((each.began for each in one.told), default=read)
    nexts = [each.began for each in (*one.sizes[:1], *one.statuses[:1])]
    return [first, max(min(nexts, default=first + 0.02), first)]
