"""Scales of objects of any kind, remembered; one that hangs keeps nobody waiting.

What was read lately is answered at once. Everything else is read, and waited for: up to the
deadline where nothing is known, a moment where an older answer is, and where a request for the
kind has run into its deadline, no longer than the caller is patient.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog
from msgspec import Struct

from podscale.core.boundedcache import BoundedCache
from podscale.core.selectors.labels import is_label, is_subdomain
from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiUnreachable, KubeError, NoMatch, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.kube.discovery import KindResources
from podscale.kube.objects.scale import WireScale

_log = structlog.get_logger()

_FRESH_S = 600.0  # how long a scale is believed
_ABSENT_S = 60.0  # how long an object without one is not asked for again
_SILENT_S = 10.0  # how long one that gave no answer is not
_SLOW_S = 60.0  # how long a kind counts as slow after a request has run into its deadline
_MOMENT_S = 0.5
_AT_ONCE = 4  # requests for one kind: what hangs holds up its own kind only
_SILENT_AT_ONCE = 2  # of them for what gave no answer the last time
_MOST_BYTES = 32 * 1024 * 1024
_STRUCT_BYTES = 1000  # of a scale, its metadata and its key, besides their texts

_Key = tuple[str, str, str, str]  # namespace, group, kind, name


class ScaleRequest(Struct, frozen=True):
    """A scale, or why there is none."""

    at: float
    scale: WireScale | None
    problem: str = ""
    is_answered: bool = True  # False: nobody could say
    silent_until: float = 0.0  # where the last request had no answer: the next one comes then
    size: int = 0  # bytes


class ScaleCache:
    """Scales by namespace, group, kind and name."""

    def __init__(
        self,
        api: Api,
        kinds: KindResources,
        *,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._kinds = kinds
        self._timeout_s = timeout_s
        self._clock = clock
        # Pods' authors, and whoever reaches the webhook, write owners as they like.
        self._known: BoundedCache[_Key, ScaleRequest] = BoundedCache(_MOST_BYTES, age_s=3600.0)
        self._slow_until: BoundedCache[tuple[str, str], float] = BoundedCache(_MOST_BYTES // 32)
        self._requests: dict[_Key, asyncio.Task[ScaleRequest]] = {}  # under way

    async def get(
        self,
        namespace: str,
        api_version: str,
        kind: str,
        name: str,
        *,
        fresh_s: float = _FRESH_S,
        patience_s: float = 0.0,
    ) -> ScaleRequest:
        """Return the scale as it was at most ``fresh_s`` ago, an older one where nothing else
        is to be had.

        ``patience_s``: how long to wait for a kind that has been slow. Whoever asks for many,
        one after the other, has none: it is read meanwhile, and known the next time.
        """
        group, _, version = api_version.rpartition("/")
        key, now = (namespace, group, kind, name), self._clock()
        if not _can_exist(key, version):
            where = f"{kind[:64]} {namespace}/{name[:254]}"
            return ScaleRequest(now, None, f"Unhandled targetRef {where}: no object is called so")
        known = self._known.get(key)
        if known is not None and not self._is_due(known, now, fresh_s):
            return known
        wait_s = self._timeout_s if known is None else min(_MOMENT_S, self._timeout_s)
        if now < (self._slow_until.get((group, kind)) or now):
            wait_s = min(patience_s, self._timeout_s)
        try:
            async with asyncio.timeout(wait_s):
                while not self._begin(key, version):
                    await asyncio.wait(self._requests.values(), return_when=asyncio.FIRST_COMPLETED)
                # Whoever waits may be cancelled; the request is not.
                return await asyncio.shield(self._requests[key])
        except TimeoutError:
            if known is not None:
                return known
            problem = _unread(kind, namespace, name, "no answer yet")
            return ScaleRequest(now, None, problem, is_answered=False)

    def begin(self, namespace: str, api_version: str, kind: str, name: str) -> None:
        """Read beside whatever is done now, where nothing fresh is known."""
        group, _, version = api_version.rpartition("/")
        key = (namespace, group, kind, name)
        known = self._known.get(key)
        is_due = known is None or self._is_due(known, self._clock(), _FRESH_S)
        if is_due and _can_exist(key, version):
            self._begin(key, version)

    async def stop(self) -> None:
        requests = list(self._requests.values())
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests)

    def _is_due(self, known: ScaleRequest, now: float, fresh_s: float) -> bool:
        age_s = fresh_s if known.scale is not None else _ABSENT_S
        return now >= (known.silent_until or known.at + age_s)

    def _begin(self, key: _Key, version: str) -> bool:
        # Returns whether the object is being read: not if its kind has too many requests.
        if key in self._requests:
            return True
        known = self._known.get(key)
        most = _SILENT_AT_ONCE if known is not None and known.silent_until else _AT_ONCE
        if sum(other[1:3] == key[1:3] for other in self._requests) >= most:
            return False
        request = self._requests[key] = asyncio.create_task(self._read(key, version))
        request.add_done_callback(lambda done: self._ended(key, done))
        return True

    def _ended(self, key: _Key, done: asyncio.Task[ScaleRequest]) -> None:
        del self._requests[key]
        if not done.cancelled() and done.exception() is not None:
            _log.error("scale not read", namespace=key[0], kind=key[2], name=key[3],
                       exc_info=done.exception())  # fmt: skip

    async def _read(self, key: _Key, version: str) -> ScaleRequest:
        namespace, group, kind, name = key
        problem = f"Unhandled targetRef {kind} {namespace}/{name}: no scale subresource"
        scale, silence, size = None, "", _STRUCT_BYTES + sum(map(len, key))
        try:
            async with asyncio.timeout(self._timeout_s):
                for resource in await self._kinds.for_kind(kind, group, version):
                    path = resource.path(namespace, name, "scale")
                    try:
                        answer = await self._api.request("GET", path, timeout_s=self._timeout_s)
                        scale, problem = decode(answer.body, WireScale), ""
                        size += 2 * len(answer.body)
                        break
                    except (ObjectNotFound, msgspec.DecodeError) as error:
                        problem = f"Unhandled targetRef {kind} {namespace}/{name}: {error}"
        except NoMatch as error:
            problem = f"Unhandled targetRef {kind} {namespace}/{name}: {error}"
        except (KubeError, TimeoutError) as error:
            if isinstance(error, TimeoutError) or (
                isinstance(error, ApiUnreachable) and error.is_timeout
            ):
                self._slow_until.put((group, kind), self._clock() + _SLOW_S, len(group + kind))
            silence = _unread(kind, namespace, name, str(error) or "no answer in time")
        now = self._clock()
        request = ScaleRequest(now, scale, silence or problem, is_answered=not silence, size=size)
        if silence:
            # It neither takes a scale away nor makes one likely.
            known = self._known.get(key)
            request = known if known is not None and known.is_answered else request
            request = msgspec.structs.replace(request, silent_until=now + _SILENT_S)
        self._known.put(key, request, request.size + 4 * len(request.problem))
        return request


def _can_exist(key: _Key, version: str) -> bool:
    # What is no segment of a path is not there, and nothing is kept of it.
    _, group, kind, name = key
    return (
        is_subdomain(name)
        and is_label(kind.lower())
        and (not version or is_label(version))
        and (not group or is_subdomain(group))
    )


def _unread(kind: str, namespace: str, name: str, why: str) -> str:
    return f"{kind} {namespace}/{name} cannot be read: {why}"
