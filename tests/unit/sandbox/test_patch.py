import pytest

from podscale.sandbox.objects import patch
from podscale.serving.status import StatusError

POD = {
    "spec": {
        "containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "1"},
        ],
        "tolerations": [{"key": "k"}],
    }
}


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "x"}, {"a": {"b": None}}, {"a": {}}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7396(target, given, expected):
    assert patch.merge(target, given) == expected


def test_a_strategic_patch_merges_lists_by_their_key():
    given = {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c", "image": "1"}]}}
    containers = patch.strategic(POD, given)["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("a", "2"), ("b", "1"), ("c", "1")]
    assert containers[0]["env"] == [{"name": "X", "value": "1"}]


def test_a_strategic_patch_deletes_and_orders_list_items():
    given = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}],
            "containers": [{"name": "c", "image": "9"}, {"name": "a", "$patch": "delete"}],
        }
    }
    containers = patch.strategic(POD, given)["spec"]["containers"]
    assert [c["name"] for c in containers] == ["b", "c"]


def test_a_strategic_patch_replaces_lists_without_a_key():
    given = {"spec": {"tolerations": [{"key": "other"}]}}
    assert patch.strategic(POD, given)["spec"]["tolerations"] == [{"key": "other"}]


def test_strategic_directives():
    held = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "finalizers": ["a", "b"]}
    given = {
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "$deleteFromPrimitiveList/finalizers": ["a"],
    }
    assert patch.strategic(held, given) == {
        "strategy": {"type": "Recreate"},
        "finalizers": ["b"],
    }
    assert patch.strategic({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}) == {"a": {"y": 2}}


def test_patching_does_not_change_the_target():
    before = patch.strategic(POD, {})
    patch.strategic(POD, {"spec": {"containers": [{"name": "a", "image": "2"}]}})
    patch.json_patch(POD, [{"op": "remove", "path": "/spec/containers/0"}])
    patch.merge(POD, {"spec": None})
    assert before == POD


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/l/-", "value": 3}], {"l": [1, 2, 3], "m": {"a/b": 1}}),
        ([{"op": "add", "path": "/l/0", "value": 0}], {"l": [0, 1, 2], "m": {"a/b": 1}}),
        ([{"op": "replace", "path": "/m/a~1b", "value": 2}], {"l": [1, 2], "m": {"a/b": 2}}),
        ([{"op": "remove", "path": "/l/1"}], {"l": [1], "m": {"a/b": 1}}),
        ([{"op": "test", "path": "/l/0", "value": 1}], {"l": [1, 2], "m": {"a/b": 1}}),
        ([{"op": "add", "path": "", "value": {}}], {}),
    ],
)
def test_json_patches_follow_rfc_6902(operations, expected):
    assert patch.json_patch({"l": [1, 2], "m": {"a/b": 1}}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nope"},
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "test", "path": "/l/0", "value": 9},
        {"op": "move", "from": "/l", "path": "/x"},
    ],
)
def test_an_impossible_json_patch_is_refused(operation):
    with pytest.raises(StatusError) as refused:
        patch.json_patch({"l": [1]}, [operation])
    assert refused.value.status.code == 422
