"""What the sandbox's API server answers when it does not do what was asked.

One error, ``StatusError``: its reasons, codes and sentences are those of kube-apiserver,
because clients read them. ``resource`` is ``plural[.group]``.
"""

from podscale.core.goquote import quote
from podscale.serving import status
from podscale.serving.status import Cause, Details, Status, StatusError


def not_found(resource: str, name: str) -> StatusError:
    plural, _, group = resource.partition(".")
    return StatusError(status.object_not_found(plural, name, group=group))


def already_exists(resource: str, name: str) -> StatusError:
    return _of_object(409, "AlreadyExists", resource, name, "already exists")


def conflict(resource: str, name: str, why: str = "") -> StatusError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f"Operation cannot be fulfilled on {resource} {quote(name)}: {why}"
    return StatusError(Status(message=message, reason="Conflict", code=409))


def forbidden(resource: str, name: str, why: str) -> StatusError:
    return _of_object(403, "Forbidden", resource, name, f"is forbidden: {why}")


def invalid(kind: str, group: str, name: str, causes: list[tuple[str, str]]) -> StatusError:
    """``causes`` are pairs of field and complaint."""
    found = [Cause("FieldValueInvalid", complaint, field) for field, complaint in causes]
    return StatusError(status.invalid(kind, found, name=name, group=group))


def unprocessable(message: str) -> StatusError:
    return StatusError(Status(message=message, reason="Invalid", code=422))


def bad_request(message: str) -> StatusError:
    return StatusError(status.bad_request(message))


def expired(message: str = "The provided continue parameter is too old") -> StatusError:
    return StatusError(Status(message=message, reason="Expired", code=410))


def method_not_allowed() -> StatusError:
    return StatusError(status.method_not_allowed())


def unknown_path() -> StatusError:
    return StatusError(status.path_not_found())


def unsupported_media(accepted: str) -> StatusError:
    return StatusError(
        status.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + accepted
        )
    )


def misdirected(host: str) -> StatusError:
    message = f"{quote(host)} is not this server's name: it listens on the loopback only"
    return StatusError(Status(message=message, reason="BadRequest", code=421))


def foreign_origin() -> StatusError:
    return StatusError(status.forbidden("web pages of other origins may not use this server"))


def _of_object(code: int, reason: str, resource: str, name: str, what: str) -> StatusError:
    plural, _, group = resource.partition(".")
    message = f"{resource} {quote(name)} {what}"
    details = Details(name=name, group=group, kind=plural)
    return StatusError(Status(message=message, reason=reason, details=details, code=code))
