"""Strangers at the door: sockets accepted, their TLS handshakes, and who stays where no more
connections may be open.

A handshake takes a place from its first byte on, a connection as long as it lasts. A client that
showed a certificate which is believed keeps its place. Everybody else is a stranger: the one whose
last whole request is the longest ago makes room for the next. Some places are never a stranger's:
they are for handshakes, since nobody knows before whose they are.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from podscale.serving.http.connection import HttpConnection

if TYPE_CHECKING:
    from podscale.serving.http.server import HttpServer

_KEPT_OF = 8  # one place of so many


class ConnectionSlots:
    """The connections and handshakes of a server."""

    def __init__(self, most: int) -> None:
        self.most = most  # connections and handshakes together
        self.connections: set[HttpConnection] = set()
        self.handshakes: dict[HttpConnection, socket.socket] = {}  # under way, the oldest first
        self.crowded_out = 0
        self._strangers: dict[HttpConnection, None] = {}  # the longest without a request first

    @property
    def _kept(self) -> int:
        return min(max(self.most // _KEPT_OF, 1), self.most - 1)

    def make_room(self) -> bool:
        """Return whether somebody may come in; who has to go for it is cut off."""
        if len(self.connections) + len(self.handshakes) < self.most:
            return True
        self.crowded_out += 1
        if len(self.handshakes) < self._kept and self._cut_a_stranger():
            return True
        # Who opens connections and says nothing must not keep out who does, and an honest
        # client is done in a moment: the handshake that has lasted longest goes.
        oldest = next(iter(self.handshakes), None)
        if oldest is None:
            return False
        cut(self.handshakes.pop(oldest))
        return True

    def opened(self, connection: HttpConnection, *, is_believed: bool) -> None:
        """Take in a connection whose handshake is done."""
        self.handshakes.pop(connection, None)
        self.connections.add(connection)
        if is_believed:
            return
        self._strangers[connection] = None
        if len(self._strangers) > self.most - self._kept:
            self.crowded_out += 1
            self._cut_a_stranger()

    def heard(self, connection: HttpConnection) -> None:
        """Note that a whole request has come."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._strangers[connection] = None

    def closed(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self._strangers.pop(connection, None)

    def _cut_a_stranger(self) -> bool:
        # Those that are being answered are few: the limits of requests in flight bound them.
        idle = next((one for one in self._strangers if not one.is_being_answered), None)
        if idle is None:
            return False
        self.closed(idle)  # here, not when its end arrives: the next one may come before
        idle.abort()
        return True


def cut(accepted: socket.socket) -> None:
    """End a handshake. Not by closing: a transport owns the socket, or will, and finds its end."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


_BACKLOG = 1024
# A thundering herd of 10,000 handshakes takes a small machine 15 s; nobody in it is at fault.
_HANDSHAKE_S = 30.0
_IN_ONE_TURN = 32  # sockets accepted, about 2 ms
_PAUSE_S = 1.0  # where no file descriptor is left; the socket stays readable all the time


class Listener:
    """One listening socket. ``close`` it before the server's tasks are waited for."""

    def __init__(
        self, host: "HttpServer", listening: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        """``listening`` is bound and does not block; it is closed by ``close``."""
        self.listening = listening
        self._host = host
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.listen(_BACKLOG)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept no more, and cut the handshakes under way."""
        if self.listening.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self.listening)
        self.listening.close()
        for accepted in self._host.places.handshakes.values():
            cut(accepted)

    def _accept(self) -> None:
        for _ in range(_IN_ONE_TURN):
            try:
                accepted, _address = self.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                structlog.get_logger().error("NotAccepting", error=str(error), pause_s=_PAUSE_S)
                self._loop.remove_reader(self.listening)
                self._pause = self._loop.call_later(_PAUSE_S, self._go_on)
                return
            accepted.setblocking(False)
            self._let_in(accepted)

    def _go_on(self) -> None:
        self._loop.add_reader(self.listening, self._accept)

    def _let_in(self, accepted: socket.socket) -> None:
        host = self._host
        if not host.places.make_room():
            accepted.close()
            return
        connection = HttpConnection(host)
        host.places.handshakes[connection] = accepted
        host.spawn(self._shake_hands(connection, accepted))

    async def _shake_hands(self, connection: HttpConnection, accepted: socket.socket) -> None:
        host = self._host
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_S if self._tls is not None else None,
            )
        except OSError:  # TLS errors and deadlines are OSErrors as well
            host.failed_handshakes += 1
        except Exception:  # noqa: BLE001 - one connection's failure must not end the task group
            host.failed_handshakes += 1
            structlog.get_logger().exception("HandshakeFailed")
        finally:
            host.places.handshakes.pop(connection, None)
