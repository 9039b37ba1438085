"""APIServices: our CA in them, and one taken over from another server (``--adopt``), without a
moment in which nobody answers, and given back by one command.

Looked at each time, as the keeper does every half minute: an APIService may be registered after we
have started. What routed there before adoption stands in an annotation, as the patch that restores
it. While that annotation stands, an APIService that points elsewhere has been given back, and is
left alone.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.core.settings import ADOPTED_FROM
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import Forbidden, KubeError, ObjectNotFound
from podscale.kube.client.resource import API_SERVICES, PODS, SERVICES
from podscale.kube.client.wire import ListOf, ObjectMeta, decode
from podscale.kube.objects.cluster import ApiService, ServiceName
from podscale.kube.objects.pod import Pod
from podscale.serving.certificates.keeper import Publish

_HTTPS = 443
_RESTORED = ("service", "caBundle", "insecureSkipTLSVerify")


class _ApiService(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = {}


class _Port(Struct, frozen=True):
    port: int


class _ServiceSpec(Struct, frozen=True):
    selector: Mapping[str, str] | None = None
    ports: list[_Port] | None = None


class _Service(Struct, frozen=True):
    spec: _ServiceSpec


def is_given_back(annotations: Mapping[str, str] | None) -> bool:
    """Return whether an APIService that points elsewhere was ours before."""
    return ADOPTED_FROM in (annotations or {})


async def adopt(api: Api, name: str, service: ServiceName, ca_bundle: str) -> None:
    """Point the APIService to ``service`` once pods behind that are ready; raises ``KubeError``.

    Service and CA change in one write: the API server asks either server, and trusts it.
    """
    path = API_SERVICES.path("", name)
    found = decode((await api.request("GET", path)).body, _ApiService)
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
    services = decode(answer.body, ListOf[_Service]).items or []
    if not services:
        return None
    spec = services[0].spec
    if spec.selector:  # else where it leads is somebody else's knowledge
        query = {"labelSelector": ",".join(f"{key}={text}" for key, text in spec.selector.items())}
        answer = await api.request("GET", PODS.path(service.namespace), query=query)
        conditions = [
            (each.type, each.status)
            for pod in decode(answer.body, ListOf[Pod]).items or []
            for each in pod.status.conditions
        ]
        if ("Ready", "True") not in conditions:
            return None
    return spec.ports[0].port if spec.ports else _HTTPS


def publisher(
    api: Api, services: Mapping[str, ServiceName], may_adopt: Callable[[str], bool]
) -> Publish:
    """Return a ``Publish`` for APIServices by name, with the Service that they have to route to.

    What does not exist is left alone, and what routes elsewhere unless it ``may_adopt`` that now;
    everything else that fails is "not published".
    """

    async def publish(bundle: bytes) -> bool:
        done = True
        for name, service in services.items():
            done &= await _tolerant(_publish_service(api, name, service, bundle, may_adopt), name)
        return done

    return publish


async def _tolerant(work: Awaitable[None], name: str) -> bool:
    try:
        await work
    except ObjectNotFound:
        return True
    except KubeError as error:
        structlog.get_logger().warning("BundleNotPublished", object=name, error=str(error))
        return False
    return True


async def _publish_service(
    api: Api, name: str, service: ServiceName, bundle: bytes, may_adopt: Callable[[str], bool]
) -> None:
    path = API_SERVICES.path("", name)
    text = decode_json(msgspec.json.encode(bundle), str)  # base64
    found = decode((await api.request("GET", path)).body, ApiService)
    if found.spec.service != service:
        if may_adopt(name):
            await adopt(api, name, service, text)
        return  # how another server is trusted is its own affair
    if found.spec.ca_bundle == text and not found.spec.is_insecure:
        return
    # Both at once: the API server refuses a caBundle beside insecureSkipTLSVerify.
    patch = {"spec": {"caBundle": text, "insecureSkipTLSVerify": None}}
    await api.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
