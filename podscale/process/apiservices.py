"""The APIServices that route to us: who is behind them, our CA in them, and one taken over from
another server (``--adopt``), without a moment in which nobody answers, and given back by one
command.

Only ``podscale`` itself writes here (``--service``), never the launchers. They are looked at each
time, as the keeper does every half minute: one may be registered after we have started. What routed
there before adoption stands in an annotation, as the patch that restores it. While that annotation
stands, an APIService that points elsewhere has been given back, and is left alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
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
from podscale.kube.leadership.leading import for_ever, identity
from podscale.kube.leadership.lease import Elector
from podscale.kube.objects.cluster import ApiService, ServiceName
from podscale.kube.objects.pod import Pod
from podscale.process.part import Flagged, PartKind, Shared, Work
from podscale.serving.certificates.keeper import (
    CertificateKeeper,
    Publish,
    keeper_behind,
    service_of,
)
from podscale.serving.monitoring.health import Health

log = structlog.get_logger(__name__)


class ServiceBackend(Struct, frozen=True):
    """A Service before us, and the APIServices that it may serve."""

    service: ServiceName
    names: Sequence[str]
    adopt: bool = False


async def warn_of_others(api: Api, behind: ServiceBackend) -> None:
    """Warn of the APIServices that route elsewhere and are not going to be adopted."""
    for name in behind.names:
        try:
            body = (await api.request("GET", API_SERVICES.path("", name))).body
            found = decode(body, ApiService)
            if found.spec.service == behind.service:
                continue
            if not behind.adopt:
                why = "it points elsewhere, --adopt takes it over"
            elif is_given_back(found.metadata.annotations):
                why = (
                    f"it was given back; without the annotation {ADOPTED_FROM} it is adopted again"
                )
            else:
                continue
            log.warning(f"APIService left alone: {why}", name=name, service=str(found.spec.service))
        except ObjectNotFound:
            continue
        except KubeError as error:
            log.warning("APIService not read", name=name, error=str(error))


async def certificates(
    flags: Flagged, kinds: Mapping[str, PartKind], shared: Shared, health: Health
) -> tuple[CertificateKeeper | None, list[Work]]:
    """Return what keeps one certificate for every API served here, and what runs for it.

    Secret and Lease lie in the first Service's namespace; what is to be adopted waits for
    ``health`` to be ready. A launcher has upstream's rights, and
    those do not include it.
    """
    behind: dict[str, ServiceBackend] = {}
    for name, own in flags.items():
        if "service" not in own.values or not kinds[name].api_services:
            continue
        if service := service_of(own.text("service")):
            behind[name] = ServiceBackend(service, kinds[name].api_services, own.switch("adopt"))
    if not behind or shared.is_launcher:
        return None, []
    published: dict[str, ServiceName] = {}
    for each in behind.values():
        await warn_of_others(shared.api, each)
        published |= dict.fromkeys(each.names, each.service)

    def may_adopt(name: str) -> bool:
        if health.report("readyz").status != HTTPStatus.OK:
            return False
        for part, each in behind.items():
            if each.adopt and name in each.names:
                adopts = kinds[part].adopts
                return adopts is None or name in adopts(shared.parts[part])
        return False

    first = next(iter(behind))
    works: list[Work] = []
    if len(shared.names) == 1 and kinds[first].has_lease:
        may_write = shared.parts[first].is_leader
    else:
        elector = Elector(
            shared.api,
            namespace=behind[first].service.namespace,
            name=_lease_name(behind[first].service, is_alone=len(shared.names) == 1),
            identity=identity(),
            chosen_by="--service",
        )
        may_write = elector.may_write
        works.append(("certificates", partial(elector.run, for_ever)))
    keeper = keeper_behind(
        shared.api,
        *(each.service for each in behind.values()),
        publish=publisher(shared.api, published, may_adopt),
        may_write=may_write,
    )
    return keeper, works


def _lease_name(service: ServiceName, *, is_alone: bool) -> str:
    # With others, a part may lead by a Lease of the Service's name.
    return service.name if is_alone else f"{service.name}-certificates"


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
    log.info("APIService adopted", name=name, was=before["spec"]["service"])


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
        log.warning("BundleNotPublished", object=name, error=str(error))
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
