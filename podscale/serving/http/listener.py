"""Strangers at the door: sockets accepted, and their TLS handshakes until they are done."""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

import structlog

from podscale.serving.http.connection import HttpConnection
from podscale.serving.http.connection_slots import cut

if TYPE_CHECKING:
    from podscale.serving.http.server import HttpServer

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
