"""An API group of one resource that only the leader of a part can answer for.

Decisions live in the memory of who made them. Everybody else answers 503 NotLeader, never
an empty list: the Service selects the leader's pod, and a client that comes too early asks
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from podscale.core.times.moment import read_time
from podscale.core.times.rfc3339 import rfc3339
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause, Status

RETRY_S = 1
_AHEAD_S = 60.0  # as far as clocks may differ
_LISTS = 2  # made at a time: of ten thousand objects one takes tens of megabytes


class LeaderApi:
    """An ``ApiGroup``: one version, one resource, get and list."""

    def __init__(
        self,
        group: str,
        version: str,
        resource: ApiResource,
        *,
        is_leader: Callable[[], bool],
        refusal: str,
        answer: Callable[[ApiRequest], Answered | Awaitable[Answered]],
    ) -> None:
        """``refusal`` is said by who does not lead; ``answer`` is asked of who does."""
        self._group = group
        self._version = version
        self._resource = resource
        self._is_leader = is_leader
        self._refusal = refusal
        self._answer = answer
        self._lists = asyncio.Semaphore(_LISTS)

    @property
    def name(self) -> str:
        return self._group

    @property
    def versions(self) -> Sequence[str]:
        return (self._version,)

    @property
    def offers_table(self) -> bool:
        """``kubectl get`` shows one."""
        return True

    def revision(self) -> Hashable:
        """Discovery never changes."""
        return 0

    def resources(self, version: str) -> Sequence[ApiResource]:
        return (self._resource,)

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """None: the facts of an explanation differ from reason to reason."""
        return {}

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer, or say why not."""
        info = request.info
        if info.resource != self._resource.name or info.subresource:
            return status.path_not_found()
        # Nor "proxy", which an old form of path names and RBAC judges apart.
        if request.method != "GET" or info.verb not in ("get", "list"):
            return status.method_not_allowed()
        if not self._is_leader():
            return self._not_leading()
        if info.verb == "list":
            return self._in_turn(request)
        answer = self._answer(request)
        return answer if isinstance(answer, ApiResponse | Status) else self._whole(answer)

    async def _in_turn(self, request: ApiRequest) -> Answered:
        async with self._lists:
            answer = self._answer(request)
            if isinstance(answer, ApiResponse | Status):
                return answer
            return await self._whole(answer)

    async def _whole(self, answer: Awaitable[Answered]) -> Answered:
        found = await answer
        # What was known may have been dropped while the answer was being made.
        return found if self._is_leader() else self._not_leading()

    def _not_leading(self) -> Status:
        return status.unavailable(
            self._refusal,
            causes=(Cause(reason="NotLeader", message="another replica holds the Lease"),),
            retry_after_s=RETRY_S,
        )


def asked_time(text: str, now: float) -> float | Status:
    """Return the unix seconds that ``?at=`` asks for, or why that is no time to be asked for."""
    time_s = read_time(text, now)
    if time_s is None:
        return status.bad_request(
            f"at={text} is neither a time (2026-11-21T10:00:00Z) nor an age (5m)"
        )
    if time_s > now + _AHEAD_S:
        return status.bad_request(f"at={text} lies ahead: it is {rfc3339(now)}")
    return time_s
