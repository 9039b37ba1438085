"""What is sent back: a reply, encoded but for its head."""

import structlog
from msgspec import Struct

from podscale.serving import status
from podscale.serving.http.request import HttpRequest
from podscale.serving.status import Status


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
