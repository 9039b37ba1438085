"""Minimal patches between two JSON values. Pure."""

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class Operation(Struct, frozen=True, omit_defaults=True):
    """One operation of RFC 6902; ``remove`` has no value."""

    op: Literal["add", "remove", "replace", "test"]
    path: str
    value: object | UnsetType = UNSET


def merge_patch(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object] | None:
    """Return the RFC 7386 patch from ``old`` to ``new``; None: nothing differs.

    Lists are replaced whole. A null inside ``new`` cannot be expressed and means absence.
    """
    patch: dict[str, object] = {}
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = merge_patch(before, after)
            if inner is not None:
                patch[key] = inner
        elif not _equal(before, after):
            patch[key] = _without_nulls(after)
    return patch or None


def _without_nulls(value: object) -> object:
    """A map that is new as a whole: a null in it would ask to delete what is not there."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}


def json_patch(old: object, new: object, path: str = "") -> list[Operation]:
    """Return the RFC 6902 operations from ``old`` to ``new``, maps sorted by key.

    Lists of equal length are patched item by item, others replaced whole.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        operations: list[Operation] = []
        for key in sorted(old.keys() | new.keys()):
            where = path + pointer(key)
            if key not in new:
                operations.append(Operation("remove", where))
            elif key not in old:
                operations.append(Operation("add", where, new[key]))
            else:
                operations += json_patch(old[key], new[key], where)
        return operations
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            operation
            for index, (before, after) in enumerate(zip(old, new, strict=True))
            for operation in json_patch(before, after, path + pointer(index))
        ]
    return [] if _equal(old, new) else [Operation("replace", path, new)]


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer of ``parts``, escaped: ``/metadata/labels/a~1b``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _equal(one: object, other: object) -> bool:
    """JSON equality: ``True`` is not 1, though Python says so; 1 and 1.0 are the same number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other
