"""JSON patch (RFC 6902, without move and copy), merge patch (RFC 7396), strategic merge patch.

Strategic merging knows the merge keys of the lists that people patch by field name,
where upstream reads them from the types; an unknown list is replaced as a whole.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from podscale.core.ascii_text import whole_number
from podscale.sandbox.errors import bad_request, unprocessable
from podscale.serving.status import StatusError

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "webhooks": "name",
}
_SETS = frozenset({"finalizers"})  # lists of texts that merge


def merge(target: Any, patch: Any) -> Any:
    """Return ``target`` with an RFC 7396 merge patch applied."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Return ``target`` with a strategic merge patch applied."""
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return deepcopy(patch)
    if patch.get("$patch") == "replace":
        return _without_directives(patch)
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if (kept := patch.get("$retainKeys")) is not None:
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.partition("/")[2]
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, name)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Return ``target`` with an RFC 6902 patch applied; raises ``StatusError`` 422."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document = deepcopy(target)
    for operation in operations:
        document = _apply_one(document, operation)
    return document


def _strategic_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    key = _merge_key(field, [*target, *patch])
    if key is None:
        if field in _SETS:
            return [*target, *(item for item in patch if item not in target)]
        return [_without_directives(item) for item in patch]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_without_directives(item) for item in patch if item.get("$patch") != "replace"]
    result = list(target)
    for item in patch:
        at = next((n for n, held in enumerate(result) if held.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_without_directives(item))
        else:
            result[at] = strategic(result[at], item)
    return result


def _merge_key(field: str, items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return _MERGE_KEYS.get(field)


def _ordered(items: list[Any], order: Sequence[Any], field: str) -> list[Any]:
    key = _merge_key(field, items)
    names = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def place(item: Any) -> int:
        name = item.get(key) if isinstance(item, dict) else item
        return names.index(name) if name in names else len(names)

    return sorted(items, key=place)


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_directives(part)
            for key, part in value.items()
            if not key.startswith("$") and part is not None
        }
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return deepcopy(value)


def _apply_one(document: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation.get("op"), _pointer(operation.get("path", ""))
    if kind == "test":
        if _get(document, path) != operation.get("value"):
            raise _refused(f"testing path {operation.get('path')} value failed")
        return document
    if kind in ("add", "replace"):
        if kind == "replace":
            _get(document, path)
        return _set(document, path, deepcopy(operation.get("value")), is_add=kind == "add")
    if kind == "remove":
        return _remove(document, path)
    raise _refused(f"Unexpected kind: {kind}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        document = _child(document, part)
    return document


def _index(container: Any, part: str) -> int | None:
    return whole_number(part) if isinstance(container, list) else None


def _child(container: Any, part: str) -> Any:
    if isinstance(container, dict) and part in container:
        return container[part]
    if (index := _index(container, part)) is not None and index < len(container):
        return container[index]
    raise _refused(f"the path has no element {part!r}")


def _set(document: Any, path: Sequence[str], value: Any, *, is_add: bool) -> Any:
    if not path:
        return value
    container, last = _get(document, path[:-1]), path[-1]
    if isinstance(container, dict):
        container[last] = value
    elif isinstance(container, list) and last == "-" and is_add:
        container.append(value)
    elif (index := _index(container, last)) is not None and index <= len(container):
        if is_add:
            container.insert(index, value)
        else:
            container[index] = value
    else:
        raise _refused(f"the path has no element {last!r}")
    return document


def _remove(document: Any, path: Sequence[str]) -> Any:
    container, last = _get(document, path[:-1]), path[-1]
    _child(container, last)
    del container[int(last) if isinstance(container, list) else last]
    return document


def _refused(reason: str) -> StatusError:
    return unprocessable(
        f"the server rejected our request due to an error in our request: {reason}"
    )
