"""Options of a request that can be wrong. Texts are those of a Go program over
k8s.io/apimachinery 0.33: DecodeParameters, then ValidateListOptions.
"""

from urllib.parse import parse_qs

import pytest

from adapter.apis import request_options as options
from podscale.serving.apis.api import ApiRequest, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import RequestInfo
from podscale.serving.status import StatusError

FORBIDDEN = "is forbidden unless resourceVersion is provided"


def asked(query: str) -> ApiRequest:
    info = RequestInfo(True, "/apis/x", "get")
    named = parse_qs(query, keep_blank_values=True)
    return ApiRequest("GET", "/apis/x", info, named, {}, b"", ANONYMOUS_USER, Media(), 0.0)


@pytest.mark.parametrize(("query", "message"), [
    ("limit=abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
    ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
    ("limit=1_0", 'strconv.ParseInt: parsing "1_0": invalid syntax'),
    ("limit=%D9%A1", 'strconv.ParseInt: parsing "١": invalid syntax'),
    ("limit=x%22%C3%A9%0A", r'strconv.ParseInt: parsing "x\"é\n": invalid syntax'),
    ("timeoutSeconds=9223372036854775808",
     'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
    (f"limit={'9' * 5000}", f'strconv.ParseInt: parsing "{"9" * 5000}": value out of range'),
    ("limit=x&timeoutSeconds=y", 'strconv.ParseInt: parsing "y": invalid syntax'),
    ("limit=x&labelSelector=a+b", 'strconv.ParseInt: parsing "x": invalid syntax'),
    ("fieldSelector=a&labelSelector=a+b",
     "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("fieldSelector=metadata.name%3Da%3Db",
     "invalid field selector: unescaped character in value: 61"),
    ("fieldSelector=foo%3Dbar",
     '"foo" is not a known field selector: only "metadata.name", "metadata.namespace"'),
])  # fmt: skip
@pytest.mark.parametrize("is_validated", [True, False])
def test_what_cannot_be_decoded_is_a_400(query, message, is_validated):
    with pytest.raises(StatusError) as caught:
        options.list_options(asked(query), is_validated=is_validated)
    assert (caught.value.status.code, caught.value.status.message) == (400, message)


@pytest.mark.parametrize("query", [
    "limit=1", "limit=%2B1", "limit=-9223372036854775808", "timeoutSeconds=5", "watch=maybe",
    "resourceVersionMatch=Exact&resourceVersion=5", "fieldSelector=", "resourceVersionMatch=",
])  # fmt: skip
def test_what_has_no_effect_here_is_taken(query):
    assert options.list_options(asked(query)).fields == ()


@pytest.mark.parametrize(("query", "message"), [
    ("resourceVersionMatch=NotOlderThan",
     f"resourceVersionMatch: Forbidden: resourceVersionMatch {FORBIDDEN}"),
    ("resourceVersionMatch=x",
     (f"[resourceVersionMatch: Forbidden: resourceVersionMatch {FORBIDDEN}, resourceVersionMatch: "
      'Unsupported value: "x": supported values: "Exact", "NotOlderThan", ""]')),
    ("resourceVersionMatch=Exact&resourceVersion=0&continue=c",
     ("[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is "
      'provided, resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for '
      'resourceVersion "0"]')),
    ("sendInitialEvents=false",
     "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
])  # fmt: skip
def test_what_contradicts_itself_is_a_422_where_upstream_validates(query, message):
    with pytest.raises(StatusError) as caught:
        options.list_options(asked(query))
    found = caught.value.status
    assert (found.code, found.reason) == (422, "Invalid")
    assert found.message == f'ListOptions.meta.k8s.io "" is invalid: {message}'
    assert (found.details.group, found.details.kind) == ("meta.k8s.io", "ListOptions")
    for cause in found.details.causes:
        assert cause.reason in ("FieldValueForbidden", "FieldValueNotSupported")
        assert f"{cause.field}: {cause.message}" in found.message
    options.list_options(asked(query), is_validated=False)


@pytest.mark.parametrize(("selector", "is_taken"), [
    ("", True), (",", True), ("metadata.name=web-1", True), ("metadata.name==web-1,", True),
    ("metadata.name=web-1,metadata.namespace=default", True), ("metadata.name=web-2", False),
    ("metadata.name!=foo", False), ("metadata.namespace=default", False),
    ("metadata.name=", False),
])  # fmt: skip
def test_beside_a_name_a_field_selector_demands_exactly_that_name(selector, is_taken):
    query = asked("")
    query.query["fieldSelector"] = [selector]
    found = options.list_options(query)
    if is_taken:
        options.require_name(found, "web-1")
        return
    with pytest.raises(StatusError) as caught:
        options.require_name(found, "web-1")
    text = "fieldSelector metadata.name doesn't match requested name"
    assert (caught.value.status.code, caught.value.status.message) == (400, text)
