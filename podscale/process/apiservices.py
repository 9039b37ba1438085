"""The APIServices that route to us: who is behind them, and our CA in them.

Only ``podscale`` itself writes here (``--service``), never the launchers. An APIService
that points to another server is left alone unless ``--adopt`` says to take it over, which the
Lease holder does once it is ready (``podscale.serving.certificates.ca_bundles``).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus

import structlog
from msgspec import Struct

from podscale.core.settings import ADOPTED_FROM
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import API_SERVICES
from podscale.kube.client.wire import decode
from podscale.kube.leadership.leading import for_ever, identity
from podscale.kube.leadership.lease import Elector
from podscale.kube.objects.cluster import ApiService, ServiceName
from podscale.process.part import Flagged, PartKind, Shared, Work
from podscale.serving.certificates.ca_bundles import is_given_back, publisher
from podscale.serving.certificates.keeper import CertificateKeeper, keeper_behind, service_of
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
