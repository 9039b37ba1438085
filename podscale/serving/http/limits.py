"""How much of us one client, and all of them together, may take."""

from msgspec import Struct


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
