"""Answers that are still true: the bytes of an unchanged snapshot are sent again as they are.

An entry lives as long as the feed would answer from the same snapshot, and only while the
objects it lists are the same. This is what makes a repeated ``*`` request cheap.
"""

import time
from collections.abc import Callable, Hashable

from msgspec import Struct

from podscale.serving.api import ApiRequest, ApiResponse

_MOST = 20_000

Key = tuple[Hashable, ...]


class _Entry(Struct, frozen=True):
    response: ApiResponse
    until_s: float
    version: Hashable
    current: Callable[[], Hashable]


class Reuse:
    """Responses by request."""

    def __init__(self, fresh_s: float, clock: Callable[[], float] = time.time) -> None:
        """``fresh_s`` is how long after its evaluation time a snapshot answers."""
        self.fresh_s = fresh_s
        self.hits = 0
        self._clock = clock
        self._entries: dict[Key, _Entry] = {}

    @staticmethod
    def key(request: ApiRequest) -> Key:
        """Return what tells requests with different answers apart."""
        query = request.query
        if not query:
            return (request.path, request.media.as_table)
        parameters = tuple((name, *query[name]) for name in sorted(query))
        return (request.path, request.media.as_table, *parameters)

    def find(self, key: Key) -> ApiResponse | None:
        """Return the response if it would come out the same now."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until_s <= self._clock() or entry.current() != entry.version:
            del self._entries[key]
            return None
        self.hits += 1
        return entry.response

    def keep(
        self,
        key: Key,
        response: ApiResponse,
        asked_s: float,
        version: Hashable = None,
        current: Callable[[], Hashable] = lambda: None,
    ) -> ApiResponse:
        """Remember ``response``; ``current`` tells whether its objects are still the same."""
        until_s = asked_s + self.fresh_s
        if until_s > self._clock():
            if len(self._entries) >= _MOST:
                self._entries.clear()
            self._entries[key] = _Entry(response, until_s, version, current)
        return response

    def clear(self) -> None:
        """Forget everything: the rules or the list of metrics changed."""
        self._entries.clear()
