"""The stored configuration is left alone only if it is the one that we would write."""

import copy
from typing import Any

import msgspec
import pytest

from podscale.kube.wire import encode
from vpa.admission.registration import Registration, _is_same

BODY: dict[str, Any] = msgspec.json.decode(
    encode(Registration(only="shop", labels=(("team", "a"),)).body(b"pem"))
)


def stored() -> dict[str, Any]:
    """Return it as an API server answers: with what it fills in."""
    found = copy.deepcopy(BODY)
    found["metadata"]["resourceVersion"] = "7"
    (hook,) = found["webhooks"]
    hook |= {"matchPolicy": "Equivalent", "objectSelector": {}, "reinvocationPolicy": "Never"}
    hook["clientConfig"]["service"]["port"] = 443
    return found


def test_what_the_api_server_fills_in_is_no_difference():
    assert _is_same(stored(), BODY)
    everywhere = msgspec.json.decode(encode(Registration().body(b"pem")))
    found = copy.deepcopy(everywhere)
    found["webhooks"][0]["namespaceSelector"] = {}
    assert _is_same(found, everywhere)


def test_labels_of_others_are_theirs():
    found = stored()
    found["metadata"]["labels"]["added"] = "x"
    assert _is_same(found, BODY)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespaceSelector", {}),
        ("namespaceSelector", {"matchLabels": {"a": "b"}}),
        ("sideEffects", "Unknown"),
        ("admissionReviewVersions", ["v1beta1"]),
        ("objectSelector", {"matchLabels": {"a": "b"}}),
        ("matchConditions", [{"name": "never", "expression": "false"}]),
        ("failurePolicy", "Fail"),
    ],
)
def test_a_field_that_somebody_changed_is_put_right(field: str, value: Any):
    found = stored()
    found["webhooks"][0][field] = value
    assert not _is_same(found, BODY)


def test_a_label_that_was_taken_off_is_put_back():
    found = stored()
    found["metadata"]["labels"] = None
    assert not _is_same(found, BODY)


def test_a_second_webhook_is_not_ours():
    found = stored()
    found["webhooks"].append(found["webhooks"][0])
    assert not _is_same(found, BODY)
