"""Who speaks to a server on the loopback: this machine's programs, or a web page elsewhere.

A page can make a browser send what needs no leave of the server (any text as ``text/plain``),
and reach us under a name of its own that leads here (DNS rebinding). Browsers say so in two
headers, and no other client sends the second.
"""

from urllib.parse import urlsplit

_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})


def is_loopback(host: str) -> bool:
    """Return whether a Host header names the loopback, with or without a port."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name in _NAMES


def is_elsewhere(origin: str, host: str) -> bool:
    """Return whether an Origin header is of a page that ``host`` did not serve; "" is none."""
    if not origin:
        return False
    scheme, authority, *_ = urlsplit(origin)
    return scheme not in ("http", "https") or authority != host
