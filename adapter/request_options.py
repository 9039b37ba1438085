"""Query parameters of the metrics APIs, and the answers to wrong ones.

Texts are those of apimachinery's ``fields`` and ``labels`` packages: they reach users.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core import selector as selectors
from podscale.core.selector import Selector
from podscale.serving import status
from podscale.serving.api import ApiRequest
from podscale.serving.status import StatusError

_FIELDS = ("metadata.name", "metadata.namespace")


class FieldTerm(Struct, frozen=True):
    """One condition of a field selector."""

    field: str
    is_negated: bool
    value: str


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


def field_terms(request: ApiRequest) -> tuple[FieldTerm, ...]:
    """Return the ``fieldSelector``; raises ``StatusError`` 400."""
    text = request.parameter("fieldSelector")
    terms = []
    for part in text.split(",") if text else ():
        sign = next((sign for sign in ("!=", "==", "=") if sign in part), "")
        if not sign:
            message = f"invalid selector: '{text}'; can't understand '{part}'"
            raise StatusError(status.bad_request(message))
        field, _, value = part.partition(sign)
        if field not in _FIELDS:
            message = (
                f'"{field}" is not a known field selector: only "{_FIELDS[0]}", "{_FIELDS[1]}"'
            )
            raise StatusError(status.bad_request(message))
        terms.append(FieldTerm(field, sign == "!=", value))
    return tuple(terms)


def refuse_other_name(terms: tuple[FieldTerm, ...], name: str) -> None:
    """Raise ``StatusError`` 400 when the field selector demands another name than the path."""
    for term in terms:
        if term.field == "metadata.name" and not term.is_negated and term.value != name:
            message = "fieldSelector metadata.name doesn't match requested name"
            raise StatusError(status.bad_request(message))


def fits(terms: tuple[FieldTerm, ...], fields: Mapping[str, str]) -> bool:
    """Return whether an object with these fields is selected."""
    return all((fields[t.field] == t.value) is not t.is_negated for t in terms)


def echo(selector: Selector) -> dict[str, object] | None:
    """Return the LabelSelector that is shown beside the value, ``None`` for none.

    ``!=`` has no LabelSelector form and is shown as NotIn; upstream answers 500 after it
    has done the work (adapter.md 12).
    """
    return selectors.to_wire(selector)
