"""Texts that may hold secrets, as they may be shown in messages, logs and labels."""

import re
from collections.abc import Sequence
from urllib.parse import urljoin, urlsplit

HIDDEN = "…"

# A number beyond these is no port but may be a password that stands in a port's place.
_PORT = (
    r"(?:0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
_PLACE = rf"(?:[A-Za-z0-9._~%-]*|\[[0-9A-Fa-f:.%]*\])(?::{_PORT}?)?"  # host and port
_PATH = r"(?:/[^\s@?#\\]*)?"
# Before a user the scheme is one that is known: another may be the beginning of a password.
_BEGIN = r"[A-Za-z][A-Za-z0-9+.-]*://(?![^/?#\\]*@)|(?:https?|ftp|socks[45]h?)://"
_URL = re.compile(rf"(?i:({_BEGIN}))(?:[^/?#\\]*@)?({_PLACE}{_PATH})(?:[?#][^@]*)?")
_NO_URL = re.compile(rf"{_PLACE}(?!//){_PATH}")


def shown_url(text: str) -> str:
    """Return a URL of any scheme without user, password, query and fragment; what is none is
    hidden unless it is plainly a host with a port and a path.
    """
    found = _URL.fullmatch(text)
    if found is not None:
        return found[1] + found[2]
    return text if _NO_URL.fullmatch(text) else HIDDEN


def shown_problem(text: str) -> str:
    """Return a parser's words about a file of secrets up to what they quote of it."""
    end = min((at for at in map(text.find, "'\"") if at >= 0), default=len(text))
    return text if end == len(text) else f"{text[:end].rstrip()} {HIDDEN}"


def is_same_origin(url: str, target: str) -> bool:
    """Return whether a redirect from ``url`` leaves scheme, host and port as they are."""
    try:
        return _origin(url) == _origin(urljoin(url, target))
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    port = parts.port if parts.port is not None else {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port


def is_http_url(text: str, schemes: Sequence[str] = ("http", "https")) -> bool:
    """Return whether somebody can connect to it: a scheme of these, a host, and no port 0."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        return False
