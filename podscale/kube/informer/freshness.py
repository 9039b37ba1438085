"""How far a store may be believed, and which of two states of an object is the newer one.

"While a watch is silent past its time-out or listing again, nothing that depends on it
shrinks": callers ask ``is_current`` before they shrink anything. resourceVersions of one resource
are integers that grow (promised for clients since Kubernetes 1.35, true of every release before).
Pure but for the event that ``wait_synced`` waits on.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from podscale.core.ascii_text import whole_number
from podscale.kube.client.errors import KubeError
from podscale.kube.client.wire import HasMetadata
from podscale.kube.informer import list_watch


def number(resource_version: str) -> int:
    """Return the resourceVersion as a number; -1: it is not one."""
    found = whole_number(resource_version)
    return -1 if found is None else found


def is_older(candidate: int, known: int) -> bool:
    """Return whether ``candidate`` is surely older than what is known."""
    return 0 <= candidate < known


class NewestVersions:
    """How far each scope of a store has seen history, and which list is under way.

    ``note_page`` says where history went backwards (etcd restored from a backup): then the list
    is right and everything remembered is wrong, however new it looks.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._rewritten: dict[str, bool] = {}

    def start_list(self, scope: str) -> None:
        self._rewritten.pop(scope, None)

    def note_page(self, scope: str, resource_version: str) -> bool:
        """Return whether this list comes from rewritten history."""
        if scope not in self._rewritten:
            listed = number(resource_version)
            self._rewritten[scope] = is_older(listed, self._seen.get(scope, -1))
        return self._rewritten[scope]

    def note_seen(self, scope: str, resource_version: str, *, is_list: bool = False) -> None:
        """History has been seen up to here."""
        head = number(resource_version)
        if is_list or head > self._seen.get(scope, -1):
            self._seen[scope] = head

    def is_past(self, scope: str, version: int) -> bool:
        """Return whether history up to ``version`` has been seen: what is absent was deleted."""
        return 0 <= version <= self._seen.get(scope, -1)


T = TypeVar("T", bound=HasMetadata)


class Freshness(Struct, frozen=True):
    """Facts about one store at one moment."""

    is_synced: bool  # the first list has been read whole, in every scope
    is_current: bool  # and every scope has a live watch now (or a recent list, if polling)
    doubted_s: float  # for how long it is not, of all scopes the longest; inf: never listed
    is_polling: bool = False  # some scope may not be watched and is listed instead
    reason: str = ""  # why it is not current; "" when it is
    error: KubeError | None = None  # the failure behind it, where there is one


class _Scope(Struct, eq=False):
    """What is known of one list-and-watch."""

    is_synced: bool = False
    is_polling: bool = False
    heard: float = -math.inf
    good_for_s: float = 0.0
    doubt: str = "not listed yet"  # "" while a watch stands
    believed_since: float = math.inf
    doubted_since: float = -math.inf  # where there is a doubt
    error: KubeError | None = None

    def is_believed(self, now: float) -> bool:
        return not self.doubt and now - self.heard <= self.good_for_s

    def believed_until(self, now: float) -> float:
        """Return when it could be believed last, ``now`` at most."""
        return self.doubted_since if self.doubt else min(self.heard + self.good_for_s, now)


class FreshnessTracker:
    """Turns what happens into freshness; one per store, on the monotonic clock."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self._scopes = {scope: _Scope() for scope in scopes}
        self._is_synced = False
        self._synced = asyncio.Event()

    def note(self, happening: list_watch.Happening[T], *, scope: str, now: float) -> None:
        """Take in a sign of life, or of its end."""
        state = self._scopes[scope]
        state.doubted_since = state.believed_until(now)
        was_believed = state.is_believed(now)
        match happening:
            # A page is no sign of life: a list that always fails at a later one never is whole.
            case list_watch.ListEnded():
                state.heard = now
                state.is_synced = True
                state.error = None
                if math.isinf(state.doubted_since):  # the first list: its watch comes next
                    state.doubted_since = now
                self._note_synced()
            case list_watch.WatchAlive(good_for_s=good_for_s, is_poll=is_poll):
                state.heard = now
                state.good_for_s = good_for_s
                state.is_polling = is_poll
                state.doubt = ""
                state.error = None
            case list_watch.Changes():
                state.heard = now
            case list_watch.WatchBroken(reason=reason, error=error):
                # A failed poll only lets the last list grow older, towards its limit.
                if not state.is_polling or not state.is_synced:
                    state.doubt = reason
                state.error = error
        if not was_believed and state.is_believed(now):
            state.believed_since = now

    def _note_synced(self) -> None:
        if not self._is_synced and all(state.is_synced for state in self._scopes.values()):
            self._is_synced = True
            self._synced.set()

    @property
    def is_synced(self) -> bool:
        """Whether every scope has been listed whole once."""
        return self._is_synced

    def is_current(self, now: float, since: float = math.inf, namespace: str | None = None) -> bool:
        """Whether every scope, or that of ``namespace``, may be believed at ``now``, and could be
        all the time ``since``: what was read then is as good as what would be read now."""
        found = [self._scopes[scope] for scope in {"", namespace or ""} & self._scopes.keys()]
        return all(
            state.is_believed(now) and state.believed_since <= since
            for state in found or self._scopes.values()
        )

    def facts(self, now: float) -> Freshness:
        """Return everything known at ``now``, the reason from the first scope in doubt."""
        reason, error = "", None
        for scope, state in self._scopes.items():
            doubt = state.doubt
            if not doubt and now - state.heard > state.good_for_s:
                doubt = f"silent for {now - state.heard:.0f} s"
            if doubt:
                reason = f"namespace {scope}: {doubt}" if scope else doubt
                error = state.error
                break
        return Freshness(
            is_synced=self._is_synced,
            is_current=not reason,
            doubted_s=now - min(state.believed_until(now) for state in self._scopes.values()),
            is_polling=any(state.is_polling for state in self._scopes.values()),
            reason=reason,
            error=error,
        )

    async def wait_synced(self) -> None:
        """Wait until every scope has been listed whole once."""
        await self._synced.wait()
