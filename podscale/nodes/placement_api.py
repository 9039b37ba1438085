"""``GET /placement/{namespace}/{pod}``: why a pod has no node, as ``podscale explain pod -o json``
tells it.

Everything is read when it is asked for, with the part's rights: nobody keeps pods whole.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.nodes.explain import explain
from podscale.nodes.scheduling.cluster_reading import read
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route

PATH = "/placement"


class PlacementApi:
    """The answers, of every replica: they hang on no Lease."""

    def __init__(self, api: Api, wall: Callable[[], float] = time.time) -> None:
        self._api = api
        self._wall = wall
        self._turn = asyncio.Lock()  # 100,000 pods take hundreds of megabytes while they are read

    def routes(self) -> Sequence[Route]:
        return (Route(f"{PATH}/*", self._answer),)

    async def _answer(self, request: ApiRequest) -> Answered:
        namespace, _, name = request.path.removeprefix(f"{PATH}/").partition("/")
        if not (namespace and name) or "/" in name:
            return status.path_not_found()
        async with self._turn:
            try:
                pod, cluster = await read(self._api, namespace, name)
            except ObjectNotFound:
                return status.object_not_found("pods", name)
            except (KubeError, msgspec.DecodeError) as error:
                return status.unavailable(f"pods and nodes were not read: {error}", retry_after_s=5)
            return ApiResponse(value=await asyncio.to_thread(explain, pod, cluster, self._wall()))
