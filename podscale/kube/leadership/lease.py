"""Leadership by Lease: at most one active controller acts.

All deadlines are of the monotonic clock, so a clock jump neither prolongs nor ends a
term; a process that was frozen finds its deadline passed and must not write, whatever
its tasks believed. ``guard`` is that check; ``FencedApi`` puts it into every write.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, NotLeading, ObjectNotFound, WriteConflict
from podscale.kube.client.resource import LEASES
from podscale.kube.client.wire import MicroTime, decode, encode
from podscale.kube.objects.cluster import Lease, LeaseSpec

_log = structlog.get_logger()
_TELL_TIMEOUT_S = 5.0
_TELL_PAUSE_S = 1.0  # before the second try of a term, doubled ...
_TELL_PAUSE_MAX_S = 30.0  # ... up to this
_AFTER_EXPIRY_S = 0.01
_SLACK_S = 2.0  # between a renewal and its sight, beyond our pause between two looks


class LeaseTimes(Struct, frozen=True):
    """client-go's defaults."""

    duration_s: float = 15.0  # others wait this long after our last renewal
    renew_deadline_s: float = 10.0  # we stop acting this long after our last renewal
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.renew_deadline_s > self.retry_s > 0:
            raise ValueError(
                "lease times must satisfy duration > renew deadline > retry period > 0, got "
                f"{self.duration_s:g} s, {self.renew_deadline_s:g} s, {self.retry_s:g} s"
            )


DEFAULT_TIMES = LeaseTimes()


class Term(Struct, frozen=True):
    """One period of leadership, and what the Lease said before it."""

    previous_renew_time: float | None  # unix seconds; what stored history extends to
    # By how much its writer's clock was behind what ours shows now; 0 where nobody can tell.
    previous_behind_s: float = 0.0
    # When the last renewal went out, by the elector's clock: others know ours as it was set then.
    renewed_at: Callable[[], float] = lambda: math.inf


class _Observed(Struct, eq=False):
    """The Lease as last read. Its age is counted here, from when we saw it change: the
    holder's clock need not agree with ours."""

    lease: Lease
    at: float
    unseen_since: float  # when it was last seen as it was before; or -inf
    seen_at: float  # last

    def behind_s(self, now: float, wall: float) -> float:
        """Return by how much the holder's clock was behind ``wall``, ours at ``now``.

        It was renewed between our last look before and the one that saw it: what these two
        explain is no difference of clocks.
        """
        renewed = self.lease.spec.renew_time
        if renewed is None:
            return 0.0
        behind = wall - (now - self.at) - renewed
        is_explained = -_SLACK_S <= behind <= self.at - self.unseen_since + _SLACK_S
        return 0.0 if is_explained else behind


