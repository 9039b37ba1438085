"""Bad weather on demand: what the sandbox does wrong, to whom, and how often.

Set in process (``server.faults.add``) or over HTTP (``POST /sandbox/faults``).
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "latency",  # answers after ``seconds``
    "status",  # answers ``code`` (429 with Retry-After ``seconds``)
    "conflict",  # answers 409 to updates and patches
    "gone",  # answers 410 to lists with a continue token and to watches
    "cut",  # closes the connection without an answer: a partition
    "hang",  # never answers
    "mute",  # watches stay open and say nothing
    "slow-body",  # sends the answer's head, then waits ``seconds``
]
_WRITES = ("update", "patch")


class Fault(Struct, kw_only=True):
    """One thing that goes wrong. Empty fields match everything."""

    kind: Kind
    verbs: tuple[str, ...] = ()  # get, list, watch, create, update, patch, delete, …
    resource: str = ""  # plural[.group]
    subresource: str = ""
    name: str = ""  # of the object
    user: str = ""
    user_agent: str = ""  # a part of it
    count: int = -1  # how often; below 0 until removed
    code: int = 503
    seconds: float = 1.0
    hits: int = 0  # how often it has happened


class FaultTarget(Struct, frozen=True):
    """What a fault can look at in a request."""

    verb: str
    resource: str
    subresource: str
    name: str
    user: str
    user_agent: str


class Faults:
    """All faults that are set."""

    def __init__(self, cut_watches: Callable[[], None], compact: Callable[[], None]) -> None:
        self._faults: list[Fault] = []
        self.cut_watches = cut_watches  # closes every open watch once
        self.compact = compact  # forgets all history: older watches and pages get 410

    def add(self, fault: Fault) -> Fault:
        """Set a fault and return it; its ``hits`` go on counting."""
        self._faults.append(fault)
        if fault.kind in ("cut", "hang") and (not fault.verbs or "watch" in fault.verbs):
            self.cut_watches()
        return fault

    def remove(self, fault: Fault) -> None:
        """Take one fault back."""
        self._faults = [other for other in self._faults if other is not fault]

    def clear(self) -> None:
        """Good weather."""
        self._faults = []

    def all(self) -> list[Fault]:
        """Return what is set."""
        return list(self._faults)

    def hit(self, asked: FaultTarget) -> Fault | None:
        """Return the first fault that applies to a request, counted, or None."""
        for fault in self._faults:
            if fault.kind != "mute" and fault.count != 0 and _applies(fault, asked):
                fault.hits += 1
                fault.count -= fault.count > 0
                return fault
        return None

    def is_mute(self, asked: FaultTarget) -> bool:
        """Return whether this watch must say nothing now."""
        return any(fault.kind == "mute" and _applies(fault, asked) for fault in self._faults)


def _applies(fault: Fault, asked: FaultTarget) -> bool:
    verbs = fault.verbs
    if fault.kind == "conflict" and not verbs:
        verbs = _WRITES
    if fault.kind == "gone" and not verbs:
        verbs = ("watch",)
    if verbs and asked.verb not in verbs:
        return False
    pairs = (
        (fault.resource, asked.resource),
        (fault.subresource, asked.subresource),
        (fault.name, asked.name),
        (fault.user, asked.user),
    )
    if any(wanted and wanted != held for wanted, held in pairs):
        return False
    return fault.user_agent in asked.user_agent
