"""``Weather`` whose objects are listed and watched, by the product's own reflectors.

Lists of one kind may be refused, watches may stay open and say nothing, histories may be spoiled;
the judge knows when each replica last had a sign of life of what it watches.
"""

import asyncio
import base64
import gzip
import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from operator import itemgetter
from random import Random
from typing import Any

import msgspec

from hpa.cluster.stores import TargetWorkload
from hpa.decide.settings import Settings
from podscale.kube.client.api import JSON, WATCH_OPENS_S, Method
from podscale.kube.client.errors import ApiUnreachable, ServerFailed
from podscale.kube.client.resource import DEPLOYMENTS, HPAS, PODS
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.pod import Pod
from tests.faults.hpa_replica import Replica
from tests.faults.hpa_weather import NS, Line, Weather
from tests.kit.stores import fill
from tests.unit.hpa.world import pod_object

WATCHED = ("deployments", "horizontalpodautoscalers", "pods")
_SHRINKS_BY = WATCHED[1:]  # a workload that is not watched is read by GET
_RHYTHM = WatchTiming(list_timeout_s=5.0, silence_s=6.0, backoff_s=0.2, backoff_max_s=2.0)
_BOOKMARK_S = 2.0
_IN_FLIGHT_S = 6.0  # between a write's last look at the watches and its arrival
# As ``HistoryConfigMaps`` reads them: what a disk, an editor or an older release may leave.
_SPOILED: tuple[bytes, ...] = (
    b"\x00\xff" * 50,
    gzip.compress(b"[" * 5000),
    gzip.compress(b'{"shop/web0": 7, "shop/web1": {"at": "soon"}}'),
    gzip.compress(b'{"shop/web0": {}}' * 100)[:-9],
    gzip.compress(b'{"shop/web0": {"at": 1e300, "ups": [[9999999, 1e300]]}}'),
)
_Key = tuple[str, str]


class WatchedWeather(Weather):
    """The world with lists and watches."""

    def __init__(self, draw: Random) -> None:
        super().__init__(draw)
        self.pods: dict[_Key, dict[str, Any]] = {}
        self.refused = ""  # the plural that is answered with 503
        self.frozen_at = dict.fromkeys(WATCHED, -math.inf)  # watches opened before say nothing
        self.readers: set[_Key] = set()  # user and namespace: who may read metrics
        self.is_spoiled = False  # a history, which who takes over cannot know then
        self._compacted = dict.fromkeys(WATCHED, 0)  # versions that cannot be watched from
        self._heard: dict[_Key, float] = {}  # by replica and plural: its last sign of life
        self._history: dict[str, list[tuple[int, bytes]]] = {each: [] for each in WATCHED}
        self._known: dict[str, dict[_Key, tuple[str, Any]]] = {each: {} for each in WATCHED}
        self._news = asyncio.Event()

    def take(self, method: Method, path: str, sent: Any, replica: str) -> Any:
        """Answer lists and reviews as well."""
        plural = path.rpartition("/")[2]
        if plural == "subjectaccessreviews":
            asked = sent["spec"]["resourceAttributes"]
            allowed = (sent["spec"]["user"], asked.get("namespace", "")) in self.readers
            return {"status": {"allowed": allowed}}
        if method == "GET" and plural in WATCHED:
            self.note()
            items = list(self._objects(plural).values())
            return {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        if method == "PUT" and plural == "scale":
            self._judge_watches(path, sent, replica)
        before = self.holder
        answer = super().take(method, path, sent, replica)
        if self.holder != before and self.is_spoiled:
            for name in self.judge.specs:
                self.judge.unsettle(name)
        return answer

    def fate(self, method: Method, path: str) -> Exception | str | None:
        """Refuse to read one kind of object."""
        if self.refused and f"/{self.refused}" in path:
            is_read = method == "GET" or self.refused == "subjectaccessreviews"
            if is_read:
                return ServerFailed(503, "ServiceUnavailable", "overloaded")
        return super().fate(method, path)

    def refuse(self, plural: str) -> None:
        """Answer reads of one kind with 503; who watches it has to list it again."""
        self.refused = plural
        if plural in WATCHED:
            self._compacted[plural] = self.version
            self._wake()

    def freeze(self, plural: str) -> None:
        """Say nothing more on watches of one kind that stand, and do not end them."""
        self.frozen_at[plural] = asyncio.get_running_loop().time()

    def spoil(self) -> None:
        """Leave in place of every stored history what cannot be one."""
        self.is_spoiled = True
        for stored in self.config_maps.values():
            text = base64.b64encode(self.draw.choice(_SPOILED)).decode()
            stored["binaryData"] = {"history.json.gz": text}
            stored["metadata"]["resourceVersion"] = self.next_version()
        for name in self.judge.specs:
            self.judge.unsettle(name)

    def follow(self, sizes: Mapping[str, int]) -> None:
        """Have as many pods of each workload."""
        wanted = {(NS, f"{app}-{n}"): (app, n) for app, size in sizes.items() for n in range(size)}
        for key in sorted(self.pods.keys() - wanted.keys()):
            del self.pods[key]
        for key, (app, number) in wanted.items():
            if key not in self.pods:
                self.pods[key] = pod_object(app, number)
                self.pods[key]["metadata"]["resourceVersion"] = self.next_version()
        self.note()

    def note(self) -> None:
        """Take down what has changed since the last time."""
        for plural in WATCHED:
            known, objects = self._known[plural], self._objects(plural)
            fresh: list[tuple[int, bytes]] = []
            for key, each in objects.items():
                version = each["metadata"]["resourceVersion"]
                if key not in known or known[key][0] != version:
                    kind = "MODIFIED" if key in known else "ADDED"
                    known[key] = (version, each)
                    fresh.append((int(version), _line(kind, each)))
            for key in sorted(known.keys() - objects.keys()):
                _, each = known.pop(key)
                metadata = {**each["metadata"], "resourceVersion": self.next_version()}
                fresh.append((self.version, _line("DELETED", {**each, "metadata": metadata})))
            if fresh:
                self._history[plural] += sorted(fresh)
                self._wake()

    async def watch(self, replica: str, plural: str, since: int) -> AsyncIterator[list[bytes]]:
        """Yield what happens after ``since``, bookmarks in between, until it is too old."""
        loop = asyncio.get_running_loop()
        opened = self._heard[replica, plural] = loop.time()
        while True:
            if opened <= self.frozen_at[plural]:
                await asyncio.Event().wait()
            if since < self._compacted[plural]:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}
                yield [_line("ERROR", status)]
                return
            self.note()
            history = self._history[plural]
            if fresh := history[bisect_right(history, since, key=itemgetter(0)) :]:
                since, lines = fresh[-1][0], [line for _, line in fresh]
            else:
                try:
                    async with asyncio.timeout(_BOOKMARK_S):
                        await self._news.wait()
                    continue
                except TimeoutError:
                    metadata = {"resourceVersion": str(since)}
                    lines = [_line("BOOKMARK", {"metadata": metadata})]
                    if opened <= self.frozen_at[plural]:
                        continue
            self._heard[replica, plural] = loop.time()
            yield lines

    def _objects(self, plural: str) -> Mapping[_Key, dict[str, Any]]:
        found = (self.workloads, self.hpas, self.pods)
        return found[WATCHED.index(plural)]

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _judge_watches(self, path: str, sent: Any, replica: str) -> None:
        name = path.split("/")[-2]
        before, after = self.workloads[NS, name]["spec"]["replicas"], sent["spec"]["replicas"]
        now = asyncio.get_running_loop().time()
        for plural in _SHRINKS_BY:
            silent_s = now - self._heard.get((replica, plural), -math.inf)
            if after < before and silent_s > _RHYTHM.silence_s + WATCH_OPENS_S + _IN_FLIGHT_S:
                self.judge.found.append(
                    f"t={now:.2f} {replica} {name}: {before} -> {after}, with no sign of life "
                    f"of {plural} for {silent_s:.0f} s"
                )


