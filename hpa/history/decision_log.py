"""Decisions kept for questions: the last in full, before it those at which something changed.

A change is another size decided, or other steps on the way to it; in between the kept
trace speaks for the passes that followed. Packed are the inputs alone: the steps follow from them.
"""

from typing import Protocol

import msgspec
from msgspec import structs

from hpa.cluster.record import Key
from hpa.decide import replay
from hpa.decide.decision import Trace
from hpa.decide.metrics.measuring import Valid
from hpa.decide.observation import Scale
from hpa.decide.steps import Measured
from hpa.explain import first_reason
from hpa.history.packed_trace import PackedTrace, encode
from podscale.core.change_ring import SMALL, ChangeRing
from podscale.core.metrics import Unavailable

MOST_UNPACKED = 1000  # autoscalers that change from pass to pass, each a few KB more
_OFTEN_S = 60.0  # what changed so lately will change again

_decoder = msgspec.msgpack.Decoder(Trace)


class AutoscalerLog(ChangeRing):
    """The traces of one autoscaler. Of pods by the thousand only the last is kept."""

    __slots__ = ("at", "decided", "last", "reason", "shape")

    def __init__(self, first: Trace, like: bytes) -> None:
        super().__init__(like)
        self.at = first.now
        self.decided: int | None = None  # in a pass that came to its end
        self.last = PackedTrace.of(first)
        self.shape = 0  # the hash of its steps
        self.reason = ""

    @property
    def known_since(self) -> float:
        """Since when there is an answer."""
        return self.older[0].at if self.older else self.at

    def change(self, trace: Trace, *, may_wait: bool) -> None:
        """Keep a decision at which something changed."""
        changes_often = bool(self.older) and trace.now - self.older[-1].at < _OFTEN_S
        self.add(trace.now, self.reason, encode(trace), may_wait=may_wait and changes_often)


class Follower(Protocol):
    """Who is told of every decision, from the pass that made it."""

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        """A decision was kept."""

    def forgotten(self, key: Key | None) -> None:
        """The autoscaler is gone; None: another leader decides from now on."""


class DecisionLog:
    """The traces of all autoscalers."""

    def __init__(self) -> None:
        self._kept: dict[Key, AutoscalerLog] = {}
        self._like = b""  # the first trace of the term: the others are much like it
        self._unpacked = 0  # autoscalers whose newest change is not packed yet
        self.follower: Follower | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: Key, trace: Trace) -> str:
        """Keep one decision; returns its first reason, computed only where steps changed."""
        reason = self._keep(key, trace)
        if self.follower is not None:
            self.follower.decided(key, trace, reason)
        return reason

    def _keep(self, key: Key, trace: Trace) -> str:
        kept = self._kept.get(key)
        if kept is None:
            self._like = self._like or encode(trace)[:SMALL]
            kept = self._kept[key] = AutoscalerLog(trace, self._like)
        kept.at = trace.now
        if trace.decided is not None and _came_to_its_end(trace):
            kept.decided = trace.decided
        kept.last = PackedTrace.of(trace)
        shape = hash(shape_of(trace))
        if shape == kept.shape:
            self._unpacked -= kept.newest is not None
            kept.settle()
            return kept.reason
        kept.shape = shape
        kept.reason = first_reason(trace)
        # Ten thousand may change together, at a start or an outage.
        was_unpacked = kept.newest is not None
        may_wait = was_unpacked or self._unpacked < MOST_UNPACKED
        kept.change(trace, may_wait=may_wait)
        self._unpacked += (kept.newest is not None) - was_unpacked
        return kept.reason

    def last(self, key: Key) -> Trace | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.last.trace()

    def decided(self, key: Key) -> int | None:
        """Return the size decided last, in a pass that came to its end; None: in none yet.

        As upstream's gauge, which neither a metric nor a scale that fails moves.
        """
        kept = self._kept.get(key)
        return None if kept is None else kept.decided

    def reason(self, key: Key) -> str:
        """Return the first reason of the newest trace's steps."""
        kept = self._kept.get(key)
        return "" if kept is None else kept.reason

    def at(self, key: Key, time_s: float) -> Trace | None:
        """Return the trace that was in force at ``time_s``; None: that is not known any more."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.at <= time_s:
            return self.last(key)
        plain = kept.before(time_s)
        if plain is None:
            return None
        found = _decoder.decode(plain)  # without its steps
        made = replay(found).trace
        return structs.replace(made, outcome=found.outcome, outcome_at=found.outcome_at)

    def known_since(self, key: Key) -> float | None:
        """Return since when ``at`` can answer."""
        kept = self._kept.get(key)
        return None if kept is None else kept.known_since

    def changes(self, key: Key) -> list[tuple[float, str]]:
        """Return when something changed and the first reason then, oldest first."""
        kept = self._kept.get(key)
        return [] if kept is None else [(each.at, each.reason) for each in kept.older]

    def forget(self, key: Key) -> None:
        """Drop the traces of a deleted autoscaler."""
        kept = self._kept.pop(key, None)
        self._unpacked -= kept is not None and kept.newest is not None
        if self.follower is not None:
            self.follower.forgotten(key)

    def clear(self) -> None:
        """Drop everything: another leader decides from now on."""
        self._kept.clear()
        self._like, self._unpacked = b"", 0
        if self.follower is not None:
            self.follower.forgotten(None)


def _came_to_its_end(trace: Trace) -> bool:
    return trace.outcome is None or trace.outcome.scale in ("written", "not_tried")


def shape_of(trace: Trace) -> tuple[object, ...]:
    """Return what has to differ for a decision to count as another one."""
    scale = trace.observation.scale
    outcome = trace.outcome
    size = scale.spec_replicas if isinstance(scale, Scale) else None
    steps: list[object] = [
        trace.decided,
        size,
        None if outcome is None else outcome.scale,
    ]
    count = len(trace.observation.pods.names)
    for step in trace.steps:
        if isinstance(step, Measured):
            result = step.result
            if isinstance(result, Valid):
                found, groups = result.calculation, result.calculation.groups
                is_plain = groups is None or groups.ready == count
                buckets = None if is_plain or groups is None else groups.filled
                steps.append((found.replicas, found.outcome, buckets))
            else:
                # An outage becomes known after a while, and then its beginning is told too.
                failure = result.failure
                since_s = failure.since_s if isinstance(failure, Unavailable) else None
                steps.append((result.cause, step.fallback, since_s))
        else:
            steps.append(type(step))
    return tuple(steps)
