"""The APIServices that route to us: who is behind them, and our CA in them.

Only ``podscale`` itself writes here (``--service``), never the launchers. An APIService
that points to another server is left alone unless ``--adopt`` says to take it over.
"""

from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.api import MERGE_PATCH, Api
from podscale.kube.errors import KubeError, ObjectNotFound
from podscale.kube.lease import Elector
from podscale.kube.own_pod import identity
from podscale.serving.authority import times_for
from podscale.serving.bundles import publisher
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.service import ServiceName, keeper_behind

log = structlog.get_logger(__name__)

NAMES = (
    "v1beta1.custom.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.metrics.k8s.io",
)


class Behind(Struct, frozen=True):
    """A Service before us, and the APIServices that it may serve."""

    service: ServiceName
    names: Sequence[str] = NAMES
    adopt: bool = False


class _Spec(Struct, frozen=True):
    service: ServiceName | None = None


class _ApiService(Struct, frozen=True):
    spec: _Spec = _Spec()


async def settle(api: Api, behind: Behind) -> None:
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


async def certificate(
    api: Api, behind: Sequence[Behind], *, lease: str, ca_lifetime_s: float
) -> tuple[CertificateKeeper, Elector]:
    """Return what keeps one certificate for all of ``behind``, and the Lease of who publishes.

    Secret and Lease lie in the first one's namespace.
    """
    published: dict[str, ServiceName] = {}
    for each in behind:
        await settle(api, each)
        published |= dict.fromkeys(each.names, each.service)
    elector = Elector(
        api,
        namespace=behind[0].service.namespace,
        name=lease,
        identity=identity(),
        chosen_by="--service",
    )
    keeper = keeper_behind(
        api,
        *(each.service for each in behind),
        publish=publisher(api, published),
        may_write=elector.may_write,
        times=times_for(ca_lifetime_s),
    )
    return keeper, elector


def _patch(service: ServiceName) -> bytes:
    # The old server's CA goes with the old server; ours follows as soon as it is known.
    spec = {
        "service": {"namespace": service.namespace, "name": service.name, "port": 443},
        "caBundle": None,
        "insecureSkipTLSVerify": True,
    }
    return msgspec.json.encode({"spec": spec})
