"""What the sandbox's API server answers when it does not do what was asked.

One error, ``SandboxApiError``, which is a ``Status`` object: reasons, codes and sentences are
those of kube-apiserver, because clients read them.
"""

from typing import Any

from podscale.core.goquote import quote


class SandboxApiError(Exception):
    """A failed request: HTTP status, reason and message of the ``Status`` answered."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        """Return the ``Status`` object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


def _details(resource: str, name: str, **more: Any) -> dict[str, Any]:
    plural, _, group = resource.partition(".")
    details = {"name": name, "group": group, "kind": plural, **more}
    return {key: value for key, value in details.items() if value != ""}


def not_found(resource: str, name: str) -> SandboxApiError:
    """``resource`` is ``plural[.group]`` here and below."""
    message = f"{resource} {quote(name)} not found"
    return SandboxApiError(404, "NotFound", message, _details(resource, name))


def already_exists(resource: str, name: str) -> SandboxApiError:
    message = f"{resource} {quote(name)} already exists"
    return SandboxApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: str, name: str, why: str = "") -> SandboxApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f"Operation cannot be fulfilled on {resource} {quote(name)}: {why}"
    return SandboxApiError(409, "Conflict", message, _details(resource, name))


def forbidden(resource: str, name: str, why: str) -> SandboxApiError:
    message = f"{resource} {quote(name)} is forbidden: {why}" if name else f"{resource} is {why}"
    return SandboxApiError(403, "Forbidden", message, _details(resource, name))


def invalid(kind: str, group: str, name: str, causes: list[tuple[str, str]]) -> SandboxApiError:
    """``causes`` are pairs of field and complaint."""
    shown = f"{kind}.{group}" if group else kind
    text = ", ".join(f"{field}: {complaint}" for field, complaint in causes)
    text = text if len(causes) == 1 else f"[{text}]"
    details = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [
            {"reason": "FieldValueInvalid", "message": complaint, "field": field}
            for field, complaint in causes
        ],
    }
    details = {key: value for key, value in details.items() if value != ""}
    return SandboxApiError(422, "Invalid", f"{shown} {quote(name)} is invalid: {text}", details)


def bad_request(message: str) -> SandboxApiError:
    return SandboxApiError(400, "BadRequest", message)


def expired(message: str = "The provided continue parameter is too old") -> SandboxApiError:
    return SandboxApiError(410, "Expired", message)


def method_not_allowed() -> SandboxApiError:
    message = "the server does not allow this method on the requested resource"
    return SandboxApiError(405, "MethodNotAllowed", message, {})


def unknown_path() -> SandboxApiError:
    return SandboxApiError(404, "NotFound", "the server could not find the requested resource", {})


def unauthorized() -> SandboxApiError:
    return SandboxApiError(401, "Unauthorized", "Unauthorized")


def unsupported_media(accepted: str) -> SandboxApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + accepted
    )
    return SandboxApiError(415, "UnsupportedMediaType", message)


def misdirected(host: str) -> SandboxApiError:
    message = f"{quote(host)} is not this server's name: it listens on the loopback only"
    return SandboxApiError(421, "BadRequest", message)


def foreign_origin() -> SandboxApiError:
    return SandboxApiError(403, "Forbidden", "web pages of other origins may not use this server")
