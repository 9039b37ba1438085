"""Objects that nest deeper than Python's own JSON could write them."""

import re
from typing import Any

_PLACE = re.compile(rb'"<nested (\d+)>"')


def nested(levels: int) -> str:
    """Return a text that stands for an object of ``levels`` levels until ``expanded``."""
    return f"<nested {levels}>"


def managed(levels: int, manager: str = "alice", **entry: str) -> list[dict[str, Any]]:
    """Return managedFields whose fields nest so deep."""
    return [{"manager": manager, "operation": "Update", "fieldsV1": nested(levels), **entry}]


def expanded(body: bytes) -> bytes:
    """Return ``body`` with objects in place of the texts that stand for them."""
    return _PLACE.sub(lambda found: _levels(int(found[1])), body)


def _levels(levels: int) -> bytes:
    return b'{"f:a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)
