"""Watch requests: read, checked, and answered with a stream."""

import asyncio
import contextlib
from typing import Any

from aiohttp import web

from podscale.core.ascii_text import whole_number
from podscale.core.selectors import selector as labels
from podscale.core.selectors.selector import SelectorError
from podscale.sandbox.encoding import table
from podscale.sandbox.encoding.bodies import metadata_line, wants_metadata
from podscale.sandbox.errors import bad_request
from podscale.sandbox.http.gate import OpenGate
from podscale.sandbox.http.request import Request
from podscale.sandbox.objects import field_values
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Storage
from podscale.sandbox.objects.watch import Render, WatchStream, lines, timeout_of

_TRUE = ("1", "true")


class OpenWatches:
    def __init__(self, storage: Storage, gate: OpenGate, bookmark_interval_s: float) -> None:
        self._storage = storage
        self._gate = gate
        self._bookmark_interval_s = bookmark_interval_s
        self._stop = asyncio.Event()

    def cut(self) -> None:
        """End every open watch now; new ones are served."""
        self._stop.set()
        self._stop = asyncio.Event()

    async def answer(self, resource: SandboxResource, asked: Request) -> web.StreamResponse:
        """Stream events until the time-out, a cut, or the client's end."""
        watch = _read(resource, asked)
        accept = asked.http.headers.get("Accept", "")
        render: Render | None = metadata_line if wants_metadata(accept) else None
        if table.is_wanted(accept):
            render = table.renderer(resource, asked.target.version, asked.query, self._storage.wall)
        response = web.StreamResponse()
        response.content_type = "application/json"
        try:
            await response.prepare(asked.http)
        except ConnectionError:  # the client has gone while it asked
            return response
        stream = lines(
            watch,
            self._storage,
            self._stop,
            bookmark_interval_s=self._bookmark_interval_s,
            is_mute=lambda: self._gate.is_mute(asked),
            render=render,
        )
        with contextlib.suppress(ConnectionError):  # the client has gone
            async with contextlib.aclosing(stream) as chunks:
                async for chunk in chunks:
                    await response.write(chunk)
            await response.write_eof()
        return response


def selectors(resource: SandboxResource, asked: Request) -> tuple[labels.Selector, Any]:
    """Return the label and the field selector of a request; raises ``StatusError`` 400."""
    try:
        chosen = labels.parse(asked.query.get("labelSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from None
    return chosen, field_values.read(asked.query.get("fieldSelector", ""), resource)


def _read(resource: SandboxResource, asked: Request) -> WatchStream:
    query, target = asked.query, asked.target
    chosen, fields = selectors(resource, asked)
    revision = query.get("resourceVersion", "")
    if revision and whole_number(revision) is None:
        raise bad_request(f"invalid resource version {revision!r}")
    return WatchStream(
        resource,
        target.version,
        target.namespace if resource.namespaced else "",
        chosen,
        fields,
        revision,
        timeout_of(query.get("timeoutSeconds", "")),
        query.get("allowWatchBookmarks") in _TRUE,
        query.get("sendInitialEvents") in _TRUE,
    )
