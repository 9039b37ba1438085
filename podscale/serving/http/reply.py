"""What is sent back: a reply, encoded, and its head, with what stands in every one of them."""

import re
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus

import structlog
from msgspec import Struct

from podscale.serving import status
from podscale.serving.http.request import HttpRequest
from podscale.serving.status import Status

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


class Reply(Struct, frozen=True, gc=False):
    """An encoded answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False


def encoded(answer: Status, *, closes: bool = False) -> Reply:
    headers: tuple[tuple[str, str], ...] = ()
    if answer.code == 429:
        headers = (("Retry-After", "1"),)
    return Reply(answer.code, "application/json", answer.json(), headers, closes)


def failed(request: HttpRequest) -> Reply:
    """Return the 500 of a request whose exception is being handled, and log it."""
    path = request.target.partition("?")[0]
    structlog.get_logger().exception("RequestFailed", method=request.method, path=path)
    return encoded(status.internal_error("the request could not be answered, see the log"))
