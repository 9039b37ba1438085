"""Any two objects: the patch turns the one into the other."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podscale.kube.patch import Operation, json_patch, merge_patch

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=2)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), VALUES, max_size=4)


def patched(target: Any, operation: Operation) -> Any:
    if not operation.path:
        return operation.value
    parts = [p.replace("~1", "/").replace("~0", "~") for p in operation.path[1:].split("/")]
    holder = target
    for part in parts[:-1]:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    last = int(parts[-1]) if isinstance(holder, list) else parts[-1]
    if operation.op == "remove":
        del holder[last]
    else:
        holder[last] = operation.value
    return target


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without_nulls(value: Any) -> Any:
    """What merge patches can express: maps without nulls, lists as they are."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@given(OBJECTS, OBJECTS)
def test_a_json_patch_makes_the_new_object(old, new):
    result = copy.deepcopy(old)
    for operation in json_patch(old, new):
        result = patched(result, operation)
    assert repr(result) == repr(new) or json_patch(result, new) == []
    assert sorted(map(repr, result)) == sorted(map(repr, new))


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_makes_the_new_object(old, new):
    old, new = without_nulls(old), without_nulls(new)
    assert merge_patch(merged(old, merge_patch(old, new) or {}), new) is None
