"""Errors as the API server words them: ``Status`` values with Kubernetes' own texts.

Constructors follow ``k8s.io/apimachinery/pkg/api/errors``. A Status is a value: handlers
return it (inside ``ApiResponse.of(status)`` or raised once as ``StatusError`` where a
return value cannot travel).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType


class Cause(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One machine-readable cause; ``reason`` is a stable CamelCase token."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the error is about. Empty fields are left off the wire."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class _NoMetadata(Struct, frozen=True):
    """``"metadata":{}``, which clients expect to be there."""


class Status(Struct, frozen=True, kw_only=True):
    """A ``v1.Status``; the field order is the order on the wire."""

    kind: Literal["Status"] = "Status"
    api_version: Literal["v1"] = msgspec.field(default="v1", name="apiVersion")
    metadata: _NoMetadata = _NoMetadata()
    status: Literal["Success", "Failure"] = "Failure"
    message: str = ""
    reason: str | UnsetType = UNSET
    details: Details | UnsetType = UNSET
    code: int

    def json(self) -> bytes:
        """Return the body, with the trailing newline that Go's encoder writes."""
        return msgspec.json.encode(self) + b"\n"


class StatusError(Exception):
    """Carries a Status through code that cannot return it."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def bad_request(message: str) -> Status:
    """Return 400 with the parser's message."""
    return Status(message=message, reason="BadRequest", code=400)


def unauthorized() -> Status:
    """Return 401; the cause stays in our log, as in Kubernetes."""
    return Status(message="Unauthorized", reason="Unauthorized", code=401)


def forbidden(message: str, *, name: str = "", group: str = "", resource: str = "") -> Status:
    """Return 403; ``podscale.serving.auth.authorization`` words the message."""
    details = Details(name=name, group=group, kind=resource)
    return Status(message=message, reason="Forbidden", details=details, code=403)


def not_found(
    message: str,
    *,
    name: str = "",
    group: str = "",
    resource: str = "",
    causes: Sequence[Cause] = (),
) -> Status:
    """Return 404 with ``message`` as it stands; ``causes`` name the stage that lost it."""
    details = Details(name=name, group=group, kind=resource, causes=tuple(causes))
    return Status(message=message, reason="NotFound", details=details, code=404)


def object_not_found(resource: str, name: str, *, group: str = "") -> Status:
    """Return 404 ``pods "x" not found`` / ``podmetrics.metrics.k8s.io "ns/x" not found``."""
    what = f"{resource}.{group}" if group else resource
    return not_found(f'{what} "{name}" not found', name=name, group=group, resource=resource)


def path_not_found() -> Status:
    """Return 404 for a path that nothing serves."""
    return not_found("the server could not find the requested resource")


def verb_not_supported(verb: str, resource: str, group: str) -> Status:
    """Return 405 for a verb that the resource does not have (``NewMethodNotSupported``)."""
    return Status(
        message=f'{verb} is not supported on resources of kind "{resource}.{group}"',
        reason="MethodNotAllowed",
        details=Details(group=group, kind=resource),
        code=405,
    )


def method_not_allowed() -> Status:
    return Status(
        message="the server does not allow this method on the requested resource",
        reason="MethodNotAllowed",
        details=Details(),
        code=405,
    )


def not_acceptable(media_types: Sequence[str]) -> Status:
    """Return 406 naming what is served; it has no details, as upstream's."""
    listed = ", ".join(media_types)
    message = f"only the following media types are accepted: {listed}"
    return Status(message=message, reason="NotAcceptable", code=406)


def not_produced(media_types: Sequence[str]) -> Status:
    """Return 406 for a media type that nobody serves, in the words of upstream's router."""
    listed = ", ".join(media_types)
    message = f"406: Not Acceptable\n\nAvailable representations: {listed}"
    return Status(message=message, reason="NotAcceptable", details=Details(), code=406)


def request_entity_too_large(message: str) -> Status:
    return Status(message=message, reason="RequestEntityTooLarge", code=413)


def uri_too_long() -> Status:
    return Status(message="the request's path is longer than any that is served", code=414)


def unsupported_media_type(message: str) -> Status:
    return Status(message=message, reason="UnsupportedMediaType", code=415)


def invalid(kind: str, causes: Sequence[Cause], *, name: str = "", group: str = "") -> Status:
    """Return 422 for an object of ``kind``; each cause names its field, and there is one."""
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    what = f"{kind}.{group}" if group else kind
    text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return Status(
        message=f'{what} "{name}" is invalid: {text}',
        reason="Invalid",
        details=Details(name=name, group=group, kind=kind, causes=tuple(causes)),
        code=422,
    )


def too_many_requests() -> Status:
    """Return 429, sent beyond the in-flight limit."""
    return Status(
        message="Too many requests, please try again later.",
        reason="TooManyRequests",
        details=Details(retry_after_seconds=1),
        code=429,
    )


def header_too_large() -> Status:
    return Status(
        message="the request's header is larger than the server reads; send less",
        reason="RequestHeaderFieldsTooLarge",
        code=431,
    )


def internal_error(message: str) -> Status:
    """Return 500 ``Internal error occurred: <message>`` with the message as its cause."""
    return Status(
        message=f"Internal error occurred: {message}",
        reason="InternalError",
        details=Details(causes=(Cause(message=message),)),
        code=500,
    )


def bare_error(message: str) -> Status:
    """Return 500 without reason or details, as Kubernetes makes of an untyped Go error."""
    return Status(message=message, code=500)


def unavailable(message: str, *, causes: Sequence[Cause] = (), retry_after_s: int = 0) -> Status:
    """Return 503; ``causes`` carry the class of the failure."""
    details = Details(causes=tuple(causes), retry_after_seconds=retry_after_s)
    return Status(message=message, reason="ServiceUnavailable", details=details, code=503)


def timeout(message: str, *, causes: Sequence[Cause] = ()) -> Status:
    return Status(
        message=f"Timeout: {message}",
        reason="Timeout",
        details=Details(causes=tuple(causes)),
        code=504,
    )
