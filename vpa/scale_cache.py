"""Scales of objects of any kind, remembered; one that hangs keeps nobody waiting.

What is known is answered at once and asked again beside that. Only what is not known is
waited for; where a kind, or the object itself, has run into its deadline, no longer than
the caller is patient.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiUnreachable, KubeError, NoMatch, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.kube.discovery.restmapper import KindResources
from podscale.kube.objects.scale import WireScale

_log = structlog.get_logger()

_FRESH_S = 600.0  # how long a scale is believed
_OLD_S = 3600.0  # an older one is waited for, if it can be had
_FAILED_S = 60.0  # how long a kind without one is not asked for again
_AGAIN_S, _MOST_AGAIN_S = 5.0, 60.0  # after no answer, doubled
_SLOW_S = 60.0  # how long a kind counts as slow that ran into its deadline and answers nothing
_AT_ONCE = 4  # requests for one kind: what hangs holds up its own kind only
_SLOW_AT_ONCE = 2  # of them for what was slow the last time: others of its kind are not held up
_MOST = 20_000

_Key = tuple[str, str, str, str]  # namespace, group, kind, name
_Kind = tuple[str, str]


class ScaleRequest(Struct, frozen=True):
    """A scale, or why there is none."""

    at: float
    scale: WireScale | None
    problem: str = ""
    is_answered: bool = True  # False: nobody could say
    is_slow: bool = False  # not in time


class _Silent(Struct, frozen=True):
    # What gave no answer, and until when it is not asked again.
    until: float
    pause_s: float
    is_slow: bool  # it ran into the deadline


class _Places:
    # Those at which questions about one kind are asked.

    def __init__(self) -> None:
        self.all = asyncio.Semaphore(_AT_ONCE)
        self.slow = asyncio.Semaphore(_SLOW_AT_ONCE)


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
        self._known: dict[_Key, ScaleRequest] = {}
        self._silent: dict[_Key, _Silent] = {}
        self._slow: dict[_Kind, float] = {}  # until when
        self._asking: dict[_Key, asyncio.Task[ScaleRequest]] = {}
        # Only as long as a question stands at one: pods' authors write kinds as they like.
        self._places: WeakValueDictionary[_Kind, _Places] = WeakValueDictionary()

    async def get(
        self,
        namespace: str,
        api_version: str,
        kind: str,
        name: str,
        *,
        fresh_s: float = _FRESH_S,
        waits: bool = False,
        patience_s: float = 0.0,
    ) -> ScaleRequest:
        """Return the scale as it was at most ``fresh_s`` ago, an older one where nothing else
        is to be had.

        ``waits``: ask for a fresh one first, though an older one is known. ``patience_s``:
        how long to wait for what has been slow. Whoever asks for many, one after the other,
        has none: it is asked beside, and known the next time.
        """
        group, _, version = api_version.rpartition("/")
        key, now = (namespace, group, kind, name), self._clock()
        known = self._known.get(key)
        if known is not None and not self._is_due(key, known, now, fresh_s):
            return known
        asking = self._ask_again(key, version)
        has = known is not None and known.scale is not None
        is_old = known is not None and now - known.at > _OLD_S
        wait_s = min(patience_s, self._timeout_s) if self._is_slow(key, now) else self._timeout_s
        if (waits or is_old or not has) and wait_s > 0:
            # Whoever waits may be cancelled; the question is not.
            await asyncio.wait({asking}, timeout=wait_s)
        if asking.done():
            return asking.result()
        if known is not None:
            return known
        return ScaleRequest(
            now, None, _unread(kind, namespace, name, "no answer yet"), is_answered=False
        )

    def begin(self, namespace: str, api_version: str, kind: str, name: str) -> None:
        """Ask beside whatever is done now, where nothing fresh is known."""
        group, _, version = api_version.rpartition("/")
        key = (namespace, group, kind, name)
        known = self._known.get(key)
        if known is None or self._is_due(key, known, self._clock(), _FRESH_S):
            self._ask_again(key, version)

    async def stop(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    def _is_due(self, key: _Key, known: ScaleRequest, now: float, fresh_s: float) -> bool:
        silent = self._silent.get(key)
        if silent is not None:
            return now >= silent.until
        return now - known.at >= (fresh_s if known.scale is not None else _FAILED_S)

    def _is_slow(self, key: _Key, now: float) -> bool:
        silent = self._silent.get(key)
        is_slow = silent is not None and silent.is_slow and now < silent.until + _SLOW_S
        return is_slow or now < self._slow.get((key[1], key[2]), float("-inf"))

    def _ask_again(self, key: _Key, version: str) -> asyncio.Task[ScaleRequest]:
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._learn(key, version))
            asking.add_done_callback(lambda done: self._asked(key, done))
        return asking

    def _asked(self, key: _Key, done: asyncio.Task[ScaleRequest]) -> None:
        del self._asking[key]
        if not done.cancelled() and done.exception() is not None:
            _log.error("scale not read", namespace=key[0], kind=key[2], name=key[3],
                       exc_info=done.exception())  # fmt: skip

    async def _learn(self, key: _Key, version: str) -> ScaleRequest:
        kind = (key[1], key[2])
        places = self._places.setdefault(kind, _Places())
        before = self._silent.get(key)
        async with AsyncExitStack() as stack:
            if before is not None and before.is_slow:
                await stack.enter_async_context(places.slow)
            await stack.enter_async_context(places.all)
            asked = await self._ask(key, version)
        known = self._known.get(key)
        if asked.is_answered:
            self._silent.pop(key, None)
            self._slow.pop(kind, None)  # it was that object, not its kind
        else:
            if asked.is_slow:
                self._slow[kind] = asked.at + _SLOW_S
            pause_s = min(before.pause_s * 2, _MOST_AGAIN_S) if before is not None else _AGAIN_S
            self._silent[key] = _Silent(asked.at + pause_s, pause_s, asked.is_slow)
            if known is not None and known.is_answered:
                return known  # silence neither takes a scale away nor makes one likely
        if len(self._known) >= _MOST:
            self._known.clear()
            self._silent.clear()
            self._slow.clear()
        self._known[key] = asked
        return asked

    async def _ask(self, key: _Key, version: str) -> ScaleRequest:
        namespace, group, kind, name = key
        problem = f"Unhandled targetRef {kind} {namespace}/{name}: no scale subresource"
        try:
            async with asyncio.timeout(self._timeout_s):
                for resource in await self._kinds.for_kind(kind, group, version):
                    try:
                        answer = await self._api.request(
                            "GET",
                            resource.path(namespace, name, "scale"),
                            timeout_s=self._timeout_s,
                        )
                        return ScaleRequest(self._clock(), decode(answer.body, WireScale))
                    except (ObjectNotFound, msgspec.DecodeError) as error:
                        problem = f"Unhandled targetRef {kind} {namespace}/{name}: {error}"
        except NoMatch as error:
            problem = f"Unhandled targetRef {kind} {namespace}/{name}: {error}"
        except (KubeError, TimeoutError) as error:
            is_slow = isinstance(error, TimeoutError) or (
                isinstance(error, ApiUnreachable) and error.is_timeout
            )
            problem = _unread(kind, namespace, name, str(error) or "no answer in time")
            return ScaleRequest(self._clock(), None, problem, is_answered=False, is_slow=is_slow)
        return ScaleRequest(self._clock(), None, problem)


def _unread(kind: str, namespace: str, name: str, why: str) -> str:
    return f"{kind} {namespace}/{name} cannot be read: {why}"
