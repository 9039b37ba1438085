"""The objects that hold room: a Deployment of pause pods for each size class, or a CapacityBuffer
with its PodTemplate where a node autoscaler knows that API."""

import hashlib
from collections.abc import Mapping
from itertools import chain
from typing import Any

import structlog

from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import BadRequest, NoMatch, Unprocessable, WriteConflict
from podscale.kube.client.resource import DEPLOYMENTS, Resource
from podscale.kube.client.wire import ListOf, decode, encode
from podscale.kube.discovery import Mapper
from podscale.nodes.cluster.pod_sums import HEADROOM_LABELS, HEADROOM_NAMESPACE
from podscale.nodes.cluster.workloads import PodController
from podscale.nodes.decide.headroom import SizeClass

_log = structlog.get_logger(__name__)

BUFFERS_GROUP = "autoscaling.x-k8s.io"
_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
_LABELS = {"app.kubernetes.io/name": "podscale", "app.kubernetes.io/component": "headroom"}
_CLASS = "nodes.podscale.io/headroom-class"


def buffers_of(mapper: Mapper) -> Resource | None:
    """Return the resource of CapacityBuffers, None where it is not served."""
    try:
        return mapper.for_kind("CapacityBuffer", BUFFERS_GROUP)[0]
    except NoMatch:
        return None


async def hold(
    api: Api,
    counts: Mapping[SizeClass, int],
    image: str,
    buffers: Resource | None,
    held: dict[SizeClass, int],
) -> int:
    """Bring the objects to ``counts``, and ``held`` to what they hold however far that comes;
    returns how many were written. Raises ``KubeError``."""
    if buffers is None:
        return await _bring(api, DEPLOYMENTS, counts, image, held)
    left = await _bring(api, DEPLOYMENTS, {}, image, {})  # of before the CRD was there
    return left + await _bring(api, buffers, counts, image, held)


async def _bring(
    api: Api,
    resource: Resource,
    counts: Mapping[SizeClass, int],
    image: str,
    held: dict[SizeClass, int],
) -> int:
    path = resource.path(HEADROOM_NAMESPACE)
    answer = await api.request("GET", path, query={"labelSelector": str(HEADROOM_LABELS)})
    listed = {each.metadata.name: each.spec.replicas
              for each in decode(answer.body, ListOf[PodController]).items or ()}  # fmt: skip
    wanted = {_name(size): (size, count) for size, count in counts.items()}
    held.clear()
    held.update({size: listed[name] for name, (size, _) in wanted.items() if name in listed})
    written = 0
    for name, (size, count) in wanted.items():
        if listed.get(name) == count:
            continue
        try:
            if name in listed:
                body = encode({"spec": {"replicas": count}})
                await api.request("PATCH", resource.path(HEADROOM_NAMESPACE, name), body=body,
                                  content_type=MERGE_PATCH)  # fmt: skip
            else:
                await _make(api, resource, size, count, image)
        except (BadRequest, Unprocessable) as refused:
            # What comes from one workload's template is of no concern to the others.
            _log.warning("no headroom for a size class", placement=size.placement,
                         error=refused.message)  # fmt: skip
            continue
        held[size] = count
        written += 1
    for name in listed.keys() - wanted.keys():
        await api.request("DELETE", resource.path(HEADROOM_NAMESPACE, name))
        if resource is not DEPLOYMENTS:
            await api.request("DELETE", _TEMPLATES.path(HEADROOM_NAMESPACE, name))
        written += 1
    return written


async def _make(api: Api, resource: Resource, size: SizeClass, count: int, image: str) -> None:
    if resource is not DEPLOYMENTS:
        template = {**_head(_TEMPLATES, size), "template": _template(size, image)}
        await _create(api, _TEMPLATES, template)
    spec = _spec(resource, size, count, image)
    await _create(api, resource, {**_head(resource, size), "spec": spec})


async def _create(api: Api, resource: Resource, body: Mapping[str, Any]) -> None:
    try:
        await api.request("POST", resource.path(HEADROOM_NAMESPACE), body=encode(body))
    except WriteConflict:
        return  # it is there


def _head(resource: Resource, size: SizeClass) -> dict[str, Any]:
    labels = {**_LABELS, _CLASS: _name(size)}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": _name(size), "namespace": HEADROOM_NAMESPACE, "labels": labels},
    }


def _spec(resource: Resource, size: SizeClass, count: int, image: str) -> dict[str, Any]:
    if resource is not DEPLOYMENTS:
        return {"replicas": count, "podTemplateRef": {"name": _name(size)}}
    return {
        "replicas": count,
        "selector": {"matchLabels": {_CLASS: _name(size)}},
        "template": _template(size, image),
    }


def _template(size: SizeClass, image: str) -> dict[str, Any]:
    placing = decode_json(size.placement) if size.placement else {}
    anti = placing.get("affinity", {}).get("podAntiAffinity", {})
    for each in chain(*anti.values(), placing.get("topologySpreadConstraints", ())):
        each.setdefault("labelSelector", {"matchLabels": {_CLASS: _name(size)}})
    requests = {
        "cpu": quantity.format_milli(size.cpu_milli),
        "memory": str(size.memory_bytes),
    }
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
