"""One part's leadership: the Lease where there is one, the writes it fences, the work it runs.

Who we are comes from the manifest: POD_NAMESPACE and POD_NAME. Outside of a pod there is neither;
then a process is known by its host and number.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Unpack

from msgspec import Struct

from podscale.kube.client.api import (
    DEFAULT_TIMEOUT_S,
    JSON,
    MERGE_PATCH,
    Api,
    Method,
    RequestOptions,
    Response,
)
from podscale.kube.client.credentials import SERVICE_ACCOUNT
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode, encode
from podscale.kube.leadership.lease import Elector, LeaseTimes, Term
from podscale.kube.objects.cluster import ObjectReference


def own_namespace(default: str) -> str:
    """Return the namespace of our pod. Blocking. NAMESPACE is what upstream's VPA reads."""
    given = os.environ.get("POD_NAMESPACE", "") or os.environ.get("NAMESPACE", "")
    if given:
        return given
    file: Path = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else default


def identity() -> str:
    """Return who holds a Lease: the pod, or this process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


def own_pod() -> ObjectReference | None:
    """Return our pod as events name it; None where the manifest does not tell it."""
    pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if not pod or not namespace:
        return None
    return ObjectReference(kind="Pod", namespace=namespace, name=pod, api_version="v1")


def leader_label_of(api: Api, part: str) -> Callable[[bool], Awaitable[None]] | None:
    """Return what labels our pod as the leader of ``part``; None outside of a pod."""
    pod = own_pod()
    if pod is None:
        return None
    return leader_label(api, namespace=pod.namespace, pod=pod.name, part=part)


_LABEL_TIMEOUT_S = 4.0


class FencedApi(Struct, eq=False):
    """An ``Api`` whose writes go out only while ``elector`` leads; reads pass."""

    api: Api
    elector: Elector

    @property
    def user_agent(self) -> str:
        """What the connection calls itself."""
        return self.api.user_agent

    async def request(
        self, method: Method, path: str, **options: Unpack[RequestOptions]
    ) -> Response:
        """As ``Api.request``; a write raises ``NotLeading`` instead of going out late."""
        elector, guard = self.elector, options.get("guard")

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
        return await self.api.request(method, path, **options)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        return self.api.stream(path, query=query, accept=accept, silence_s=silence_s)


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


_STOP_S = 5.0

LeadershipListener = Callable[[bool], Awaitable[None]]


async def for_ever(_term: Term) -> None:
    """Lead, and do nothing else: others ask ``may_write``."""
    await asyncio.Event().wait()


class LeaseChoice(Struct, frozen=True):
    """Which Lease a part leads by."""

    namespace: str
    name: str
    identity: str
    times: LeaseTimes = LeaseTimes()


class Leadership:
    """Whether one part may act. ``run`` its work, ``stop`` before the connection closes."""

    def __init__(
        self,
        api: Api,
        lease: LeaseChoice | None,
        on_change: LeadershipListener | None = None,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """``lease`` None: alone; ``annotations`` are written on it with each renewal."""
        self.api = api  # writes pass only while we lead
        self.elector: Elector | None = None
        if lease is not None:
            self.elector = Elector(
                api,
                namespace=lease.namespace,
                name=lease.name,
                identity=lease.identity,
                times=lease.times,
                on_change=on_change,
                annotations=annotations,
            )
            self.api = FencedApi(api, self.elector)
        self._working: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now."""
        return self.elector is None or self.elector.may_write()

    async def run(
        self, work: Callable[[Term], Awaitable[None]], beside: Sequence[Coroutine[Any, Any, None]]
    ) -> None:
        """Work for each term until cancelled or stopped; ``beside`` runs whoever leads."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in beside]
            self._working = group.create_task(self._lead(work), name="lead")
            await asyncio.wait({self._working})
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Give the Lease back."""
        working = self._working
        if working is not None and not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=_STOP_S)

    async def _lead(self, work: Callable[[Term], Awaitable[None]]) -> None:
        if self.elector is None:
            await work(Term(None))
        else:
            await self.elector.run(work)
