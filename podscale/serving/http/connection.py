"""One client connection: bytes to requests, replies to bytes, one request at a time.

A reply that is at hand is written in the same turn of the loop, without a task. Times
at which a silent or slow client is given up are kept here and enforced by the server's
sweep, so that no request pays for a timer.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import uuid4

import structlog

from podscale.serving import status
from podscale.serving.http import request as http
from podscale.serving.http.parser import Parser
from podscale.serving.status import Status

if TYPE_CHECKING:
    from podscale.serving.http.server import HttpServer

_NEVER = float("inf")
_SLICE = 128 * 1024  # encrypted in one turn of the loop, about 0.1 ms
_PIPELINED = 64 * 1024
_KEPT_BY_TLS = 64 * 1024  # of a client that sends, or does not read, without end; each way
_IN_ONE_TURN = 16  # answers to pipelined requests, about 1 ms
_CLOSE = ("Connection", "close")
_KEEP_ALIVE = ("Connection", "keep-alive")


class Respond(Protocol):
    """The chain behind the connections."""

    def __call__(
        self, request: http.HttpRequest, peer: http.Peer, *, is_full: bool
    ) -> http.Reply | Coroutine[Any, Any, http.Reply]:
        """Return the reply, or a coroutine that does; never a coroutine when ``is_full``."""


class HttpConnection(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, host: "HttpServer") -> None:
        self._host = host
        self._parser = Parser(body_limit=self._body_limit)
        self._transport: asyncio.Transport | None = None
        self._peer: http.Peer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_advancing = False
        self._is_resting = False
        self._is_paused = False
        self._is_reading_paused = False
        self._unsent = memoryview(b"")
        self._is_sending_on = False
        self._closes = False
        self._has_continued = False
        self._phase = "header"
        self._body = 0  # bytes of the body of the request that is being answered
        self._held = 0  # bytes that ``host.held`` counts for this connection
        self.give_up_at = _NEVER  # loop time after which the sweep ends this connection

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered or a reply has not left us."""
        return self._task is not None or self._is_paused or self._is_resting or bool(self._unsent)

    @property
    def is_being_answered(self) -> bool:
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, its handshake done."""
        self._transport = cast(asyncio.Transport, transport)
        self._peer = peer = http.peer_of(transport)
        host = self._host
        host.opened(self, peer)
        if host.is_draining:
            self._transport.abort()
            return
        _bound(self._transport)
        self.give_up_at = host.now() + host.limits.header_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop what nobody waits for any more."""
        self._host.closed(self)
        self._host.held -= self._held
        self._held = 0
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on, unless a request is still being answered."""
        if self._closes:
            return  # what follows the last request is nobody's
        self._parser.feed(data)
        if not self.is_busy:
            self._advance()
        elif self._transport is not None and not (
            self._has_room() and self._parser.buffered <= _PIPELINED
        ):
            # Pipelining is allowed and pointless; it must not become our memory.
            self._transport.pause_reading()
            self._is_reading_paused = True

    def eof_received(self) -> bool:
        """Close after the reply under way: TLS has no half-open connections."""
        return False

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._is_paused = True
        self.give_up_at = self._host.now() + self._host.limits.write_s

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._closes and not self._unsent:
            return
        self.give_up_at = _NEVER
        self._phase = "answering"
        if self._unsent and not self._is_sending_on:
            self._send()
        if self._task is None:
            self._advance()

    def close_if_idle(self) -> None:
        """End the connection, unless it is in the middle of something."""
        if not self.is_busy and not self._closes:
            self._close()

    def give_up(self) -> None:
        """End a connection whose client took too long."""
        transport = self._transport
        if transport is None:
            return
        self.give_up_at = _NEVER
        if self._is_paused or self._closes:
            transport.abort()
        elif self._parser.buffered or self._parser.is_within_body:
            self._write(None, http.encoded(Status(message="the request came too slowly", code=408)))
        else:
            self._close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _body_limit(self, method: str, target: str) -> int:
        return self._host.body_limit(method, target, self._peer or http.NOBODY)

    def _advance(self) -> None:
        if self._is_advancing:
            return
        self._is_advancing = True
        begun = 0
        try:
            while not self.is_busy and not self._closes and self._transport is not None:
                item = self._parser.next()
                if item is None:
                    self._wait_for_more()
                    return
                self._has_continued = False
                if isinstance(item, http.RequestRefusal):
                    self._write(None, http.encoded(item.status, closes=True))
                    return
                self._begin(item)
                begun += 1
                if begun == _IN_ONE_TURN and self._parser.buffered:
                    self._is_resting = True  # others want to be heard, too
                    asyncio.get_running_loop().call_soon(self._rested)
        finally:
            self._is_advancing = False

    def _rested(self) -> None:
        self._is_resting = False
        self._advance()

    def _wait_for_more(self) -> None:
        host, parser = self._host, self._parser
        buffered = parser.buffered
        if buffered != self._held and not self._has_room() and buffered:
            self._turn_away()
            return
        if self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if parser.is_within_body:
            if parser.wants_continue and not self._has_continued and self._transport is not None:
                self._has_continued = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            phase, limit = "body", host.limits.body_s
        elif buffered or self._phase == "header":
            # Empty lines are no request: who sends them waits no longer for one.
            phase, limit = "header", host.limits.header_s
        else:
            phase, limit = "idle", host.limits.idle_s
        # A trickling client must not push its own deadline: it moves with the phase, and
        # phases follow one another (idle, header, body) until a whole request has come.
        if phase != self._phase:
            self._phase = phase
            self.give_up_at = host.now() + limit

    def _has_room(self) -> bool:
        # Counts what this connection holds now, and says whether all of them may go on.
        host = self._host
        held = self._parser.buffered + self._body
        host.held += held - self._held
        self._held = held
        return host.held <= host.limits.held

    def _turn_away(self) -> None:
        self._host.turned_away += 1
        text = "too much is being received at the same time, try again later"
        self._write(None, http.encoded(status.unavailable(text, retry_after_s=1)))

    def _begin(self, request: http.HttpRequest) -> None:
        host = self._host
        self._phase = "answering"
        self.give_up_at = _NEVER
        host.places.heard(self)
        peer = self._peer
        if peer is None:
            return
        if request.body:
            self._body = len(request.body)
            if not self._has_room():
                self._turn_away()
                return
        is_reading = request.method in ("GET", "HEAD")
        limits = host.limits
        is_full = host.reading >= limits.reading if is_reading else host.mutating >= limits.mutating
        try:
            outcome = host.respond(request, peer, is_full=is_full)
        except Exception:  # noqa: BLE001 - the last line of defence: a reply, never a traceback
            outcome = http.failed(request)
        if isinstance(outcome, http.Reply):
            self._write(request, outcome)
            return
        # Counted here, not in the task: a burst would pass before the first task runs.
        if is_reading:
            host.reading += 1
        else:
            host.mutating += 1
        self._task = host.spawn(self._await(request, outcome))
        self._task.add_done_callback(partial(self._answered, outcome, is_reading))

    def _answered(
        self, work: Coroutine[Any, Any, http.Reply], is_reading: bool, _task: "asyncio.Task[None]"
    ) -> None:
        # Not in the task itself: one that is cancelled before its first step runs nothing.
        work.close()
        if is_reading:
            self._host.reading -= 1
        else:
            self._host.mutating -= 1

    async def _await(
        self, request: http.HttpRequest, work: Coroutine[Any, Any, http.Reply]
    ) -> None:
        try:
            reply = await work
        except Exception:  # noqa: BLE001 - as above
            reply = http.failed(request)
        finally:
            self._task = None
        transport = self._transport
        if transport is None:
            return
        try:
            self._write(request, reply)
            self._advance()
        except Exception:  # noqa: BLE001 - one connection's failure must not end the task group
            structlog.get_logger().exception("ConnectionFailed")
            transport.abort()

    def _write(self, request: http.HttpRequest | None, reply: http.Reply) -> None:
        transport = self._transport
        if transport is None:
            return
        closes = (
            reply.closes or request is None or not request.keeps_alive or self._host.is_draining
        )
        head = self._head(request, reply, closes)
        body = reply.body
        if request is not None and request.method == "HEAD":
            body = b""
        self._closes = closes
        if self._body:
            self._body = 0
            self._has_room()
        self._unsent = memoryview(body)[_SLICE:]
        # A head of its own would wake the client for nothing, and cost 0.1 to 0.2 ms of our CPU.
        transport.write(head + body[:_SLICE])
        if self._unsent:
            self._send_on()
        elif closes:
            self._close()

    def _send(self) -> None:
        # In slices, stopping when the transport has enough: given the whole body it would
        # buffer all of it, and never tell that the client reads nothing. One slice a turn: a
        # fast reader of 16 MB must not keep everybody else waiting.
        transport = self._transport
        self._is_sending_on = False
        if self._unsent and not self._is_paused and transport is not None:
            transport.write(self._unsent[:_SLICE])
            self._unsent = self._unsent[_SLICE:]
            self._send_on()
        if not self._unsent and transport is not None:
            if self._closes:
                self._close()
            elif not self._is_paused and self._task is None:
                self._advance()  # what came meanwhile; within ``_advance`` itself it does nothing

    def _send_on(self) -> None:
        if self._unsent and not self._is_paused:
            self._is_sending_on = True
            asyncio.get_running_loop().call_soon(self._send)

    def _close(self) -> None:
        transport = self._transport
        if transport is None:
            return
        self._closes = True
        self._parser = Parser()  # frees what it holds
        self._has_room()
        if self._is_reading_paused:
            self._is_reading_paused = False
            transport.resume_reading()  # to hear that the other end closes as well
        self.give_up_at = self._host.now() + self._host.limits.write_s
        transport.close()

    def _head(self, request: http.HttpRequest | None, reply: http.Reply, closes: bool) -> bytes:
        audit_id = request.headers.get("audit-id", "") if request is not None else ""
        is_plain = audit_id.isascii() and audit_id.isprintable()
        if not audit_id or len(audit_id) > 64 or not is_plain:
            audit_id = str(uuid4())
        headers = reply.headers
        if closes:
            headers = (*headers, _CLOSE)
        elif request is not None and request.is_http10:
            headers = (*headers, _KEEP_ALIVE)
        length = len(reply.body)
        date = self._host.date()
        return http.reply_head(reply.status, audit_id, date, reply.content_type, length, headers)


def _bound(transport: asyncio.Transport) -> None:
    # By itself a loop's TLS layer keeps 256 KB of what arrives and 512 KB of what is to leave:
    # 0.7 to 0.9 MB for each stranger who sends and never reads, and 0.4 to 0.6 so. Without TLS
    # nothing is kept of what arrives.
    limit_reading = getattr(transport, "set_read_buffer_limits", None)
    if limit_reading is not None:
        limit_reading(_KEPT_BY_TLS)
        transport.set_write_buffer_limits(_KEPT_BY_TLS)
