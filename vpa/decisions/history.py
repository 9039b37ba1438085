"""What was told of each VPA before: the newest and up to 32 changes, packed.

A change is another target, or another action or first reason about a pod. Nothing of it
outlives the process: answers say since when they know.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from podscale.core.change_ring import ChangeRing
from podscale.core.json_decoder import decode_json
from vpa.model.samples.membership import VpaKey


class _ToldSizings(ChangeRing):
    __slots__ = ("mark",)

    least = 1

    def __init__(self) -> None:
        super().__init__()
        self.mark: Hashable = None  # of the newest


class SizingHistory:
    """Packed explanations by VPA."""

    def __init__(self) -> None:
        self._told: dict[VpaKey, _ToldSizings] = {}

    def is_new(self, key: VpaKey, mark: Hashable) -> bool:
        """Return whether what ``mark`` stands for differs from what was kept last."""
        told = self._told.get(key)
        return told is None or told.mark != mark

    def put(self, key: VpaKey, at: float, mark: Hashable, body: Mapping[str, Any]) -> None:
        told = self._told.setdefault(key, _ToldSizings())
        told.mark = mark
        told.add(at, "", msgspec.json.encode(body))

    def at(self, key: VpaKey, time_s: float) -> dict[str, Any] | None:
        """Return the explanation in force at a time; None: not known that far back."""
        told = self._told.get(key)
        plain = None if told is None else told.before(time_s)
        return None if plain is None else decode_json(plain)

    def known_since(self, key: VpaKey) -> float | None:
        told = self._told.get(key)
        return told.older[0].at if told is not None else None

    def forget(self, key: VpaKey) -> None:
        """Drop a VPA that is gone."""
        self._told.pop(key, None)
