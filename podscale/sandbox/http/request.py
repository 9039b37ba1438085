"""What a request asks for: path and query in the words of RBAC."""

from collections.abc import Mapping
from urllib.parse import unquote

from msgspec import Struct

from podscale.sandbox.auth.identity import SandboxUser

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestedObject(Struct, frozen=True):
    """The resource named by a path; ``is_resource`` is False for all other paths."""

    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()  # segments after the subresource

    @property
    def resource(self) -> str:
        """``plural[.group]``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Request(Struct, frozen=True):
    """One request, read as far as routing, authorization and faults need it."""

    method: str
    target: RequestedObject
    query: Mapping[str, str]
    user: SandboxUser
    verb: str


def parse_path(path: str) -> RequestedObject:
    """Return what a URL path names (apiserver's RequestInfo)."""
    segments = [unquote(part) for part in path.strip("/").split("/")]
    if segments[0] == "api" and len(segments) > 2:
        group, version, rest = "", segments[1], segments[2:]
    elif segments[0] == "apis" and len(segments) > 3:
        group, version, rest = segments[1], segments[2], segments[3:]
    else:
        return RequestedObject(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        # namespaces/NAME and its own subresources are about the Namespace itself.
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
            if rest[0] == "namespaces":  # namespaces are not inside one
                return RequestedObject(path, True, group, version, namespace)
    plural, *more = rest
    name = more[0] if more else ""
    subresource = more[1] if len(more) > 1 else ""
    return RequestedObject(
        path, True, group, version, namespace, plural, name, subresource, tuple(more[2:])
    )


def verb_of(method: str, target: RequestedObject, query: Mapping[str, str]) -> str:
    """Return the RBAC verb."""
    if method in ("GET", "HEAD"):
        if not target.is_resource:
            return "get"
        if query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if target.name else "list"
    if method == "DELETE" and target.is_resource and not target.name:
        return "deletecollection"
    return _VERBS.get(method, method.lower())
