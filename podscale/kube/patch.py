"""Minimal patches between two JSON values. Pure."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None


class Operation(Struct, frozen=True, omit_defaults=True):
    """One operation of RFC 6902."""

    op: Literal["add", "remove", "replace", "test"]
    path: str
    value: object = None


def merge_patch(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object] | None:
    """Return the RFC 7386 patch from ``old`` to ``new``; None: nothing differs.

    Lists are replaced whole. A null inside ``new`` cannot be expressed and means absence.
    """
    raise NotImplementedError


def json_patch(old: object, new: object, path: str = "") -> list[Operation]:
    """Return the RFC 6902 operations from ``old`` to ``new``, maps sorted by key."""
    raise NotImplementedError


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer of ``parts``, escaped: ``/metadata/labels/a~1b``."""
    raise NotImplementedError
