"""What differs between the ``expected`` of a case of vpa.yaml and what was found.

By value: quantities, times, and lists whose order the kind leaves open.
"""

import json
import math
from datetime import datetime
from typing import Any

from podscale.core import quantity
from tests.conformance.vpa_admission_cases import parsed_updates

# Relative tolerances that the file states for its kinds; everything else is exact.
_TOLERANCE = {
    "start": 1e-14,
    "value": 1e-9,
    "total_weight": 1e-9,
    "confidence": 1e-12,
    "resource_diff": 1e-12,
    "v": 1e-12,
}
_TIMES = frozenset(
    {
        "t",
        "timestamp",
        "window_end",
        "first_sample_start",
        "last_sample_start",
        "reference_timestamp",
        "firstSampleStart",
        "lastSampleStart",
    }
)
_QUANTITIES = frozenset(
    {
        "target",
        "lowerBound",
        "upperBound",
        "uncappedTarget",
        "requests",
        "limits",
        "resources",
        "min",
        "max",
        "default",
    }
)
_PATCHES = frozenset(
    {
        "admission_patch",
        "resource_patch",
        "startup_boost_patch",
        "inplace_patch",
        "inplace_resource_patch",
    }
)


def differences(kind: str, expected: Any, found: Any, pod: Any = None) -> list[str]:
    """Return what is wrong; keys of ``found`` that the case does not state do not count.

    ``pod`` is that of the case, for patches: entries that change nothing of it do not count.
    """
    if kind == "resource_list":
        return _compare("resources", expected, found)
    if kind in _PATCHES:
        is_resize = kind.startswith("inplace")
        return _compare_patches(*(
            {key: effective(value, pod) if is_resize and isinstance(value, list) else value
             for key, value in side.items()} for side in (expected, found)
        ))  # fmt: skip
    return _compare("", expected, found)


def _compare(path: str, expected: Any, found: Any) -> list[str]:
    key = path.rsplit(".", 1)[-1].split("[")[0]
    if key in _QUANTITIES and _is_amounts(expected) and _is_amounts(found):
        return _compare_quantities(path, expected or {}, found or {})
    if isinstance(expected, dict) and isinstance(found, dict):
        if key == "annotations":
            return _plain(path, _sorted(expected), _sorted(found))
        if key == "bucket_weights":
            return _plain(
                path, *({int(k): v for k, v in side.items()} for side in (expected, found))
            )
        missing = [
            f"{path}.{name}: missing"
            for name, said in expected.items()
            # No amounts and amounts that are not written are one.
            if name not in found and not (name in _QUANTITIES and not said)
        ]
        nested = [
            difference
            for name in expected
            if name in found
            for difference in _compare(f"{path}.{name}", expected[name], found[name])
        ]
        return missing + nested
    if isinstance(expected, list) and isinstance(found, list):
        if key == "actions_succeed":
            # What is null was done, and its outcome not looked at.
            found = [None if e is None else f for e, f in zip(expected, found, strict=True)]
        if key in ("expired", "controlled_resources", "conditions", "errors"):
            expected, found = _ordered(expected), _ordered(found)
        if len(expected) != len(found):
            return [f"{path}: {found} has {len(found)} entries, not {len(expected)}: {expected}"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [d for n, (e, f) in pairs for d in _compare(f"{path}[{n}]", e, f)]
    if key in _TIMES:
        return _plain(path, _seconds(expected), _seconds(found))
    if key == "limit" and expected is not None and found is not None:
        return _compare_quantities(path, {"limit": expected}, {"limit": found})
    if key in _TOLERANCE and isinstance(expected, int | float) and isinstance(found, int | float):
        close = math.isclose(expected, found, rel_tol=_TOLERANCE[key], abs_tol=1e-300)
        return [] if close else [f"{path}: {found!r}, not {expected!r}"]
    return _plain(path, expected, found)


def _is_amounts(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _seconds(time: str | float | None) -> float | None:
    return datetime.fromisoformat(time).timestamp() if isinstance(time, str) else time


def _compare_quantities(path: str, expected: Any, found: Any) -> list[str]:
    def read(listed: dict[str, str]) -> dict[str, int]:
        return {name: quantity.from_wire(value).nano for name, value in listed.items()}

    return _plain(path, read(expected), read(found))


def effective(entries: list[dict[str, Any]], pod: Any) -> list[dict[str, Any]]:
    """Return the entries of a patch that change the amounts of ``pod``, and all others."""
    return [entry for entry in entries if not _changes_nothing(entry, pod)]


def _changes_nothing(entry: dict[str, Any], pod: Any) -> bool:
    if "/resources" not in entry["path"]:
        return False
    present = pod or {}
    for step in entry["path"].removeprefix("/").split("/"):
        if isinstance(present, list):
            present = present[int(step)] if int(step) < len(present) else None
        else:
            present = (present or {}).get(step)
    value = entry.get("value")
    if isinstance(value, dict) or value is None:
        return not value and not present
    return present is not None and quantity.from_wire(present) == quantity.from_wire(value)


def _compare_patches(expected: Any, found: Any) -> list[str]:
    result = []
    for key, wanted in expected.items():
        if isinstance(wanted, list):
            # Inside one requests or limits map upstream's order is random.
            lists = [_by_map([_patch(entry) for entry in side]) for side in (wanted, found[key])]
            if key == "annotation_patches":  # upstream's come in the order of a map
                lists = [_ordered(side) for side in lists]
            result += _plain(key, *lists)
        else:
            result += _plain(key, wanted, found[key])
    return result


def _patch(entry: dict[str, Any]) -> dict[str, Any]:
    value = entry.get("value")
    if "/resources/" in entry["path"] and isinstance(value, str):
        value = quantity.parse(value).nano
    if entry["path"].endswith("vpaUpdates"):
        value = _updates(value)
    if "vpaCpuStartupBoost" in entry["path"] and isinstance(value, str):
        value = {
            field: {name: quantity.from_wire(amount).nano for name, amount in listed.items()}
            for field, listed in json.loads(value).items()
        }
    return {"op": entry["op"], "path": entry["path"], "value": value}


def _updates(value: Any) -> Any:
    if isinstance(value, str):
        value = parsed_updates(value)
    return {**value, "containers": {str(k): v for k, v in value["containers"].items()}}


def _by_map(patches: list[dict[str, Any]]) -> list[Any]:
    result: list[Any] = []
    for entry in patches:
        parent = entry["path"].rsplit("/", 1)[0]
        is_amount = parent.endswith(("/requests", "/limits"))
        if is_amount and result and result[-1][0] == parent:
            result[-1][1].append(entry)
        else:
            result.append((parent if is_amount else entry["path"], [entry]))
    for _, entries in result:
        entries.sort(key=lambda entry: entry["path"])
    return result


def _sorted(annotations: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(notes) for name, notes in annotations.items() if notes}


def _ordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True, default=str))


def _plain(path: str, expected: Any, found: Any) -> list[str]:
    return [] if expected == found else [f"{path}: {found!r}, not {expected!r}"]