class WatchedLine(Line):
    """A way to the API server on which there are watches."""

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        weather = self._weather
        assert isinstance(weather, WatchedWeather)
        await asyncio.sleep(0.001 + weather.draw.uniform(0.0, weather.slow_s))
        if self.is_cut:
            await asyncio.sleep(WATCH_OPENS_S)
            raise ApiUnreachable("silence", is_timeout=True)
        since = int((query or {})["resourceVersion"])
        events = weather.watch(self._replica, path.rpartition("/")[2], since)
        try:
            yield _until_silent(events, silence_s)
        finally:
            await events.aclose()  # type: ignore[attr-defined]


async def _until_silent(
    events: AsyncIterator[list[bytes]], silence_s: float
) -> AsyncIterator[list[bytes]]:
    while True:
        try:
            async with asyncio.timeout(silence_s):
                lines = await anext(events)
        except (StopAsyncIteration, TimeoutError):
            return
        yield lines


class WatchedReplica(Replica):
    """A replica that watches for itself."""

    line_type = WatchedLine

    def __init__(
        self, weather: Weather, name: str, settings: Settings, wall: Callable[[], float]
    ) -> None:
        super().__init__(weather, name, settings, wall)
        loop, stores = asyncio.get_running_loop(), self.stores
        for absent in (
            stores.stateful_sets, stores.replica_sets, stores.replication_controllers,
        ):  # fmt: skip
            fill(absent, now=loop.time())
        self._watches = [
            loop.create_task(Reflector(self.line, source, store, clock=loop.time).run())
            for source, store in (
                (WatchSource(HPAS, Autoscaler, rhythm=_RHYTHM), stores.autoscalers),
                (WatchSource(DEPLOYMENTS, TargetWorkload, rhythm=_RHYTHM), stores.deployments),
                (WatchSource(PODS, Pod, rhythm=_RHYTHM), stores.pods),
            )
        ]

    def see(self, sizes: dict[str, int]) -> None:
        """It is told by its watches."""

    def blind(self) -> None:
        """Its watches are its own."""

    def sighted(self) -> None:
        """Its watches are its own."""

    async def kill(self) -> None:
        """End its watches as well."""
        await super().kill()
        for each in self._watches:
            each.cancel()
        await asyncio.wait(self._watches)


def _line(kind: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj})
