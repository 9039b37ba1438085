"""A little API server: enough of one to list, watch, write and fail on command.

``LittleCluster`` is the state; ``MemoryApi`` reaches it without sockets (virtual time),
``served`` over HTTP on loopback.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from podscale.core.selectors import selector as selectors
from podscale.kube.client.api import JSON, WATCH_OPENS_S, Response
from podscale.kube.client.errors import ApiError, ApiUnreachable
from podscale.sandbox.objects.patch import merge
from tests.kit.api import FakeApi, Sent, ok
from tests.kit.nested import expanded

Object = dict[str, object]
BOOKMARK_S = 20.0


class Refusal(Exception):
    """The server says no."""

    def __init__(self, status: int, reason: str, message: str = "", retry_after: str = "") -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    def body(self) -> Object:
        return {
            "kind": "Status",
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }


class LittleCluster:
    """Objects by collection path, one history for all."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, Object] = {}  # by full path
        self.history: list[tuple[int, str, str, Object]] = []  # version, type, path, object
        self.compacted = 0  # versions up to here cannot be watched from
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.fault: Callable[[str, str, Mapping[str, str]], Refusal | None] = lambda *_: None
        self.is_hanging = False
        self.answers: dict[str, object] = {}  # fixed GET answers by path
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._tokens = itertools.count()
        self._news: asyncio.Event | None = None
        self._cuts = 0

    def put(self, path: str, obj: Object) -> Object:
        """Create or replace an object."""
        self.version += 1
        obj = copy.deepcopy(obj)
        meta = obj.setdefault("metadata", {})
        assert isinstance(meta, dict)
        parts = path.split("/")
        meta["name"] = parts[-1]
        if "namespaces" in parts[:-2]:
            meta["namespace"] = parts[parts.index("namespaces") + 1]
        old = self.objects.get(path)
        meta.setdefault("uid", f"uid-{self.version}" if old is None else old["metadata"]["uid"])
        meta["resourceVersion"] = str(self.version)
        self.objects[path] = obj
        self._note("ADDED" if old is None else "MODIFIED", path, obj)
        return obj

    def delete(self, path: str) -> None:
        self.version += 1
        obj = copy.deepcopy(self.objects.pop(path))
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._note("DELETED", path, obj)

    def compact(self) -> None:
        """Forget history: watches from before, and pages under way, are 410."""
        self.compacted = self.version
        self.history.clear()
        self._pages.clear()

    def cut(self) -> None:
        """Break every watch that stands."""
        self._cuts += 1
        self._wake()

    def restore(self, version: int) -> None:
        """History goes backwards, as after restoring a backup of etcd."""
        self.version = version
        self.compacted = 0
        self.history.clear()
        self._cuts += 1
        for obj in self.objects.values():
            obj["metadata"]["resourceVersion"] = str(version)
        self._wake()

    def _note(self, type_: str, path: str, obj: Object) -> None:
        self.history.append((self.version, type_, path, copy.deepcopy(obj)))
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            event, self._news = self._news, None
            event.set()

    async def _next(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    async def handle(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Object:
        self.requests.append((method, path, dict(query)))
        if self.is_hanging:
            await asyncio.Event().wait()
        if refusal := self.fault(method, path, query):
            raise refusal
        if method == "GET":
            if path in self.answers:
                return self.answers[path]
            if path in self.objects:
                return self.objects[path]
            if _is_collection(path):
                return self._list(path, query)
            raise Refusal(404, "NotFound", f"{path} not found")
        sent = json.loads(body or b"{}")
        if method == "POST":
            path = f"{path}/{sent['metadata']['name']}"
            if path in self.objects:
                raise Refusal(409, "AlreadyExists")
            return self.put(path, sent)
        if path not in self.objects:
            raise Refusal(404, "NotFound", f"{path} not found")
        if method == "DELETE":
            self.delete(path)
            return {"kind": "Status", "status": "Success"}
        known = self.objects[path]
        if method == "PUT":
            wanted = sent["metadata"].get("resourceVersion")
            if wanted and wanted != known["metadata"]["resourceVersion"]:
                raise Refusal(409, "Conflict", "the object has been modified")
            return self.put(path, sent)
        return self.put(path, merge(known, sent))

    def _list(self, path: str, query: Mapping[str, str]) -> Object:
        token, limit = query.get("continue", ""), int(query.get("limit", "0"))
        if token:
            if token not in self._pages:
                raise Refusal(410, "Expired", "the continue token is too old")
            version, items = self._pages[token]
        else:
            version = self.version
            items = [
                copy.deepcopy(obj)
                for where, obj in sorted(self.objects.items())
                if _is_in(path, where) and _matches(obj, query)
            ]
        meta = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            meta["continue"] = f"token-{next(self._tokens)}"
            self._pages[meta["continue"]] = (version, items[limit:])
            items = items[:limit]
        return {"kind": "List", "metadata": meta, "items": items}

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield lines; raises ConnectionResetError when the watch is cut."""
        self.requests.append(("WATCH", path, dict(query)))
        if refusal := self.fault("WATCH", path, query):
            raise refusal
        if self.is_hanging:
            await asyncio.Event().wait()
        since, cuts = int(query["resourceVersion"]), self._cuts
        if since < self.compacted:
            # As the real one: 200, and the error inside the stream.
            yield _line("ERROR", Refusal(410, "Expired", "too old resource version").body())
            return
        while True:
            if cuts != self._cuts:
                raise ConnectionResetError("cut")
            if since < self.compacted:
                yield _line("ERROR", Refusal(410, "Expired", "too old resource version").body())
                return
            fresh = [event for event in self.history if event[0] > since]
            for version, type_, where, obj in fresh:
                since = version
                if _is_in(path, where) and _matches(obj, query):
                    yield _line(type_, obj)
            if fresh:
                continue
            try:
                await asyncio.wait_for(self._next(), BOOKMARK_S)
            except TimeoutError:
                yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(since)}})


class MemoryApi(FakeApi):
    """An ``Api`` over a ``LittleCluster``, without sockets."""

    def __init__(self, cluster: LittleCluster) -> None:
        self.cluster = cluster
        self.is_cut_off = False
        self.delay_s = 0.001

    async def reply(self, sent: Sent) -> Response:
        try:
            async with asyncio.timeout(sent.timeout_s):
                await asyncio.sleep(self.delay_s)
                if self.is_cut_off:
                    await asyncio.Event().wait()
                if sent.guard is not None:
                    sent.guard()
                answer = await self.cluster.handle(sent.method, sent.path, sent.query, sent.body)
        except TimeoutError:
            late = f"{sent.method} {sent.path}: late"
            raise ApiUnreachable(late, is_timeout=True) from None
        except Refusal as refusal:
            raise ApiError.of(refusal.status, refusal.reason, str(refusal)) from None
        return ok(answer)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        await asyncio.sleep(self.delay_s)
        if self.is_cut_off:
            await asyncio.sleep(min(silence_s, WATCH_OPENS_S))
            raise ApiUnreachable("silence", is_timeout=True)
        lines = self.cluster.watch(path, query or {})
        try:
            yield self._batches(lines, silence_s)
        except Refusal as refusal:
            raise ApiError.of(refusal.status, refusal.reason, str(refusal)) from None
        finally:
            await lines.aclose()

    async def _batches(
        self, lines: AsyncIterator[bytes], silence_s: float
    ) -> AsyncIterator[list[bytes]]:
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    line = await anext(lines)
                    if self.is_cut_off:
                        await asyncio.Event().wait()
            except (StopAsyncIteration, TimeoutError):
                return
            except ConnectionResetError as error:
                raise ApiUnreachable(str(error)) from None
            yield [line]


@asynccontextmanager
async def served(cluster: LittleCluster, ssl: object = None) -> AsyncIterator[str]:
    """Serve ``cluster`` over HTTP; yields the URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        try:
            if query.get("watch"):
                return await stream(request, query)
            body = await request.read()
            answer = await cluster.handle(request.method, request.path, query, body)
            return web.Response(
                body=expanded(json.dumps(answer).encode()), content_type="application/json"
            )
        except Refusal as refusal:
            headers = {"Retry-After": refusal.retry_after} if refusal.retry_after else {}
            return web.json_response(refusal.body(), status=refusal.status, headers=headers)

    async def stream(request: web.Request, query: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        lines = cluster.watch(request.path, query)
        first = asyncio.ensure_future(anext(lines))
        done, _ = await asyncio.wait({first}, timeout=0.02)
        if done and isinstance(first.exception(), Refusal):
            raise first.exception()
        await response.prepare(request)
        try:
            line = await first
            while True:
                await response.write(line)
                line = await anext(lines)
        except StopAsyncIteration:
            pass
        except ConnectionResetError:
            if request.transport is not None:
                request.transport.abort()
        return response

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if ssl else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def pod(labels: Mapping[str, str] | None = None, **status: object) -> Object:
    """A pod, as far as tests need one."""
    return {
        "metadata": {"labels": dict(labels or {})},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", **status},
    }


def pods_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def _line(type_: str, obj: Object) -> bytes:
    return expanded(json.dumps({"type": type_, "object": obj}).encode()) + b"\n"


def _is_collection(path: str) -> bool:
    return path.rsplit("/", 1)[1].endswith("s")


def _is_in(collection: str, path: str) -> bool:
    holder, _ = path.rsplit("/", 1)
    if holder == collection:
        return True
    root, plural = collection.rsplit("/", 1)
    return holder.startswith(f"{root}/namespaces/") and holder.endswith(f"/{plural}")


def _matches(obj: Object, query: Mapping[str, str]) -> bool:
    text = query.get("labelSelector", "")
    labels = obj["metadata"].get("labels") or {}
    return not text or selectors.parse(text).matches(labels)
