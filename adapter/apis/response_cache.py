"""Answers that are still true: the bytes of an unchanged snapshot are sent again as they are.

An entry lives as long as the feed would answer from the same snapshot, and only while the
objects it lists are the same. This is what makes a repeated ``*`` request cheap.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from podscale.core.boundedcache import BoundedCache
from podscale.feed.queries.group import is_fresh
from podscale.serving.apis.api import ApiRequest, ApiResponse

# 1,000 HPAs of ten pods are 3 MB. Selectors that nobody repeats must not become memory.
_MOST_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 1024  # what an entry takes besides body and key
_LARGEST = 1 / 4  # of all: the pods of a large namespace come again, too
# All that changes an answer; a client's timeout, pretty or cache-buster does not.
_MEANINGFUL = ("labelSelector", "metricLabelSelector", "fieldSelector")

Key = tuple[str, ...]


def always() -> bool:
    """Return True: no object can change the answer."""
    return True


class _Entry(Struct):
    response: ApiResponse | None  # None: it was found out of date
    asked_s: float
    is_same: Callable[[], bool]


class ResponseCache:
    def __init__(
        self, fresh_s: float, clock: Callable[[], float] = time.time, most_bytes: int = _MOST_BYTES
    ) -> None:
        """``fresh_s`` is how long after its evaluation time a snapshot answers."""
        self._fresh_s = fresh_s
        self._clock = clock
        self._entries: BoundedCache[Key, _Entry] = BoundedCache(
            most_bytes, age_s=2 * fresh_s, largest=_LARGEST
        )

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
        if not self._is_fresh(entry.asked_s):
            entry.response = None  # for good: a clock that is set back makes it no younger
        return entry.response if entry.is_same() else None

    def keep(
        self, key: Key, response: ApiResponse, asked_s: float, is_same: Callable[[], bool] = always
    ) -> ApiResponse:
        """Remember ``response``; ``is_same`` tells whether its objects are what they were."""
        if self._is_fresh(asked_s):
            size = _ENTRY_BYTES + len(response.body) + sum(map(len, key))
            self._entries.put(key, _Entry(response, asked_s, is_same), size)
        return response

    def clear(self) -> None:
        """Forget everything: the rules or the list of metrics changed."""
        self._entries.clear()

    def _is_fresh(self, asked_s: float) -> bool:
        # The feed's rule: an answer from the future (the clock was set back) is none either.
        now_s = self._clock()
        return now_s < asked_s + self._fresh_s and is_fresh(asked_s, now_s, self._fresh_s)
