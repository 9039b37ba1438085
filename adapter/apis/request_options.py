"""Query parameters of the metrics APIs, and the answers to wrong ones.

Texts and their order follow ListOptions' decoding and validation (apimachinery
``pkg/apis/meta/internalversion``, apiserver ``handlers/get.go``): they reach users.
"""

from msgspec import Struct

from podscale.core import goint
from podscale.core.goquote import quote
from podscale.core.selectors import fields
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.fields import FieldRequirement
from podscale.core.selectors.selector import Selector
from podscale.serving import status
from podscale.serving.apis.api import ApiRequest
from podscale.serving.status import Cause, Status, StatusError

_FIELDS = ("metadata.name", "metadata.namespace")
_NUMBERS = ("timeoutSeconds", "limit")  # int64, in the order in which Go reads them
_MATCHES = ("Exact", "NotOlderThan")
# What may be wrong and changes no answer that is right.
_CHECKED = frozenset((*_NUMBERS, "resourceVersionMatch", "sendInitialEvents"))


class ListOptions(Struct, frozen=True):
    """Which objects a list is asked for."""

    labels: Selector
    fields: tuple[FieldRequirement, ...]


def list_options(request: ApiRequest, *, is_validated: bool = True) -> ListOptions:
    """Return the options of a list; raises ``StatusError`` 400 or 422.

    ``is_validated``: combinations are looked at too, as everywhere but on custom paths, where
    custom-metrics-apiserver decodes only.
    """
    _check_numbers(request)
    labels = label_selector(request)
    try:
        text = request.parameter("fieldSelector")
        found = fields.parse(text) if text else ()
    except fields.FieldSelectorError as error:
        raise StatusError(status.bad_request(str(error))) from None
    if is_validated and (causes := _contradictions(request)):
        raise StatusError(status.invalid("ListOptions", causes, group="meta.k8s.io"))
    for each in found:
        if each.field not in _FIELDS:
            known = f'only "{_FIELDS[0]}", "{_FIELDS[1]}"'
            message = f'"{each.field}" is not a known field selector: {known}'
            raise StatusError(status.bad_request(message))
    return ListOptions(labels, found)


def watch_refused(request: ApiRequest, resource: str, group: str) -> Status:
    """Return the answer to a watch of what can only be listed; wrong options come first."""
    try:
        list_options(request)
    except StatusError as error:
        return error.status
    return status.verb_not_supported("watch", resource, group)


def has_checked(request: ApiRequest) -> bool:
    """Return whether an option is there that can be wrong, and by which kept answers are not
    told apart."""
    return not _CHECKED.isdisjoint(request.query)


def label_selector(request: ApiRequest) -> Selector:
    """Return the ``labelSelector``; raises ``StatusError`` 400 with the parser's message."""
    try:
        return selectors.parse(request.parameter("labelSelector"))
    except selectors.SelectorError as error:
        raise StatusError(status.bad_request(str(error))) from None


def metric_selector(request: ApiRequest) -> Selector:
    """Return the ``metricLabelSelector``; raises ``StatusError`` 500, as upstream."""
    try:
        return selectors.parse(request.parameter("metricLabelSelector"))
    except selectors.SelectorError as error:
        raise StatusError(status.bare_error(str(error))) from None


def require_name(options: ListOptions, name: str) -> None:
    """Raise ``StatusError`` 400 unless a field selector, where there is one, demands ``name``."""
    if options.fields and fields.exact_match(options.fields, "metadata.name") != name:
        message = "fieldSelector metadata.name doesn't match requested name"
        raise StatusError(status.bad_request(message))


def selects(options: ListOptions, name: str, namespace: str) -> bool:
    """Return whether the field selector takes the object of this name."""
    return fields.matches(options.fields, {_FIELDS[0]: name, _FIELDS[1]: namespace})


def echo(selector: Selector) -> dict[str, object] | None:
    """Return the LabelSelector that is shown beside the value, ``None`` for none.

    ``!=`` has no LabelSelector form and is shown as NotIn; upstream answers 500 after it
    has done the work.
    """
    return selectors.to_wire(selector)


def _check_numbers(request: ApiRequest) -> None:
    for name in _NUMBERS:
        if name not in request.query:
            continue
        text = request.parameter(name)
        if problem := goint.problem(text):
            message = f"strconv.ParseInt: parsing {quote(text)}: {problem}"
            raise StatusError(status.bad_request(message))


def _contradictions(request: ApiRequest) -> list[Cause]:
    found: list[Cause] = []
    if match := request.parameter("resourceVersionMatch"):
        version = request.parameter("resourceVersion")
        field = "resourceVersionMatch"
        if not version:
            found.append(_forbidden(field, "is forbidden unless resourceVersion is provided"))
        if request.parameter("continue"):
            found.append(_forbidden(field, "is forbidden when continue is provided"))
        if match not in _MATCHES:
            known = ", ".join(quote(each) for each in (*_MATCHES, ""))
            message = f"Unsupported value: {quote(match)}: supported values: {known}"
            found.append(Cause("FieldValueNotSupported", message, field))
        if match == "Exact" and version == "0":
            found.append(_forbidden(field, '"exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in request.query:
        found.append(_forbidden("sendInitialEvents", "is forbidden for list"))
    return found


def _forbidden(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {field} {why}", field)
