"""Keeps room for the pods that the HPA is about to ask for. Only the leader acts.

A Deployment of pause pods holds it for each size class, or a CapacityBuffer with its PodTemplate
where a node autoscaler knows that API.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import structlog
from msgspec import Struct

from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.core.pace import LoopPace
from podscale.core.pod_state import PodPhase
from podscale.core.selectors.selector import EVERYTHING
from podscale.kube.client import errors
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.resource import DEPLOYMENTS, RESOURCE_QUOTAS, Resource
from podscale.kube.client.wire import ListOf, decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node, Taint
from podscale.kube.objects.vpa import StoredVpa, Vpa, readable
from podscale.nodes.cluster.pod_sums import HEADROOM_LABELS, HEADROOM_NAMESPACE
from podscale.nodes.headroom import shapes
from podscale.nodes.headroom.shapes import SizeClass
from podscale.nodes.scheduling.cluster_reading import read_all, read_one
from podscale.nodes.scheduling.cluster_view import lasting
from podscale.nodes.scheduling.objects import PodController
from podscale.nodes.selfmetrics import NodesMetrics

_log = structlog.get_logger(__name__)

_Target = tuple[str, str, str]  # namespace, kind, name

_BUFFERS_GROUP = "autoscaling.x-k8s.io"
_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
_LABELS = {"app.kubernetes.io/name": "podscale", "app.kubernetes.io/component": "headroom"}
_CLASS = "nodes.podscale.io/headroom-class"
_DECISIONS = Resource("hpa.podscale.io", "v1alpha1", "scalingdecisions", "ScalingDecision")


def _objects(
    resource: Resource, size: SizeClass, count: int, image: str
) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    # What holds room for a size class, in the order in which it is made.
    def object_of(kind: Resource, **more: Any) -> tuple[Resource, Mapping[str, Any]]:
        labels = {**_LABELS, _CLASS: name}
        metadata = {"name": name, "namespace": HEADROOM_NAMESPACE, "labels": labels}
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        return kind, {**head, **more}

    name, template = _name(size), _template(size, image)
    if resource is DEPLOYMENTS:
        selector = {"matchLabels": {_CLASS: name}}
        spec = {"replicas": count, "selector": selector, "template": template}
    else:
        yield object_of(_TEMPLATES, template=template)
        spec = {"replicas": count, "podTemplateRef": {"name": name}}
    yield object_of(resource, spec=spec)


def _template(size: SizeClass, image: str) -> dict[str, Any]:
    placing = decode_json(size.placement) if size.placement else {}
    anti = placing.get("affinity", {}).get("podAntiAffinity", {})
    for each in chain(*anti.values(), placing.get("topologySpreadConstraints", ())):
        each.setdefault("labelSelector", {"matchLabels": {_CLASS: _name(size)}})
    requests = {"cpu": quantity.format_milli(size.cpu_milli), "memory": str(size.memory_bytes)}
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]}}  # fmt: skip
    return {
        "metadata": {"labels": {**_LABELS, _CLASS: _name(size)}},
        "spec": {
            **placing,
            "priorityClassName": "podscale-headroom",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "pause", "image": image,
                            "resources": {"requests": requests}, "securityContext": confined}],
        },
    }  # fmt: skip


def _name(size: SizeClass) -> str:
    text = f"{size.cpu_milli} {size.memory_bytes} {size.placement}"
    return f"headroom-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


class HeadroomChoice(Struct, frozen=True):
    limit: shapes.HeadroomLimit
    image: str = "pause"


@dataclass(eq=False)
class HeadroomKeeper:
    """Run ``once`` again and again while leading."""

    api: Api  # fenced by the Lease
    nodes: Store[Node]
    pods: PodStore
    vpas: Store[StoredVpa]
    choice: HeadroomChoice
    metrics: NodesMetrics
    mapper: Callable[[], Mapper]
    wall: Callable[[], float] = time.time
    # By namespace/kind/name.
    _expected: dict[str, shapes.ExpectedSize] = field(default_factory=dict)
    _held: dict[SizeClass, int] = field(default_factory=dict)  # as read and written last

    async def once(self) -> None:
        """Look at all decisions, and keep as much room as they are short of; raises what the
        round fails by."""
        try:
            await self._round()
        except errors.NotLeading:
            raise
        except Exception as error:
            self.metrics.headroom_rounds.labels("failed").inc()
            if isinstance(error, errors.Forbidden | errors.ObjectNotFound):
                _log.warning(
                    f"headroom is not kept: where the namespace {HEADROOM_NAMESPACE} or a right is "
                    "missing, apply deploy/kustomize/components/nodes-headroom"
                )
            raise
        self.metrics.headroom_rounds.labels("done").inc()

    async def _round(self) -> None:
        coming = await self._coming(self.wall())
        # What namespaces have left is read for those that are short of pods.
        quotas = await read_all(self.api, RESOURCE_QUOTAS, shapes.Quota) if coming else ()
        counts = shapes.headroom(coming, self.choice.limit, shapes.left_of(quotas))
        try:
            written = await self._hold(counts)
        finally:
            cpu = sum(size.cpu_milli * count for size, count in self._held.items())
            memory = sum(size.memory_bytes * count for size, count in self._held.items())
            self.metrics.headroom.labels("cpu").set(cpu / 1000)
            self.metrics.headroom.labels("memory").set(memory)
        if written:
            _log.info("headroom changed", objects=written, pods=sum(self._held.values()),
                      cpu_milli=cpu, memory_bytes=memory)  # fmt: skip

    async def _hold(self, counts: Mapping[SizeClass, int]) -> int:
        # Returns how many objects were written.
        try:
            buffers, *_ = self.mapper().for_kind("CapacityBuffer", _BUFFERS_GROUP)
        except errors.NoMatch:
            return await self._bring(DEPLOYMENTS, counts, self._held)
        # Deployments are of before the CRD was there.
        left = await self._bring(DEPLOYMENTS, {}, {})
        return left + await self._bring(buffers, counts, self._held)

    async def _bring(
        self, resource: Resource, counts: Mapping[SizeClass, int], held: dict[SizeClass, int]
    ) -> int:
        # ``held`` becomes what they hold, however far it comes; unchanged while that is unknown.
        api, path = self.api, resource.path(HEADROOM_NAMESPACE)
        answer = await api.request("GET", path, query={"labelSelector": str(HEADROOM_LABELS)})
        listed = {each.metadata.name: each.spec.replicas
                  for each in decode(answer.body, ListOf[PodController]).items or ()}  # fmt: skip
        names = {size: _name(size) for size in counts}
        held.clear()
        held.update((size, listed[name]) for size, name in names.items() if name in listed)
        written = 0
        for size, count in counts.items():
            name = names[size]
            if listed.get(name) == count:
                continue
            try:
                if name in listed:
                    body = encode({"spec": {"replicas": count}})
                    await api.request("PATCH", f"{path}/{name}", body=body,
                                      content_type=MERGE_PATCH)  # fmt: skip
                else:
                    for kind, made in _objects(resource, size, count, self.choice.image):
                        with suppress(errors.WriteConflict):  # it is there
                            where = kind.path(HEADROOM_NAMESPACE)
                            await api.request("POST", where, body=encode(made))
            except (errors.BadRequest, errors.Unprocessable) as refused:
                # What comes from one workload's template is of no concern to the others.
                _log.warning("no headroom for a size class", placement=size.placement,
                             error=refused.message)  # fmt: skip
                continue
            held[size] = count
            written += 1
        for name in listed.keys() - names.values():
            await api.request("DELETE", f"{path}/{name}")
            if resource is not DEPLOYMENTS:
                await api.request("DELETE", _TEMPLATES.path(HEADROOM_NAMESPACE, name))
            written += 1
        return written

    async def _coming(self, now: float) -> list[shapes.ComingPods]:
        try:
            decisions = await read_all(self.api, _DECISIONS, shapes.ScalingDecision)
        except errors.ObjectNotFound:
            decisions = ()  # nobody serves decisions (any more)
        sizes: dict[str, shapes.ExpectedSize] = {}
        short: list[tuple[str, shapes.ScalingDecision, int]] = []
        for decision in decisions:
            target = decision.spec.scale_target_ref
            workload = f"{decision.metadata.namespace}/{target.kind}/{target.name}"
            size = shapes.expected(self._expected.get(workload), shapes.proposed(decision), now)
            if size is None:
                continue
            sizes[workload] = size
            present = decision.status.replicas
            if present is not None and present < size.replicas:
                short.append((workload, decision, size.replicas - present))
        self._expected = sizes
        namespaces = {decision.metadata.namespace for _, decision, _ in short}
        taints, vpas = self._taints(namespaces), await self._vpas_by_target(namespaces)
        found = [await self._shaped(*each, taints, vpas) for each in short]
        return [each for each in found if each is not None]

    async def _vpas_by_target(self, namespaces: Iterable[str]) -> dict[_Target, list[Vpa]]:
        found: dict[_Target, list[Vpa]] = {}
        pace = LoopPace()
        for namespace in namespaces:
            for stored in self.vpas.values(namespace):
                vpa = readable(stored)
                if vpa is not None and (target := vpa.spec.target_ref) is not None:
                    found.setdefault((namespace, target.kind, target.name), []).append(vpa)
                await pace.rest()
        return found

    def _taints(self, namespaces: Iterable[str]) -> dict[str, set[Taint]]:
        # Of the nodes on which pods of each namespace run.
        placed = self.pods.placed()
        is_running = placed.phase == PodPhase.RUNNING
        found = {}
        for namespace in namespaces:
            rows = self.pods.rows(namespace, EVERYTHING)
            places = np.unique(placed.node[rows[is_running[rows]]]).tolist()
            nodes = (self.nodes.get("", placed.nodes[place] or "") for place in places)
            found[namespace] = {taint for node in nodes if node for taint in lasting(node)}
        return found

    async def _shaped(
        self,
        workload: str,
        decision: shapes.ScalingDecision,
        count: int,
        taints: Mapping[str, Iterable[Taint]],
        vpas: Mapping[_Target, Sequence[Vpa]],
    ) -> shapes.ComingPods | None:
        namespace, target = decision.metadata.namespace, decision.spec.scale_target_ref
        if target.kind not in shapes.WITH_TEMPLATES:
            return None
        try:
            path = shapes.WITH_TEMPLATES[target.kind].path(namespace, target.name)
            template = await read_one(self.api, path, shapes.TemplatedWorkload)
        except (errors.ObjectNotFound, msgspec.DecodeError):
            return None  # gone, or not made of containers
        sizing = vpas.get((namespace, target.kind, target.name), ())
        return shapes.coming(workload, count, template, sizing, taints[namespace])