class Elector:
    """One Lease: acquired, renewed, released."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes = DEFAULT_TIMES,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        annotations: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chosen_by: str = "--leader-elect-resource-namespace",
    ) -> None:
        """``on_change`` is told of gain and loss (it labels the pod); a gain that it fails to
        take is told again for as long as we lead. ``annotations`` are written on the Lease with
        each renewal, beside those that it has.

        ``chosen_by`` is the flag that names the namespace, for whoever has to mend it.
        ``clock`` must go on while the process is frozen: not a loop's time, which uvloop
        reads once per iteration.
        """
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times
        self._on_change = on_change
        self._annotations = annotations
        self._clock = clock
        self._wall = wall
        self._deadline = float("-inf")
        self._observed: _Observed | None = None
        self._is_unsure = False
        self._chosen_by = chosen_by
        self._has_namespace = True  # as far as we know

    async def run(self, work: Callable[[Term], Awaitable[None]]) -> None:
        """Lead again and again: ``work`` runs for each term and is cancelled at its end.

        Cancelling ``run`` cancels ``work``, then releases the Lease. When ``work`` returns
        or raises, the Lease is released and ``run`` ends likewise; but ``NotLeading``, raised
        by the guard of a write, is the end of a term as any other.
        """
        while True:
            term = await self._acquire()
            _log.info("leading", lease=self._path, identity=self._identity)
            if await self._lead(term, work):
                return

    async def _lead(self, term: Term, work: Callable[[Term], Awaitable[None]]) -> bool:
        """Work for one term; returns whether the work came to its own end."""
        is_done = False
        working = asyncio.ensure_future(work(term))
        renewing = asyncio.create_task(self._renew_until_lost(), name=f"renew {self._path}")
        # A task of its own: the Lease is renewed and the work goes on, however long it takes.
        telling = asyncio.create_task(self._tell_of_gain(), name=f"label {self._path}")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            is_done = working.done()
        finally:
            await _cancelled(renewing)
            await _cancelled(telling)
            # The work ends before the Lease is given away, never after.
            await _cancelled(working)
            await self._release()
            if error := await self._tell(False):
                _log.warning("leader label not written", lease=self._path, error=str(error))
        if is_done and not _has_lost(working):
            await working
            return True
        _log.warning("leadership lost", lease=self._path)
        return False

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read; "" is nobody."""
        return (self._observed and self._observed.lease.spec.holder_identity) or ""

    def may_write(self) -> bool:
        """Whether the deadline has not passed."""
        return self._clock() < self._deadline

    def remaining_s(self) -> float:
        """Seconds left for a write that would be sent now; 0 or less: none."""
        return self._deadline - self._clock()

    def guard(self) -> None:
        """Raise ``NotLeading`` unless ``may_write()``; called immediately before a write."""
        if not self.may_write():
            raise NotLeading(f"{self._identity} does not hold the Lease {self._path} now")

    @property
    def _path(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def _acquire(self) -> Term:
        told = ""
        while True:
            try:
                term = await self._try()
                if term is not None:
                    return term
                if self.holder not in ("", told, self._identity):
                    told = self.holder
                    _log.info("standing by", lease=self._path, leader=told)
            except KubeError as error:
                _log.warning("lease not read or written", lease=self._path, error=str(error))
            await asyncio.sleep(self._until_next_try_s())

    def _until_next_try_s(self) -> float:
        """At most the retry period, so that a dead leader is followed within the lease
        duration and one retry period: its last renewal is seen that late at worst, and the
        end of the Lease is not slept through."""
        pause_s = self._times.retry_s * random.uniform(0.8, 1.0)
        left_s = self._expires() - self._clock()
        return left_s + _AFTER_EXPIRY_S if 0 < left_s < pause_s else pause_s

    async def _renew_until_lost(self) -> None:
        """Renew every retry period; returns when somebody else leads or the deadline passed."""
        while True:
            await asyncio.sleep(min(self._times.retry_s, max(self.remaining_s(), 0.0)))
            if not self.may_write():
                return
            try:
                if await self._try(is_renewal=True) is None:
                    self._deadline = float("-inf")
                    return
            except KubeError as error:
                _log.warning("lease not renewed", lease=self._path, error=str(error))

    async def _try(self, *, is_renewal: bool = False) -> Term | None:
        """Acquire or renew; None: somebody else holds it, or was quicker.

        A renewal takes back no Lease that is not ours any more, though nobody holds it: who
        held it meanwhile acted, and its history has to be read first.
        """
        for _ in range(2):
            # While leading, the state is our own last write: no GET, and anyone else's write
            # makes ours a conflict. Unsure: a write of ours may have arrived unanswered.
            if not self.may_write() or self._is_unsure:
                await self._read()
            asked = self._clock()
            if self._is_held_by_other(asked):
                return None
            if is_renewal and self.holder != self._identity:
                return None
            self._is_unsure = True
            try:
                return await self._write(self._observed.lease if self._observed else None, asked)
            except WriteConflict:
                continue
            except ObjectNotFound:
                if self._observed is not None:  # a PUT: the Lease has been deleted
                    continue
                self._tell_of_no_namespace()
                return None
        return None

    def _tell_of_no_namespace(self) -> None:
        # Once, though every attempt meets it: nobody leads until somebody makes it.
        if self._has_namespace:
            text = "nobody can lead: the namespace of the Lease does not exist"
            _log.warning(text, lease=self._path, flag=self._chosen_by)
        self._has_namespace = False

    def _is_held_by_other(self, now: float) -> bool:
        return self.holder not in ("", self._identity) and now < self._expires()

    def _expires(self) -> float:
        """Until when somebody else's Lease holds; -inf: there is none."""
        if self._observed is None:
            return float("-inf")
        duration_s = self._observed.lease.spec.lease_duration_seconds
        return self._observed.at + float(duration_s or self._times.duration_s)

    async def _read(self) -> None:
        try:
            answer = await self._api.request("GET", self._url(), timeout_s=self._timeout_s())
        except ObjectNotFound:
            self._observed = None
        else:
            self._observe(_lease(answer.body))
            self._has_namespace = True  # whoever made it
        self._is_unsure = False

    async def _write(self, old: Lease | None, asked: float) -> Term:
        """PUT (or POST) ourselves as holder. The term counts from before the request went out:
        others count from after it arrived."""
        spec = old.spec if old else LeaseSpec()
        is_ours = spec.holder_identity == self._identity
        now, before = self._wall(), self._observed
        acquired = spec.acquire_time if is_ours and spec.acquire_time else now
        transitions = (spec.lease_transitions or 0) + (1 if old is not None and not is_ours else 0)
        duration_s = max(int(self._times.duration_s), 1)
        times = MicroTime(acquired), MicroTime(now)
        body = self._body(old, LeaseSpec(self._identity, duration_s, *times, transitions))
        is_new = old is None
        answer = await self._api.request(
            "POST" if is_new else "PUT",
            LEASES.path(self._namespace) if is_new else self._url(),
            body=body,
            timeout_s=self._timeout_s(),
        )
        self._observe(_lease(answer.body))
        self._is_unsure = False
        self._has_namespace = True
        self._deadline = asked + self._times.renew_deadline_s
        behind_s = before.behind_s(self._clock(), self._wall()) if before else 0.0
        before_s = self._times.renew_deadline_s
        return Term(spec.renew_time, behind_s, lambda: self._deadline - before_s)

    async def _release(self) -> None:
        """Give the Lease back, so that the next leader need not wait for it to expire."""
        observed, may_write = self._observed, self.may_write()
        self._deadline = float("-inf")
        if not may_write or observed is None:
            return
        now, transitions = MicroTime(self._wall()), observed.lease.spec.lease_transitions or 0
        body = self._body(observed.lease, LeaseSpec("", 1, now, now, transitions))
        with suppress(KubeError):
            answer = await self._api.request(
                "PUT", self._url(), body=body, timeout_s=self._times.retry_s
            )
            self._observe(_lease(answer.body))

    def _observe(self, lease: Lease) -> None:
        known, now = self._observed, self._clock()
        version = lease.metadata.resource_version
        if known is not None and known.lease.metadata.resource_version == version:
            known.seen_at = now
        else:
            unseen_since = float("-inf") if known is None else known.seen_at
            self._observed = _Observed(lease, now, unseen_since, now)

    def _body(self, old: Lease | None, spec: LeaseSpec) -> bytes:
        metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
        annotations = self._annotations()
        if old is not None:
            metadata["resourceVersion"] = old.metadata.resource_version
            # A PUT replaces the object: what others wrote on it stays.
            metadata["labels"] = old.metadata.labels or {}
            annotations = {**(old.metadata.annotations or {}), **annotations}
        metadata["annotations"] = annotations
        typed = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        return encode({**typed, "metadata": metadata, "spec": spec})

    def _url(self) -> str:
        return LEASES.path(self._namespace, self._name)

    def _timeout_s(self) -> float:
        """Shorter than the renew deadline, and room for a second attempt before it."""
        limit = self._times.renew_deadline_s / 2
        remaining = self.remaining_s()
        return max(min(limit, remaining), 0.1) if remaining > 0 else limit

    async def _tell_of_gain(self) -> None:
        """Tell until it is taken: a Service selects nobody, or the leader before, until then."""
        pause_s, before = _TELL_PAUSE_S, None
        while True:
            # A renewal that is late may still come: then we go on leading, and telling.
            error = await self._tell(True) if self.may_write() else NotLeading("renewing")
            if error is None:
                if before is not None:
                    _log.info("leader label written", lease=self._path)
                return
            if before is None:
                text = "leader label not written, trying on"
                _log.warning(text, lease=self._path, error=str(error))
            before = error
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _TELL_PAUSE_MAX_S)

    async def _tell(self, is_leader: bool) -> Exception | None:
        """Return why it was not taken, or None."""
        if self._on_change is None:
            return None
        try:
            async with asyncio.timeout(_TELL_TIMEOUT_S):
                await self._on_change(is_leader)
        except TimeoutError:
            return TimeoutError(f"no answer within {_TELL_TIMEOUT_S:g} s")
        except (KubeError, msgspec.DecodeError) as error:
            return error
        return None


def _lease(body: bytes) -> Lease:
    try:
        return decode(body, Lease)
    except msgspec.DecodeError as error:
        raise KubeError(f"not a Lease: {error}") from error


def _has_lost(working: "asyncio.Future[None]") -> bool:
    """Whether the work was ended by the guard, alone or in each of its tasks."""
    error = None if working.cancelled() else working.exception()
    if isinstance(error, BaseExceptionGroup):
        return error.split(NotLeading)[1] is None
    return isinstance(error, NotLeading)


async def _cancelled(task: "asyncio.Future[None]") -> None:
    """End a task; what it raised meanwhile is logged here, or raised by who awaits it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("ended by an error", error=repr(error))
