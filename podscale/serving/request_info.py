"""Path and method read as Kubernetes reads them: the attributes RBAC judges.

from podscale.core.ascii_text import ascii_lower

Follows ``RequestInfoFactory.NewRequestInfo`` in k8s.io/apiserver
``pkg/endpoints/request/requestinfo.go`` (1.30), for paths below ``/apis``.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.core.ascii_text import ascii_lower

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# "status" and "finalize" below a namespace are its subresources, everything else is a
# resource inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class RequestInfo(Struct, frozen=True, gc=False):
    """What a request touches."""

    is_resource: bool
    path: str  # as authorized when it is no resource request
    verb: str  # get, list, watch, create…; the method in lower case for other paths
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()  # resource, name, subresource and whatever follows


def request_info(method: str, path: str, query: Mapping[str, Sequence[str]]) -> RequestInfo:
    """Return the attributes of ``path`` (percent-decoded, without query). Never raises."""
    segments = path.strip("/").split("/")
    if len(segments) < 4 or segments[0] != "apis":
        return RequestInfo(False, path, method.lower())
    _, group, version, *rest = segments
    parts = tuple(rest)
    verb = _VERBS.get(method, "")
    if parts[0] in ("watch", "proxy") and len(parts) > 1:
        verb, parts = parts[0], parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    if not name and verb == "get":
        verb, name = _collection_verb(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        True, path, verb, group, version, namespace, resource, subresource, name, parts
    )


def _collection_verb(query: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    watch = query.get("watch")
    # apimachinery's string to bool: only "false" and "0" deny, an empty value affirms.
    verb = "watch" if watch and ascii_lower(watch[0]) not in ("false", "0") else "list"
    # A list narrowed to one name is judged as that name, so that a role with
    # resourceNames may list it.
    for selector in query.get("fieldSelector", ())[:1]:
        for term in selector.split(","):
            key, _, value = term.partition("=")
            if key.strip() == "metadata.name" and value:
                return verb, value.removeprefix("=").strip()
    return verb, ""
