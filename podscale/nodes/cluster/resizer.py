"""The one write of ballast: resizing its pod in place."""

from collections.abc import Sequence

import msgspec
import structlog

from podscale.core import quantity
from podscale.kube.client.api import JSON_PATCH, Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.objects.pod import Pod
from podscale.nodes.decide.ballast import CPU, LEAST, MEMORY

_log = structlog.get_logger(__name__)

_TIMEOUT_S = 10.0
CONTAINER = "pause"
LEAST_REQUESTS = (float(LEAST[CPU, 0]), float(LEAST[MEMORY, 0]))


def resize_patch(uid: str, requests: Sequence[float]) -> bytes:
    """Return the JSON patch that gives a ballast pod these requests (thousandths of a core,
    bytes), if it is still the same pod."""
    wanted = {
        "cpu": quantity.format_milli(round(requests[CPU])),
        "memory": str(round(requests[MEMORY])),
    }
    return encode([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/containers/0/name", "value": CONTAINER},
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": wanted},
    ])  # fmt: skip


async def resize(
    api: Api, pods: PodStore | None, namespace: str, name: str, uid: str, requests: Sequence[float]
) -> str:
    """Resize one ballast pod; returns ``done``, ``gone`` or ``failed``, and raises ``NotLeading``.

    The next decision sees what was written, whenever a watch brings it to ``pods``.
    """
    try:
        answer = await api.request(
            "PATCH",
            PODS.path(namespace, name, "resize"),
            body=resize_patch(uid, requests),
            content_type=JSON_PATCH,
            timeout_s=_TIMEOUT_S,
        )
        if pods is not None:
            pods.accept(decode(answer.body, Pod))
    except ObjectNotFound:
        return "gone"
    except (KubeError, msgspec.DecodeError) as error:
        _log.warning("ballast not resized", namespace=namespace, name=name, error=str(error))
        return "failed"
    return "done"
