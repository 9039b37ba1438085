"""Bad weather on demand: what the sandbox does wrong, to whom, and how often.

Set in process (``server.faults.add``) or over HTTP (``POST /sandbox/faults``).
"""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import Struct

from podscale.sandbox.auth import Request
from podscale.sandbox.errors import bad_request, conflict, expired
from podscale.sandbox.http.bodies import as_json, read_object
from podscale.serving import status
from podscale.serving.status import Details, Status, StatusError

PATH = "/sandbox/faults"

Kind = Literal[
    "latency",  # answers after ``seconds``
    "status",  # answers ``code`` (429 with Retry-After ``seconds``)
    "conflict",  # answers 409 to updates and patches
    "gone",  # answers 410 to lists with a continue token and to watches
    "cut",  # closes the connection without an answer: a partition
    "hang",  # never answers
    "mute",  # watches stay open and say nothing
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

    def is_mute(self, asked: Request) -> bool:
        """Return whether this watch must say nothing now."""
        return any(fault.kind == "mute" and _applies(fault, asked) for fault in self._faults)

    async def suffer(self, asked: Request) -> None:
        """Do to a request what the first fault that applies says."""
        fault = self._hit(asked)
        if fault is None:
            return
        match fault.kind:
            case "latency":
                await asyncio.sleep(fault.seconds)
            case "status" if fault.code == 429:
                message = "The apiserver is overloaded, please try again later."
                details = Details(retry_after_seconds=int(fault.seconds))
                raise StatusError(
                    Status(message=message, reason="TooManyRequests", details=details, code=429)
                )
            case "status":
                message = "the sandbox was told to fail"
                raise StatusError(
                    Status(message=message, reason="ServiceUnavailable", code=fault.code)
                )
            case "conflict":
                raise conflict(asked.resource, asked.target.name)
            case "gone":
                raise expired("too old resource version")
            case "cut":
                if asked.http.transport is not None:
                    asked.http.transport.abort()
                raise StatusError(status.unavailable("cut"))
            case "hang":
                await asyncio.Event().wait()

    async def change(self, request: web.BaseRequest) -> web.Response:
        """Answer a request to ``PATH``."""
        if request.method == "POST":
            body = await read_object(request)
            kind = body.get("kind")
            if kind == "cut-watches":
                self.cut_watches()
            elif kind == "compact":
                self.compact()
            else:
                try:
                    self.add(msgspec.convert(body, Fault))
                except msgspec.ValidationError as error:
                    raise bad_request(str(error)) from None
        elif request.method == "DELETE":
            self.clear()
        return as_json({"faults": msgspec.to_builtins(self.all())})

    def _hit(self, asked: Request) -> Fault | None:
        for fault in self._faults:
            if fault.kind != "mute" and fault.count != 0 and _applies(fault, asked):
                fault.hits += 1
                fault.count -= fault.count > 0
                return fault
        return None


def _applies(fault: Fault, asked: Request) -> bool:
    target = asked.target
    verbs = fault.verbs
    if fault.kind == "conflict" and not verbs:
        verbs = _WRITES
    if fault.kind == "gone" and not verbs:
        verbs = ("watch",)
    if verbs and asked.verb not in verbs:
        return False
    pairs = (
        (fault.resource, asked.resource if target.is_resource else target.path),
        (fault.subresource, target.subresource),
        (fault.name, target.name),
        (fault.user, asked.user.name),
    )
    if any(wanted and wanted != held for wanted, held in pairs):
        return False
    return fault.user_agent in asked.http.headers.get("User-Agent", "")
