"""Errors of the API server as failures of a metric."""

from podscale.core.metrics import Failure, NotFound, Refused, Unavailable
from podscale.kube.client.errors import (
    ApiError,
    ApiUnreachable,
    BadRequest,
    Forbidden,
    KubeError,
    MethodNotAllowed,
    ObjectNotFound,
    Unauthorized,
    Unprocessable,
)

_REFUSALS = (BadRequest, Forbidden, MethodNotAllowed, Unauthorized, Unprocessable)


def failure_of(error: KubeError, doing: str) -> Failure:
    """Return the failure that ``error`` is; ``doing`` starts its message.

    The reason is the first cause of the Status where one is named (podscale's own
    adapter says there at which stage the metric was lost), else the Status' reason.
    """
    text = f"{doing}: {error}"
    if isinstance(error, ApiUnreachable):
        reason = "Timeout" if error.is_timeout else "Unreachable"
        return Unavailable(reason, text, is_timeout=error.is_timeout)
    if not isinstance(error, ApiError):
        return Unavailable(type(error).__name__, text)
    cause = next((cause.reason for cause in error.causes if cause.reason), "")
    reason = cause or error.reason or f"Status{error.status}"
    if isinstance(error, ObjectNotFound):
        return NotFound(reason, text)
    if isinstance(error, _REFUSALS):
        return Refused(reason, text)
    return Unavailable(
        reason, text, is_timeout=error.status == 504, retry_after_s=error.retry_after_s
    )
