"""An APIService taken over from another server (``--adopt``), without a moment in which nobody
answers, and given back by one command.

What routed there before stands in an annotation, as the patch that restores it. While that
annotation stands, an APIService that points elsewhere has been given back, and is left alone.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from podscale.core.settings import ADOPTED_FROM
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import Forbidden
from podscale.kube.client.resource import API_SERVICES, PODS, SERVICES
from podscale.serving.certificates.service import ServiceName

_HTTPS = 443
_RESTORED = ("service", "caBundle", "insecureSkipTLSVerify")


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None


class _ApiService(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: Mapping[str, Any] = {}


class _Port(Struct, frozen=True):
    port: int


class _ServiceSpec(Struct, frozen=True):
    selector: Mapping[str, str] | None = None
    ports: list[_Port] | None = None


class _Service(Struct, frozen=True):
    spec: _ServiceSpec


class _Condition(Struct, frozen=True):
    type: str
    status: str


class _PodStatus(Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Pod(Struct, frozen=True):
    status: _PodStatus = _PodStatus()


class _Services(Struct, frozen=True):
    items: list[_Service] | None = None


class _Pods(Struct, frozen=True):
    items: list[_Pod] | None = None


def is_given_back(annotations: Mapping[str, str] | None) -> bool:
    """Return whether an APIService that points elsewhere was ours before."""
    return ADOPTED_FROM in (annotations or {})


async def adopt(api: Api, name: str, service: ServiceName, ca_bundle: str) -> None:
    """Point the APIService to ``service`` once pods behind that are ready; raises ``KubeError``.

    Service and CA change in one write: the API server asks either server, and trusts it.
    """
    path = API_SERVICES.path("", name)
    found = msgspec.json.decode((await api.request("GET", path)).body, type=_ApiService)
    port = await _answering_port(api, service)
    if port is None or is_given_back(found.metadata.annotations):
        return
    before = {"spec": {key: found.spec.get(key) for key in _RESTORED}}
    patch = {
        "metadata": {
            "resourceVersion": found.metadata.resource_version,
            "annotations": {ADOPTED_FROM: msgspec.json.encode(before).decode()},
        },
        "spec": {
            "service": {"namespace": service.namespace, "name": service.name, "port": port},
            "caBundle": ca_bundle,
            "insecureSkipTLSVerify": None,
        },
    }
    await api.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
    structlog.get_logger().info("APIService adopted", name=name, was=before["spec"]["service"])


async def _answering_port(api: Api, service: ServiceName) -> int | None:
    """Return the Service's port; None: it is not there, or no pod behind it is ready."""
    query = {"fieldSelector": f"metadata.name={service.name}"}
    try:
        answer = await api.request("GET", SERVICES.path(service.namespace), query=query)
    except Forbidden:
        return _HTTPS  # as our manifests have it; whether a pod is ready is not known
    services = msgspec.json.decode(answer.body, type=_Services).items or []
    if not services:
        return None
    spec = services[0].spec
    if spec.selector:  # else where it leads is somebody else's knowledge
        query = {"labelSelector": ",".join(f"{key}={text}" for key, text in spec.selector.items())}
        answer = await api.request("GET", PODS.path(service.namespace), query=query)
        pods = msgspec.json.decode(answer.body, type=_Pods).items or []
        ready = _Condition("Ready", "True")
        if not any(ready in (pod.status.conditions or ()) for pod in pods):
            return None
    return spec.ports[0].port if spec.ports else _HTTPS
