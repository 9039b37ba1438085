"""Path and method read as Kubernetes reads them: the attributes RBAC judges, and a request's target
taken apart, remembered for those who ask again.

Follows ``RequestInfoFactory.NewRequestInfo`` in k8s.io/apiserver
``pkg/endpoints/request/requestinfo.go`` (1.37). Selectors are not sent to the authorizer, which
therefore judges the whole of what a list selects from.
"""

import re
from collections.abc import Mapping, Sequence
from sys import getsizeof
from urllib.parse import unquote, unquote_plus

from msgspec import Struct

from podscale.core import goint
from podscale.core.ascii_text import ascii_lower
from podscale.core.boundedcache import BoundedCache
from podscale.core.selectors import fields
from podscale.core.selectors import selector as selectors
from podscale.core.times.duration import DurationError, parse_go
from podscale.serving import status
from podscale.serving.status import Status

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


_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
# So much is read of what everybody can send before it is known who it is: beyond, a request
# takes milliseconds of the loop. Names have 253 characters at most, and a path five of them.
_LONGEST_PATH = 4096
_MOST_PARAMETERS = 256
_MOST_ESCAPES = 4096
_LONGEST_TIMEOUT = 256
_PART_BYTES = 64  # of a path, and of a query, as objects
_PARAMETER_BYTES = 256


class RequestTarget(Struct, frozen=True, gc=False):
    """Path, query and what they mean."""

    path: str  # decoded
    query: Mapping[str, Sequence[str]]
    info: RequestInfo
    timeout_s: float | None = None  # of ?timeout=
    refusal: Status | None = None  # of a query that cannot be answered, whoever asks
    is_too_long: bool = False  # nothing else is known of it


# HPAs repeat the same few hundred bytes every 15 s: some 5,000 at a time.
_known: BoundedCache[tuple[str, str], RequestTarget] = BoundedCache(16 * 1024 * 1024)


def parse_target(method: str, target: str) -> RequestTarget:
    """Return the parts of a target in origin form. Never raises."""
    key = method, target
    found = _known.get(key)
    if found is None:
        found = _parse(method, target)
        _known.put(key, found, getsizeof(method) + _size(target, found))
    return found


def _size(target: str, parsed: RequestTarget) -> int:
    texts = sum(map(len, parsed.query.values()))
    return (
        2 * getsizeof(target)
        + 2 * getsizeof(parsed.path)
        + _PART_BYTES * len(parsed.info.parts)
        + _PARAMETER_BYTES * len(parsed.query)
        + _PART_BYTES * texts
    )


def _parse(method: str, target: str) -> RequestTarget:
    raw_path, _, raw_query = target.partition("?")
    if len(raw_path) > _LONGEST_PATH:
        return RequestTarget("", {}, RequestInfo(False, "", method.lower()), is_too_long=True)
    path = unquote(raw_path)
    if raw_query.count("&") >= _MOST_PARAMETERS or raw_query.count("%") > _MOST_ESCAPES:
        limits = f"{_MOST_PARAMETERS} query parameters or {_MOST_ESCAPES} escapes in them"
        many = status.bad_request(f"more than {limits}")
        return RequestTarget(path, {}, request_info(method, path, {}), refusal=many)
    query = _parameters(raw_query) if raw_query else {}
    info = request_info(method, path, query)
    texts = query.get("timeout")
    if not texts or not texts[0]:
        return RequestTarget(path, query, info)
    try:
        if len(texts[0]) > _LONGEST_TIMEOUT:
            raise DurationError(f"longer than {_LONGEST_TIMEOUT} characters")
        seconds = parse_go(texts[0])
    except DurationError as error:
        text = f"invalid timeout specified in the request URL - {error}"
        return RequestTarget(path, query, info, None, status.bad_request(text))
    # Kubernetes reads timeout=0 as "the default", and so a negative one here.
    return RequestTarget(path, query, info, seconds if seconds > 0 else None)


def _parameters(raw: str) -> Mapping[str, Sequence[str]]:
    # As url.ParseQuery, whose errors Request.URL.Query leaves out: a pair that has a semicolon
    # or an escape that is none does not count.
    found: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            key, _, value = pair.partition("=")
            found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found
