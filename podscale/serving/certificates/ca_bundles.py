"""Our CA where the API server looks for it: in APIServices.

Looked at each time, as the keeper does every half minute: an APIService may be registered
after we have started, or be handed to another server while we still run.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import API_SERVICES
from podscale.kube.client.wire import decode
from podscale.kube.objects.cluster import ApiService, ServiceName
from podscale.serving.certificates.adoption import adopt
from podscale.serving.certificates.keeper import Publish


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
