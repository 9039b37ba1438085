"""Decisions kept for questions: the last in full, before it those at which something changed.

A change is another size decided, or other steps on the way to it; in between the kept
trace speaks for the passes that followed. Packed are the inputs alone: the steps follow from them.
"""

import zlib
from collections.abc import Callable
from functools import cache
from typing import Protocol, get_args

import msgspec
from msgspec import Struct, structs

from hpa.decide import conditions as words
from hpa.decide import replay
from hpa.decide.decision import Trace
from hpa.decide.metrics.measuring import Valid
from hpa.decide.observation import Past, Scale
from hpa.decide.steps import Measured
from hpa.history.last_trace import LastTrace, encode
from hpa.machine.record import Key

MOST = 32
MOST_BYTES = 8 * 1024  # packed, per autoscaler
MOST_UNPACKED = 1000  # autoscalers that change from pass to pass, each a few KB more
_KEPT_SHAPES = 10_000
_SMALL = 7 * 1024  # what it is told against lies within a window of 8 KB
_OFTEN_S = 60.0  # what changed so lately will change again
_RAW = -15  # deflate without zlib's header and sum: ten bytes of two hundred


_decoder = msgspec.msgpack.Decoder(Trace)

Shape = tuple[object, ...]


class Packed(Struct, frozen=True, gc=False):
    """One decision, and when it was made."""

    at: float
    reason: str
    body: bytes  # told against the next newer decision; the newest stands alone, packed or not


class AutoscalerLog:
    """The traces of one autoscaler."""

    __slots__ = ("at", "decided", "last", "newest", "older", "reason", "shape", "since")

    def __init__(self, first: Trace) -> None:
        self.at = first.now
        self.decided: int | None = None
        self.last = LastTrace.of(first)
        self.shape: Shape = ()
        self.reason = ""
        self.older: tuple[Packed, ...] = ()  # a deque alone is of 0.7 KB
        self.newest: bytes | None = None  # the last of ``older`` as it is, until the next decision
        self.since = first.now  # nothing is known before

    def add(self, trace: Trace, *, may_wait: bool = False) -> None:
        """Keep a decision at which something changed; the oldest ones make room for it.

        ``may_wait``: it is not packed yet, if the next decision, too, may be a change.
        """
        plain = encode(trace)
        older = list(self.older)
        changes_often = bool(older) and trace.now - older[-1].at < _OFTEN_S
        if older:
            # Each is told against its newer neighbour, which has the same pods, status and
            # recommendations but for a few: so the oldest can go, and nothing leans on it.
            body = _packed(self._newest(), plain)
            older[-1] = structs.replace(older[-1], body=body)
        else:
            self.since = trace.now  # what came before was too large to be kept
        older.append(Packed(trace.now, self.reason, b""))
        self.older, self.newest = tuple(older), plain
        if may_wait and changes_often and len(plain) <= _SMALL:
            self._make_room(trace.now)
        else:
            self.settle()

    def settle(self) -> None:
        """Pack the newest one alone. It is packed anew at the next change."""
        if self.newest is None:
            return
        # Until the next change only: not worth the search for the best.
        body = _packed(self.newest, _dictionary(), level=3)
        self.newest = None
        if self.older:
            self.older = (*self.older[:-1], structs.replace(self.older[-1], body=body))
            self._make_room(self.older[-1].at)

    def _newest(self) -> bytes:
        return self.newest or _plain(self.older[-1].body, _dictionary())

    def _make_room(self, now: float) -> None:
        older = list(self.older)
        size = sum(len(each.body) for each in older)
        while older and (len(older) > MOST or size > MOST_BYTES):
            size -= len(older.pop(0).body)
            self.since = older[0].at if older else now
        self.older = tuple(older)

    def known_since(self) -> float:
        """Return since when there is an answer: of pods by the thousand only the last is kept."""
        return self.since if self.older else self.at

    def before(self, time_s: float) -> Trace | None:
        """Return the newest kept change that is not after ``time_s``."""
        plain = b""
        for each in reversed(self.older):
            plain = _plain(each.body, plain) if plain else self._newest()
            if each.at <= time_s:
                return _whole(_decoder.decode(plain))
        return None


class Follower(Protocol):
    """Who is told of every decision, from the pass that made it."""

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        """A decision was kept."""
        ...

    def forgotten(self, key: Key | None) -> None:
        """The autoscaler is gone; None: another leader decides from now on."""
        ...


