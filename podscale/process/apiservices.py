"""The APIServices that route to us: who is behind them, and our CA in them.

Only ``podscale`` itself writes here (``--service``), never the launchers. An APIService
that points to another server is left alone unless ``--adopt`` says to take it over.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.leadership.leading import for_ever
from podscale.kube.leadership.lease import Elector
from podscale.kube.leadership.own_pod import identity
from podscale.process.part import Flagged, PartKind, Shared, Work
from podscale.serving.certificates.authority import times_for
from podscale.serving.certificates.ca_bundles import publisher
from podscale.serving.certificates.keeper import CertificateKeeper
from podscale.serving.certificates.service import ServiceName, keeper_behind, service_of

log = structlog.get_logger(__name__)


class ServiceBackend(Struct, frozen=True):
    """A Service before us, and the APIServices that it may serve."""

    service: ServiceName
    names: Sequence[str]
    adopt: bool = False


class _Spec(Struct, frozen=True):
    service: ServiceName | None = None


class _ApiService(Struct, frozen=True):
    spec: _Spec = _Spec()


async def settle(api: Api, behind: ServiceBackend) -> None:
    """Adopt the APIServices that route elsewhere, if that is wanted, or warn of them."""
    for name in behind.names:
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        try:
            body = (await api.request("GET", path)).body
            service = msgspec.json.decode(body, type=_ApiService).spec.service
            if service == behind.service:
                continue
            if behind.adopt:
                body = _patch(behind.service)
                await api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
                log.info("APIService adopted", name=name, was=str(service))
            else:
                log.warning(
                    "APIService left alone: it points elsewhere, --adopt takes it over",
                    name=name, service=str(service),
                )  # fmt: skip
        except ObjectNotFound:
            continue
        except KubeError as error:
            log.warning("APIService not read", name=name, error=str(error))


async def certificates(
    flags: Flagged, kinds: Mapping[str, PartKind], shared: Shared
) -> tuple[CertificateKeeper | None, list[Work]]:
    """Return what keeps one certificate for every API served here, and what runs for it.

    Secret and Lease lie in the first Service's namespace. A launcher has upstream's rights, and
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
        await settle(shared.api, each)
        published |= dict.fromkeys(each.names, each.service)
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
        publish=publisher(shared.api, published),
        may_write=may_write,
        times=times_for(flags[first].seconds("serving-ca-lifetime")),
    )
    return keeper, works


def _lease_name(service: ServiceName, *, is_alone: bool) -> str:
    # With others, a part may lead by a Lease of the Service's name.
    return service.name if is_alone else f"{service.name}-certificates"


def _patch(service: ServiceName) -> bytes:
    # The old server's CA goes with the old server; ours follows as soon as it is known.
    spec = {
        "service": {"namespace": service.namespace, "name": service.name, "port": 443},
        "caBundle": None,
        "insecureSkipTLSVerify": True,
    }
    return msgspec.json.encode({"spec": spec})
