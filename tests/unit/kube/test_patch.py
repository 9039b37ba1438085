"""Patches: minimal, and what they make of the old object is the new one."""

from podscale.kube.patch import Operation, json_patch, merge_patch, pointer
from podscale.kube.wire import encode


def test_equal_objects_need_no_patch():
    assert merge_patch({"a": {"b": [1, {"c": None}]}}, {"a": {"b": [1, {"c": None}]}}) is None
    assert json_patch({"a": [1]}, {"a": [1]}) == []


def test_only_what_differs_is_in_the_patch():
    old = {"status": {"a": 1, "b": {"x": 1, "y": 2}, "gone": 0}, "same": [1, 2]}
    new = {"status": {"a": 1, "b": {"x": 1, "y": 3}, "new": {"z": 1}}, "same": [1, 2]}
    assert merge_patch(old, new) == {"status": {"b": {"y": 3}, "gone": None, "new": {"z": 1}}}
    assert [(o.op, o.path) for o in json_patch(old, new)] == [
        ("replace", "/status/b/y"),
        ("remove", "/status/gone"),
        ("add", "/status/new"),
    ]


def test_true_is_not_one_and_one_is_one_point_zero():
    assert merge_patch({"a": 1}, {"a": True}) == {"a": True}
    assert merge_patch({"a": 1}, {"a": 1.0}) is None


def test_a_remove_has_no_value_on_the_wire_and_a_null_has():
    assert encode(Operation("remove", "/a")) == b'{"op":"remove","path":"/a"}'
    assert encode(Operation("add", "/a", None)) == b'{"op":"add","path":"/a","value":null}'


def test_pointers_escape_what_json_pointer_reserves():
    assert pointer("metadata", "annotations", "a/b~c", 0) == "/metadata/annotations/a~1b~0c/0"
