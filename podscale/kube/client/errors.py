"""What can go wrong between us and the API server.

KubeError
├── NotConfigured          no usable kubeconfig, context or in-cluster credentials
├── NoMatch                no resource or kind of that name is served (discovery)
├── ApiUnreachable         no HTTP answer: refused, reset, TLS, or the deadline passed
│   └── AnswerTooLong      it was longer than whoever asked reads
└── ApiError               the server answered with a Status
    ├── BadRequest         400
    ├── Unauthorized       401
    ├── Forbidden          403
    ├── ObjectNotFound     404
    ├── MethodNotAllowed   405
    ├── WriteConflict      409 (also AlreadyExists)
    ├── Gone               410, the resourceVersion or continue token is too old
    ├── Unprocessable      422
    ├── TooManyRequests    429
    └── ServerFailed       5xx

NotLeading stands apart: whoever takes a failure for one object's does not stop it.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from podscale.kube.client.wire import StatusCause


class KubeError(Exception):
    """Root of everything podscale.kube raises."""


class NotConfigured(KubeError):
    """There is no way to reach an API server; the text says what was looked for."""


class NoMatch(KubeError):
    """Nothing of that name is served; the text is that of Go's meta.NoResourceMatchError."""


class NotLeading(Exception):
    """The write was not sent: this process may not act under its Lease now, and its term ends."""


class ApiUnreachable(KubeError):
    """No answer came. ``is_timeout`` tells a passed deadline from a broken connection."""

    def __init__(self, message: str, *, is_timeout: bool = False) -> None:
        super().__init__(message)
        self.is_timeout = is_timeout


class AnswerTooLong(ApiUnreachable):
    """Of the answer no more was read than was to be."""


class ApiError(KubeError):
    """The server refused or failed; carries what its Status said."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[StatusCause] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason  # the server's CamelCase word; "" when it sent no Status
        self.message = message
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s

    @classmethod
    def of(
        cls,
        status: int,
        reason: str,
        message: str,
        *,
        causes: Sequence[StatusCause] = (),
        retry_after_s: float | None = None,
    ) -> "ApiError":
        """Return the error of the class that belongs to ``status``."""
        kind = _BY_STATUS.get(status) or (ServerFailed if status >= 500 else ApiError)
        return kind(status, reason, message, causes=causes, retry_after_s=retry_after_s)

    def __reduce__(self) -> tuple[type[Self], tuple[int, str, str]]:
        return type(self), (self.status, self.reason, self.message)


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC, or an admission plugin, says no."""


class ObjectNotFound(ApiError):
    """404: the object, or the whole resource, does not exist."""


class MethodNotAllowed(ApiError):
    """405: the resource has no such verb (a list-only API cannot be watched)."""


class WriteConflict(ApiError):
    """409: the object changed since it was read, or exists already."""


class Gone(ApiError):
    """410: list again."""


class Unprocessable(ApiError):
    """422: the object or patch is not valid."""


class TooManyRequests(ApiError):
    """429: flow control, or (on an eviction) a PodDisruptionBudget."""


class ServerFailed(ApiError):
    """5xx."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: ObjectNotFound,
    405: MethodNotAllowed,
    409: WriteConflict,
    410: Gone,
    422: Unprocessable,
    429: TooManyRequests,
}
