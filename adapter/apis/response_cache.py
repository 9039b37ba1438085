"""Answers that are still true: the bytes of an unchanged snapshot are sent again as they are.

An entry lives as long as the feed would answer from the same snapshot, and only while the
objects it lists are the same. This is what makes a repeated ``*`` request cheap.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from podscale.feed.queries.group import is_fresh
from podscale.serving.apis.api import ApiRequest, ApiResponse

# 1,000 HPAs of ten pods are 3 MB. Selectors that nobody repeats must not become memory.
_MOST_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 1024  # what an entry takes besides body and key
# All that changes an answer; a client's timeout, pretty or cache-buster does not.
_MEANINGFUL = ("labelSelector", "metricLabelSelector", "fieldSelector")

Key = tuple[str, ...]


def always() -> bool:
    """Return True: no object can change the answer."""
    return True


class _Entry(Struct, frozen=True):
    response: ApiResponse
    asked_s: float
    size: int
    is_same: Callable[[], bool]


class ResponseCache:
    """Responses by request."""

    def __init__(
        self,
        fresh_s: float,
        clock: Callable[[], float] = time.time,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """``fresh_s`` is how long after its evaluation time a snapshot answers."""
        self.fresh_s = fresh_s
        self.hits = 0
        self.held_bytes = 0
        self._clock = clock
        self._most_bytes = most_bytes
        self._entries: dict[Key, _Entry] = {}  # oldest first

    @staticmethod
    def key(request: ApiRequest) -> Key:
        """Return what tells requests with different answers apart."""
        query = request.query
        if not query:
            return (request.path,)
        return (request.path, *[request.parameter(name) for name in _MEANINGFUL])

    def find(self, key: Key) -> ApiResponse | None:
        """Return the response if it would come out the same now."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not self._is_fresh(entry.asked_s, self._clock()) or not entry.is_same():
            self._drop(key)
            return None
        self.hits += 1
        return entry.response

    def keep(
        self,
        key: Key,
        response: ApiResponse,
        asked_s: float,
        is_same: Callable[[], bool] = always,
    ) -> ApiResponse:
        """Remember ``response``; ``is_same`` tells whether its objects are what they were."""
        now_s = self._clock()
        if self._is_fresh(asked_s, now_s):
            if key in self._entries:
                self._drop(key)
            size = _ENTRY_BYTES + len(response.body) + sum(map(len, key))
            self._entries[key] = _Entry(response, asked_s, size, is_same)
            self.held_bytes += size
            while self._is_over(now_s):
                self._drop(next(iter(self._entries)))
        return response

    def clear(self) -> None:
        """Forget everything: the rules or the list of metrics changed."""
        self._entries.clear()
        self.held_bytes = 0

    def _is_fresh(self, asked_s: float, now_s: float) -> bool:
        # The feed's rule: an answer from the future (the clock was set back) is none either.
        return now_s < asked_s + self.fresh_s and is_fresh(asked_s, now_s, self.fresh_s)

    def _is_over(self, now_s: float) -> bool:
        if self.held_bytes > self._most_bytes:
            return True
        oldest = next(iter(self._entries.values()), None)
        return oldest is not None and not self._is_fresh(oldest.asked_s, now_s)

    def _drop(self, key: Key) -> None:
        self.held_bytes -= self._entries.pop(key).size
