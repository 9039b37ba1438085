"""The API group of sizing decisions, served by the recommender's leader.

Everybody else answers 503 NotLeader, never an empty list. Decisions about pods are told
where the updater runs in the same process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import structlog

from podscale.core.json_decoder import decode_json
from podscale.core.pod_state import PodPhase
from podscale.core.quantity import Quantity
from podscale.core.selectors.selector import Selector
from podscale.explain.decision_api import DecisionApi, Key, ListSelection, not_decided_yet
from podscale.explain.decision_history import ChangeRing, DecisionHistory
from podscale.kube.client.api import METADATA_LIST
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode
from podscale.kube.objects.vpa import Vpa
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse
from podscale.serving.status import Status
from vpa.admission.patches.resources import MOST_CONTAINERS
from vpa.decisions import decisions as sizing
from vpa.decisions.decisions import KIND, KnownSizing
from vpa.explain.admission import AdmissionReasons, read
from vpa.explain.recommendation import MeasuredBasis
from vpa.model.amounts import EMPTY, RESOURCES
from vpa.model.samples.membership import VpaKey
from vpa.recommender.loop import Recommender
from vpa.updater.loop.loop import Updater
from vpa.updater.loop.memory import gist

_log = structlog.get_logger()

_LONGEST_WORK_S = 0.005  # before others on the loop get their turn
_MOST_PODS = 100  # of one VPA, whose admission is told
_PODS_TIMEOUT_S = 5.0


class SizingApi(DecisionApi[KnownSizing]):
    """The group over a recommender, and an updater beside it."""

    def __init__(
        self,
        recommender: Recommender,
        is_leader: Callable[[], bool],
        *,
        updater: Updater | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        refusal = "this replica does not recommend: ask the leader"
        super().__init__(KIND, is_leader, refusal=refusal, wall=wall)
        self._recommender = recommender
        self._updater = updater
        # A change is another target, or another action or first reason about a pod.
        self._history = DecisionHistory[VpaKey, ChangeRing](ChangeRing)
        self._history_of: object = None  # the term's model
        self._changed: set[VpaKey] = set()
        recommender.stores.subscribe(self._vpa_changed)
        if updater is not None:
            updater.decisions.followers.append(self._note)

    def _answered(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        if self._recommender.estimates is None:
            return not_decided_yet(
                "nothing is recommended yet: the leader reads checkpoints or history first"
            )
        return super()._answered(request)

    def _decided(self, wanted: ListSelection) -> Sequence[Key] | Status:
        held = self._recommender.held.items()
        return [key for key, each in held if wanted.takes(key, each.vpa.metadata.labels)]

    def _known(self, key: Key) -> KnownSizing | Status:
        named = VpaKey(*key)
        return self.known(named) if self._is_known(named) else _not_found(named)

    def _known_since(self, key: Key) -> float | None:
        return self._of_this_term().known_since(VpaKey(*key))

    def _earlier(self, known: KnownSizing, time_s: float) -> dict[str, Any] | None:
        plain = self._of_this_term().before(known.key, time_s)
        return None if plain is None else decode_json(plain)

    def _body(self, known: KnownSizing) -> dict[str, Any]:
        return sizing.body(known)

    def _cells(self, known: KnownSizing) -> list[str]:
        return sizing.cells(known)

    def _is_known(self, key: VpaKey) -> bool:
        recommender = self._recommender
        return key in recommender.held and key in recommender.cluster.vpas

    async def _whole(self, known: KnownSizing) -> Answered:
        admitted = await self._admitted(known.key)
        if not self._is_known(known.key):
            return _not_found(known.key)
        known = msgspec.structs.replace(self.known(known.key), admitted=admitted)
        return ApiResponse(value=sizing.body(known))

    async def _admitted(self, key: VpaKey) -> dict[str, AdmissionReasons]:
        """Return what the webhook wrote on the VPA's pods; too long to be kept for all pods."""
        selector = self._recommender.held[key].resolved.selector
        if selector is None:
            return {}
        query = {"labelSelector": str(selector), "limit": str(_MOST_PODS)}
        try:
            answer = await self._recommender.api.request(
                "GET",
                PODS.path(key.namespace),
                query=query,
                accept=METADATA_LIST,  # who watches asks every second
                timeout_s=_PODS_TIMEOUT_S,
            )
            pods = decode(answer.body, ListOf[PartialObjectMetadata]).items or []
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("admission's reasons not read", **key._asdict(), error=str(error))
            return {}
        found = ((pod.metadata.name, read(pod.metadata.annotations)) for pod in pods)
        return {name: told for name, told in found if told is not None}

    def _vpa_changed(self, key: VpaKey, vpa: Vpa | None) -> None:
        if vpa is None:
            self._history.forget(key)
        else:
            self._note(key)

    def _note(self, key: VpaKey) -> None:
        # Once for all that changes in one step of the loop, and not within it.
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._keep)
        self._changed.add(key)

    def _keep(self) -> None:
        if not self._is_leader():
            self._changed.clear()
        began = time.perf_counter()
        try:
            while self._changed and time.perf_counter() - began < _LONGEST_WORK_S:
                self._keep_one(self._changed.pop())
        finally:
            if self._changed:
                # All change at once when an updater's term ends, and a Lease has to be renewed.
                asyncio.get_running_loop().call_soon(self._keep)

    def _keep_one(self, key: VpaKey) -> None:
        vpa = self._recommender.stores.vpa(key)
        if vpa is None or not self._is_known(key):
            return
        changes, mark = self._of_this_term().of(key), self._mark(key, vpa)
        if changes.mark != mark:
            body = sizing.body(self.known(key))
            reason = body["status"]["first_reason"]
            changes.add(self._wall(), mark, reason, msgspec.json.encode(body))

    def _of_this_term(self) -> DecisionHistory[VpaKey, ChangeRing]:
        if self._history_of is not self._recommender.cluster:
            self._history.clear()
            self._history_of = self._recommender.cluster
        return self._history

    def _mark(self, key: VpaKey, vpa: Vpa) -> Hashable:
        recommendation = vpa.status.recommendation
        entries = (recommendation.container_recommendations if recommendation else None) or ()
        targets = tuple(
            (entry.container_name, name, value.nano)
            for entry in entries
            for name, value in sorted((entry.target or {}).items())
        )
        pods = self._updater.decisions.of(key) if self._updater is not None else {}
        return targets, tuple((name, gist(each.decision)) for name, each in sorted(pods.items()))

    def keys(self) -> Iterable[VpaKey]:
        """Return the VPAs that are recommended for here: who led before still holds them."""
        return list(self._recommender.held) if self._is_leader() else ()

    def sized(self, key: VpaKey) -> KnownSizing | None:
        """Return all that was decided about one of them; None: it is gone."""
        return self.known(key) if self._is_known(key) else None

    def known(self, key: VpaKey) -> KnownSizing:
        """Return one VPA of the recommender and all that was decided about it."""
        recommender = self._recommender
        held = recommender.held[key]
        entry = recommender.cluster.vpas[key]
        trace = recommender.trace(key)
        # What is published counts, and the pass that led to it loaded the VPA before.
        vpa = recommender.stores.vpa(key) or held.vpa
        # A pod with more is not sized, and explaining all would hold up everybody else.
        containers = tuple(sorted({*entry.columns, *entry.initial} or _published(vpa)))
        containers = containers[:MOST_CONTAINERS]
        pods = self._updater.decisions.of(key) if self._updater is not None else {}
        return KnownSizing(
            vpa,
            self._wall(),
            held.resolved.state,
            recommender.options.name,
            recommender.cluster.is_matched(key),
            containers,
            trace,
            {
                (container, resource): self._measured(key, container, resource)
                for container in containers
                for resource in RESOURCES
            },
            tuple(pods[name] for name in sorted(pods)),
            standing=recommender.standing(key),
            requests=self._requests(key.namespace, held.resolved.selector),
            selector="" if held.resolved.selector is None else str(held.resolved.selector),
            usage_problem=recommender.usage_problem,
        )

    def _requests(
        self, namespace: str, selector: Selector | None
    ) -> dict[tuple[str, str], Quantity]:
        # Of one pod that runs: replicas mostly have the same.
        if selector is None:
            return {}
        views = self._recommender.stores.pods.select(namespace, selector).views()
        pod = next((view for view in views if view.phase == PodPhase.RUNNING), None)
        return {
            (container, resource): amount
            for container, now in (pod.present if pod is not None else {}).items()
            for resource, amount in (now.requests or EMPTY).items()
        }

    def _measured(self, key: VpaKey, container: str, resource: str) -> MeasuredBasis:
        cluster = self._recommender.cluster
        entry = cluster.vpas[key]
        columns = entry.group(container)
        span = cluster.aggregates.cpu_span
        if not columns.size or not span.samples[columns].any():
            return MeasuredBasis()
        held = None
        if resource == "memory":
            fraction = entry.settings.recommender.memory.percentiles.target
            held = cluster.held(key, container, fraction)
        return MeasuredBasis(
            float(span.samples[columns].sum()),
            float(np.min(span.first[columns])),
            float(np.max(span.last[columns])),
            held,
        )


def _published(vpa: Vpa) -> set[str]:
    entries = vpa.status.recommendation
    return {each.container_name for each in (entries and entries.container_recommendations) or ()}


def _not_found(key: VpaKey) -> Status:
    return status.object_not_found(KIND.resource.name, key.name, group=KIND.group)
