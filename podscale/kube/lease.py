"""Leadership by Lease: at most one active controller acts.

All deadlines are of the monotonic clock, so a clock jump neither prolongs nor ends a
term; a process that was frozen finds its deadline passed and must not write, whatever
its tasks believed. ``guard`` is that check; ``Fenced`` puts it into every write.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from podscale.kube.api import DEFAULT_TIMEOUT_S, JSON, Api, Method, Response


class LeaseTimes(Struct, frozen=True):
    """client-go's defaults."""

    duration_s: float = 15.0  # others wait this long after our last renewal
    renew_deadline_s: float = 10.0  # we stop acting this long after our last renewal
    retry_s: float = 2.0


DEFAULT_TIMES = LeaseTimes()


class Term(Struct, frozen=True):
    """One period of leadership, and what the Lease said before it."""

    transitions: int
    previous_holder: str  # "" when the Lease was new or released
    previous_renew_time: float | None  # unix seconds; what stored history extends to


class Elector:
    """One Lease: acquired, renewed, released."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes = DEFAULT_TIMES,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``on_change`` is told of gain and loss (it labels the pod); what it raises is logged."""
        raise NotImplementedError

    async def run(self, work: Callable[[Term], Awaitable[None]]) -> None:
        """Lead again and again: ``work`` runs for each term and is cancelled at its end.

        Cancelling ``run`` cancels ``work``, then releases the Lease. What ``work``
        raises ends ``run`` with it, after the release.
        """
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Whether a write may be sent now; same as ``may_write()``."""
        raise NotImplementedError

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read; "" is nobody."""
        raise NotImplementedError

    @property
    def renewed_wall_s(self) -> float | None:
        """Unix time of our last renewal; None: not leading."""
        raise NotImplementedError

    def deadline(self) -> float:
        """Monotonic time after which nothing may be written; -inf when not leading."""
        raise NotImplementedError

    def may_write(self) -> bool:
        """Whether the deadline has not passed."""
        raise NotImplementedError

    def guard(self) -> None:
        """Raise ``NotLeading`` unless ``may_write()``; called immediately before a write."""
        raise NotImplementedError


class Fenced:
    """An ``Api`` whose writes go out only while ``elector`` leads; reads pass."""

    def __init__(self, api: Api, elector: Elector) -> None:
        raise NotImplementedError

    @property
    def user_agent(self) -> str:
        raise NotImplementedError

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        guard: Callable[[], None] | None = None,
    ) -> Response:
        raise NotImplementedError

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


def leader_label(
    api: Api, *, namespace: str, pod: str, part: str, key: str = "podscale.io/leader"
) -> Callable[[bool], Awaitable[None]]:
    """Return an ``on_change`` that labels our pod ``key=part`` and takes the label from others."""
    raise NotImplementedError
