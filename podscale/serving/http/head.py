"""The head of a reply: its status line and headers, and what stands in every one of them."""

import re
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REASONS = {code.value: code.phrase for code in HTTPStatus}


def reply_head(
    status: int,
    audit_id: str,
    date: str,
    content_type: str,
    length: int,
    headers: Sequence[tuple[str, str]],
) -> bytes:
    """Return the head of a reply whose body has ``length`` bytes.

    Control characters in a header's value become blanks: what a client, an object or a metric
    brought in must not end a line.
    """
    text = (
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
        f"Audit-Id: {audit_id}\r\n"
        "Cache-Control: no-cache, private\r\n"
        f"Date: {date}\r\n"
    )
    if status != 304:
        text += f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
    for name, value in headers:
        text += f"{name}: {_CONTROL.sub(' ', value)}\r\n"
    return f"{text}\r\n".encode("latin-1", "replace")


def http_date(unix_s: float) -> str:
    """Return the RFC 9110 form of a time."""
    return formatdate(unix_s, usegmt=True)
