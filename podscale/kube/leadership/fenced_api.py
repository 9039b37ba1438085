"""What leadership does to an ``Api``: writes pass only while the Lease is ours.

And what it shows outside: the label that the Service of the leader's API selects.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Unpack

from podscale.kube.client.api import (
    DEFAULT_TIMEOUT_S,
    JSON,
    MERGE_PATCH,
    Api,
    Method,
    RequestOptions,
    Response,
)
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode, encode
from podscale.kube.leadership.lease import Elector

_LABEL_TIMEOUT_S = 4.0


class FencedApi:
    """An ``Api`` whose writes go out only while ``elector`` leads; reads pass."""

    def __init__(self, api: Api, elector: Elector) -> None:
        self._api = api
        self._elector = elector

    @property
    def user_agent(self) -> str:
        """What the connection calls itself."""
        return self._api.user_agent

    async def request(
        self, method: Method, path: str, **options: Unpack[RequestOptions]
    ) -> Response:
        """As ``Api.request``; a write raises ``NotLeading`` instead of going out late."""
        elector, guard = self._elector, options.get("guard")

        def both() -> None:
            if guard is not None:
                guard()
            elector.guard()

        if method != "GET":
            elector.guard()
            options["guard"] = both
            # A write must have left before the term ends: after it another leader acts.
            timeout_s = options.get("timeout_s", DEFAULT_TIMEOUT_S)
            options["timeout_s"] = min(timeout_s, elector.remaining_s())
        return await self._api.request(method, path, **options)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self._api.stream(path, query=query, accept=accept, silence_s=silence_s)


def leader_label(
    api: Api, *, namespace: str, pod: str, part: str
) -> Callable[[bool], Awaitable[None]]:
    """Return an ``on_change`` that labels our pod and takes the label from others.

    Each part has a key of its own, because one pod may lead several (``podscale control``).
    A leader that was killed or frozen cannot take its own label off, so the next one does.
    It raises where that fails, and may be called again.
    """
    key = f"leader.podscale.io/{part}"

    async def label(name: str, value: str | None) -> None:
        patch = encode({"metadata": {"labels": {key: value}}})
        await api.request(
            "PATCH",
            PODS.path(namespace, name),
            body=patch,
            content_type=MERGE_PATCH,
            timeout_s=_LABEL_TIMEOUT_S,
        )

    async def on_change(is_leader: bool) -> None:
        if not is_leader:
            await label(pod, None)
            return
        await label(pod, "true")
        answer = await api.request(
            "GET",
            PODS.path(namespace),
            query={"labelSelector": f"{key}=true"},
            timeout_s=_LABEL_TIMEOUT_S,
        )
        failure: KubeError | None = None
        for other in decode(answer.body, ListOf[PartialObjectMetadata]).items or []:
            if other.metadata.name == pod:
                continue
            try:
                await label(other.metadata.name, None)
            except ObjectNotFound:
                continue
            except KubeError as error:
                failure = error  # once the others have lost theirs
        if failure is not None:
            raise failure  # half of all that the Service selects answers NotLeader: try again

    return on_change