class DecisionLog:
    """The traces of all autoscalers."""

    def __init__(self, first_reason: Callable[[Trace], str]) -> None:
        self._first_reason = first_reason
        self._kept: dict[Key, AutoscalerLog] = {}
        self._shapes: dict[Shape, Shape] = {}  # equal ones are one object
        self._unpacked = 0  # autoscalers whose newest change is not packed yet
        self.follower: Follower | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: Key, trace: Trace, after: Past | None = None) -> str:
        """Keep one decision; returns its first reason, computed only where steps changed.

        ``after`` is its past with the decision in it, where somebody keeps that anyway.
        """
        reason = self._keep(key, trace, after)
        if self.follower is not None:
            self.follower.decided(key, trace, reason)
        return reason

    def _keep(self, key: Key, trace: Trace, after: Past | None) -> str:
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = AutoscalerLog(trace)
        kept.at = trace.now
        if trace.decided is not None and _came_to_its_end(trace):
            kept.decided = trace.decided
        kept.last = LastTrace.of(trace, after)
        shape = shape_of(trace)
        if shape == kept.shape:
            self._settle(kept)
            return kept.reason
        if len(self._shapes) >= _KEPT_SHAPES:
            self._shapes.clear()
        kept.shape = self._shapes.setdefault(shape, shape)
        kept.reason = self._first_reason(trace)
        # Ten thousand may change together, at a start or an outage.
        was_unpacked = kept.newest is not None
        may_wait = was_unpacked or self._unpacked < MOST_UNPACKED
        kept.add(trace, may_wait=may_wait)
        self._unpacked += (kept.newest is not None) - was_unpacked
        return kept.reason

    def _settle(self, kept: AutoscalerLog) -> None:
        if kept.newest is not None:
            kept.settle()
            self._unpacked -= 1

    def last(self, key: Key) -> Trace | None:
        """Return the newest trace."""
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
        if kept is None or time_s < kept.known_since():
            return None
        if kept.at <= time_s:
            return self.last(key)
        return kept.before(time_s)

    def known_since(self, key: Key) -> float | None:
        """Return since when ``at`` can answer."""
        kept = self._kept.get(key)
        return None if kept is None else kept.known_since()

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
        self._unpacked = 0
        if self.follower is not None:
            self.follower.forgotten(None)


def _came_to_its_end(trace: Trace) -> bool:
    return trace.outcome is None or trace.outcome.scale in ("written", "not_tried")


def _whole(trace: Trace) -> Trace:
    """Return a trace that was kept without its steps as it was."""
    made = replay(trace).trace
    return structs.replace(made, outcome=trace.outcome, outcome_at=trace.outcome_at)


def _packed(plain: bytes, against: bytes, *, level: int = 6) -> bytes:
    # Tables as small as will do: they are filled with zeros for each trace.
    is_small = max(len(plain), len(against)) < _SMALL
    bits, tables = (-13, 6) if is_small else (_RAW, 8)
    packer = zlib.compressobj(level, wbits=bits, memLevel=tables, zdict=against)
    return packer.compress(plain) + packer.flush()


def _plain(packed: bytes, against: bytes) -> bytes:
    plain = zlib.decompressobj(wbits=_RAW, zdict=against)
    return plain.decompress(packed) + plain.flush()


# Of a steady autoscaler.
_SAID = (
    "AbleToScale", "True", "ReadyForNewScale", words.READY, "SucceededGetScale", words.GOT_SCALE,
    "ScalingActive", "ValidMetricFound", words.FOUND, "pods metric ", "external metric ",
    "cpu resource utilization (percentage of request)", "ScalingLimited", "False",
    "DesiredWithinRange", words.LIMIT_TEXT["DesiredWithinRange"], "TooFewReplicas",
    words.LIMIT_TEXT["TooFewReplicas"], "TooManyReplicas", words.LIMIT_TEXT["TooManyReplicas"],
    "ScaleDownStabilized", words.HELD_UP, "WithinTolerance", "TargetMissed", "AverageValue",
    "Utilization", "Resource", "Pods", "External", "Percent", "Deployment", "apps/v1",
)  # fmt: skip


@cache
def _dictionary() -> bytes:
    """What every trace is full of, so that one trace alone compresses well: field names, and
    what conditions say."""
    names: list[str] = [*_SAID]
    waiting: list[type[Struct]] = [Trace]
    seen: set[type[Struct]] = set()
    while waiting:
        struct = waiting.pop()
        if struct in seen:
            continue
        seen.add(struct)
        names += ["type", struct.__name__, *(field.name for field in structs.fields(struct))]
        for field in structs.fields(struct):
            waiting += _structs_in(field.type)
    return b"".join(bytes([0xA0 | min(len(name), 31)]) + name.encode() for name in names[::-1])


def _structs_in(kind: object) -> list[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [kind]
    return [each for part in get_args(kind) for each in _structs_in(part)]


def shape_of(trace: Trace) -> Shape:
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
                steps.append((result.cause, step.fallback))
        else:
            steps.append(type(step))
    return tuple(steps)
