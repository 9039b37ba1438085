"""Path and method read as Kubernetes reads them: the attributes RBAC judges.

Follows ``RequestInfoFactory.NewRequestInfo`` in k8s.io/apiserver
``pkg/endpoints/request/requestinfo.go`` (1.37). Selectors are not sent to the authorizer, which
therefore judges the whole of what a list selects from.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.core import goint
from podscale.core.ascii_text import ascii_lower
from podscale.core.selectors import fields
from podscale.core.selectors import selector as selectors

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
_LONGEST_SELECTORS = 2048
_LIST_NUMBERS = ("timeoutSeconds", "limit")


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
    is_special: bool = False  # below /watch/ or /proxy/, where nobody serves anything any more


def request_info(method: str, path: str, query: Mapping[str, Sequence[str]]) -> RequestInfo:
    """Return the attributes of ``path`` (percent-decoded, without query). Never raises."""
    prefix, *rest = path.strip("/").split("/")
    group = ""
    if prefix == "apis" and rest:
        group, *rest = rest
    if prefix not in ("api", "apis") or len(rest) < 2:
        return RequestInfo(False, path, method.lower())
    version, *rest = rest
    parts = tuple(rest)
    verb = _VERBS.get(method, "")
    is_special = parts[0] in ("watch", "proxy")
    if is_special and len(parts) > 1:
        verb, parts = parts[0], parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    if verb == "proxy":
        subresource = ""
    if not name and verb == "get":
        verb, name = _collection_verb(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        True, path, verb, group, version, namespace, resource, subresource, name, parts, is_special
    )


def _collection_verb(query: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    watch = query.get("watch")
    # apimachinery's string to bool: only "false" and "0" deny, an empty value affirms.
    verb = "watch" if watch and ascii_lower(watch[0]) not in ("false", "0") else "list"
    # A list narrowed to one name is judged as that name, so that a role with
    # resourceNames may list it; if every option of the list can be read.
    name = _demanded_name(query) if "fieldSelector" in query else None
    if name in (None, ".", "..") or "/" in name or "%" in name:
        return verb, ""
    return verb, name


def _demanded_name(query: Mapping[str, Sequence[str]]) -> str | None:
    if any(goint.problem(query[key][0]) for key in _LIST_NUMBERS if key in query):
        return None
    labels, wanted = query.get("labelSelector", ("",))[0], query["fieldSelector"][0]
    # Read before it is known who asks; the whole list is judged instead, which is more.
    if len(labels) + len(wanted) > _LONGEST_SELECTORS:
        return None
    try:
        selectors.parse(labels)
        found = fields.parse(wanted)
    except (selectors.SelectorError, fields.FieldSelectorError):
        return None
    return fields.exact_match(found, "metadata.name")
