"""The admission webhook's Lease, read from the API server itself.

Its age is counted from when we saw it renewed, where the clocks do not agree: a clock that
is set back must not keep a dead webhook alive, nor one that is ahead a live one dead. The
first look at a renewal may not tell its age from a difference of clocks: ``has_to_look_again``.
Once a second look has told, the difference is known, and the next first look tells.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import LEASES
from podscale.kube.client.wire import decode
from podscale.kube.objects.cluster import Lease as LeaseObject
from vpa.updater.decide.decision import AdmissionLease

_log = structlog.get_logger()

_TRIES, _PAUSE_S = 3, 0.1  # upstream's, with pauses three times as long each time
_TIMEOUT_S = 5.0
_SLACK_S = 2.0  # between a renewal and its sight, beyond our pause between two looks


class WatchedLease:
    """One Lease, looked at again and again."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is monotonic."""
        self._api = api
        self._namespace, self._name = namespace, name
        self._clock = clock
        self._sign: float | None = None  # as it was written
        self._at = 0.0  # when we first saw it
        self._unseen_since = float("-inf")  # when we last saw another one
        self._looked_at = float("-inf")
        self._most_s = float("inf")  # the age that it may have
        self._behind_s = float("-inf")  # by which its clock is behind ours, or more

    def has_to_look_again(self, timeout_s: float) -> bool:
        """Return whether the last look was the first one at a renewal that may be as old as
        ``timeout_s``, and may as well be new by a clock that differs from ours."""
        is_new = self._sign is not None and self._at == self._looked_at
        return is_new and self._most_s >= timeout_s

    async def read(self, now: float, *, at_most: bool = False) -> AdmissionLease:
        """Return the Lease, its times by our clock (``now``, unix seconds); one that cannot be
        read shows no life. ``at_most``: as old as it may be."""
        for attempt in range(_TRIES):
            try:
                path = LEASES.path(self._namespace, self._name)
                answer = await self._api.request("GET", path, timeout_s=_TIMEOUT_S)
                found = decode(answer.body, LeaseObject)
            except ObjectNotFound:
                break
            except (KubeError, msgspec.DecodeError) as error:
                _log.warning("sign of life not read", error=str(error))
                await asyncio.sleep(_PAUSE_S * 3**attempt)
                continue
            signs = (found.metadata.creation_timestamp, found.spec.renew_time)
            given = [sign for sign in signs if sign is not None]
            if not given:
                break
            age_s = self._age_s(max(given), now)
            return AdmissionLease(self._name, None, now - (self._most_s if at_most else age_s))
        return AdmissionLease(self._name, None, None)

    def _age_s(self, sign: float, now: float) -> float:
        clock = self._clock()
        is_new = sign != self._sign
        if is_new:
            self._sign, self._at, self._unseen_since = sign, clock, self._looked_at
        self._looked_at = clock
        age_s, seen_s = now - sign, clock - self._at
        # What our looks explain is no difference of clocks.
        unseen_s = clock - self._unseen_since
        is_explained = seen_s - _SLACK_S <= age_s <= unseen_s + _SLACK_S
        if is_new:
            if age_s < self._behind_s - _SLACK_S:
                self._behind_s = float("-inf")  # a clock was set, or another webhook renews
            self._behind_s = max(self._behind_s, age_s - unseen_s)
        self._most_s = min(unseen_s, max(seen_s, age_s - self._behind_s))
        if not is_explained:
            return seen_s
        self._most_s = min(self._most_s, age_s)
        return self._most_s
