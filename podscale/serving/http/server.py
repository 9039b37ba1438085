"""The listener: connections, limits, the sweep over slow clients, and a graceful end.

``async with HttpServer(...)`` owns every task of every request. Draining follows Kubernetes:
readiness fails first, requests go on while endpoints are updated, then the listener closes, what is
in flight finishes, and the rest is cut.
"""

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self

import structlog
from msgspec import Struct

from podscale.core import boundedcache
from podscale.serving.http.connection import HttpConnection, Respond
from podscale.serving.http.listener import ConnectionSlots, Listener
from podscale.serving.http.parser import SMALL_BODY
from podscale.serving.http.request import Peer, http_date
from podscale.serving.monitoring.health import OK, Health, HealthVerdict


class ServerLimits(Struct, frozen=True):
    """How much, and how long, one client may take. Times are seconds."""

    reading: int = 400  # requests in flight, as --max-requests-inflight
    mutating: int = 200
    connections: int = 20_000  # unfinished TLS handshakes among them
    # Bytes received and not yet answered, of all connections together: headers and bodies
    # are read before it is known who sends them.
    held: int = 32 * 1024 * 1024
    header_s: float = 15.0  # from the first byte, or from the connection, to a whole header
    body_s: float = 30.0
    # Longer than the 90 s after which Go's clients drop an idle connection themselves, so
    # that we never close one on which a request is already under way.
    idle_s: float = 180.0
    write_s: float = 30.0  # a client that reads nothing for so long is cut off


_SWEEP_S = 1.0
_SERVERS = 2  # of one process that strangers reach: metrics and the webhook
_SPARE_FILES = 256
_RECEIVED = 64 * 1024  # bytes that wait in the kernel; it takes twice as many


class HttpServer:
    """Accepts connections and answers through ``respond``."""

    def __init__(
        self,
        respond: Respond,
        *,
        limits: ServerLimits | None = None,
        body_limit: Callable[[str, str, Peer], int] = lambda _method, _target, _peer: SMALL_BODY,
        believes: Callable[[Peer], bool] = lambda _peer: False,
    ) -> None:
        """``believes`` says whose certificate keeps a place; see ``places``."""
        self.respond = respond
        self.body_limit = body_limit
        self.limits = limits or ServerLimits()
        self.reading = 0
        self.mutating = 0
        self.held = 0  # bytes received and not yet answered
        # Or fewer, as many as there may be open files.
        self.places = ConnectionSlots(self.limits.connections)
        self.turned_away = 0  # requests since the last sweep, for want of room
        self.failed_handshakes = 0
        self.is_draining = False
        self._is_stopping = False
        self._believes = believes
        self._empty = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._sweeper: asyncio.Task[None] | None = None
        self._listeners: list[Listener] = []
        self._now = time.monotonic
        self._date = ""
        self._date_until = 0.0

    async def __aenter__(self) -> Self:
        self._now = asyncio.get_running_loop().time
        await self._tasks.__aenter__()
        self._sweeper = self._tasks.create_task(self._sweep())
        return self

    async def __aexit__(self, *error: Any) -> None:
        for listener in self._listeners:
            listener.close()
        self.is_draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abort()
        try:
            await self._tasks.__aexit__(*error)
        finally:
            for accepted in self.places.handshakes.values():
                accepted.close()  # cancelled before it began: no transport knows of it

    @property
    def connections(self) -> set[HttpConnection]:
        return self.places.connections

    def now(self) -> float:
        return self._now()

    def date(self) -> str:
        """Return the Date header's value, formatted once a second."""
        now = time.time()
        if now >= self._date_until:
            self._date = http_date(now)
            self._date_until = float(int(now) + 1)
        return self._date

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in this server's task group."""
        return self._tasks.create_task(work)

    def register(self, health: Health) -> None:
        """Make ``/readyz`` fail from the moment draining begins."""
        health.add_readiness(
            "shutdown",
            lambda: (
                HealthVerdict(False, "the process is shutting down") if self._is_stopping else OK
            ),
        )

    async def listen(
        self, address: str, port: int, tls: ssl.SSLContext | None, *, shares_port: bool = False
    ) -> int:
        """Listen and return the port (the chosen one for 0). Raises OSError when it is taken."""
        files = raise_file_limit(_SERVERS * self.limits.connections + _SPARE_FILES)
        # Without a file descriptor left nothing works, Prometheus and the API server neither.
        self.places.most = min(self.limits.connections, max(files - _SPARE_FILES, files // 2))
        host: str | None = address
        if address in ("0.0.0.0", "::", ""):  # noqa: S104 - as Go: both families where there are two
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
        family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
            # Go sets it on every listener (so --permit-address-sharing adds nothing here);
            # otherwise a restart waits for connections in TIME_WAIT.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                listening.bind((host, port))
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise OSError(
                    f"cannot listen on {address}:{port}: {why} "
                    "(--bind-address and --secure-port, of admission --port, choose another)"
                ) from error
            # Requests are small. What the kernel keeps for a connection goes into buffers of
            # its TLS layer at once: 0.6 MB for each stranger who sends without end, else 0.2.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
            listening.setblocking(False)
            self._listeners.append(Listener(self, listening, tls))
        except BaseException:
            listening.close()
            raise
        return int(listening.getsockname()[1])

    async def drain(self, *, delay_s: float, grace_s: float) -> int:
        """Stop gracefully; returns how many connections had to be cut.

        ``delay_s`` is how long requests still arrive while readiness fails; ``grace_s``
        how long those in flight may take afterwards.
        """
        self._is_stopping = True
        await asyncio.sleep(delay_s)
        for listener in self._listeners:
            listener.close()
        self.is_draining = True
        for connection in list(self.connections):
            connection.close_if_idle()
        try:
            async with asyncio.timeout(grace_s):
                await self._all_closed()
        except TimeoutError:
            pass
        cut = len(self.connections)
        for connection in list(self.connections):
            connection.abort()
        return cut

    def opened(self, connection: HttpConnection, peer: Peer) -> None:
        self.places.opened(connection, is_believed=self._believes(peer))

    def closed(self, connection: HttpConnection) -> None:
        self.places.closed(connection)
        if not self.connections:
            self._empty.set()

    async def _all_closed(self) -> None:
        while self.connections:
            self._empty.clear()
            await self._empty.wait()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self.now()
            boundedcache.grow_older(now)
            for connection in [one for one in self.connections if one.give_up_at < now]:
                connection.give_up()
            if self.turned_away:
                structlog.get_logger().warning(
                    "RequestsTurnedAway",
                    requests=self.turned_away,
                    held_bytes=self.held,
                    connections=len(self.connections),
                )
                self.turned_away = 0
            if self.places.crowded_out:
                structlog.get_logger().warning(
                    "ConnectionsTurnedAway",
                    turned_away=self.places.crowded_out,
                    connections=len(self.connections),
                    handshakes=len(self.places.handshakes),
                    most=self.places.most,
                )
                self.places.crowded_out = 0


def raise_file_limit(wanted: int) -> int:
    """Raise the soft limit of open files towards ``wanted``, as Go programs do at start.

    Returns how many may be open, ``wanted`` where there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target)
