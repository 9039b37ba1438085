"""The admission webhook's Lease, read from the API server itself."""

import asyncio

import msgspec
import structlog

from podscale.kube.api import Api
from podscale.kube.errors import KubeError, ObjectNotFound
from podscale.kube.objects.cluster import Lease as LeaseObject
from podscale.kube.resource import LEASES
from podscale.kube.wire import decode
from vpa.updater.lease import Lease

_log = structlog.get_logger()

_TRIES, _PAUSE_S = 3, 0.1  # upstream's, with pauses three times as long each time
_TIMEOUT_S = 5.0


async def read(api: Api, namespace: str, name: str) -> Lease:
    """Return the Lease; one that cannot be read shows no life."""
    for attempt in range(_TRIES):
        try:
            answer = await api.request("GET", LEASES.path(namespace, name), timeout_s=_TIMEOUT_S)
            found = decode(answer.body, LeaseObject)
            return Lease(name, found.metadata.creation_timestamp, found.spec.renew_time)
        except ObjectNotFound:
            break
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("sign of life not read", error=str(error))
            await asyncio.sleep(_PAUSE_S * 3**attempt)
    return Lease(name, None, None)
