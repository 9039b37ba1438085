"""Places: who stays where no more connections may be open.

A handshake takes a place from its first byte on, a connection as long as it lasts. A client
that showed a certificate which is believed keeps its place. Everybody else is a stranger:
the one whose last whole request is the longest ago makes room for the next. Some places are
never a stranger's: they are for handshakes, and so for peers that are believed, which nobody
knows before the handshake is done.
"""

import socket
from contextlib import suppress

from podscale.serving.http.connection import HttpConnection

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
        """Forget a connection that has ended."""
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
