"""A group of decisions: one object for each decided one, in lists and tables, now or earlier.

Decisions live in the memory of who made them, so that only the leader of a part can answer.
Everybody else answers 503 NotLeader, never an empty list: the Service selects the leader's pod,
and a client that comes too early asks again.
"""

import asyncio
import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from podscale.core.ascii_text import whole_number
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.fields import FieldRequirement, matches
from podscale.core.selectors.fields import parse as parse_fields
from podscale.core.selectors.selector import Selector
from podscale.core.times.duration import read_time
from podscale.core.times.rfc3339 import rfc3339
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause, Status

Key = tuple[str, str]  # namespace, name

_FIELDS = ("metadata.namespace", "metadata.name")  # as in a key


class ObjectPage(Struct, frozen=True):
    """A part of a list, and its ListMeta."""

    keys: Sequence[Key]
    metadata: Mapping[str, Any]


class ListSelection(Struct, frozen=True):
    """What one list request asks for."""

    namespace: str  # empty: all
    name: str  # the only one that was authorized; empty: all
    labels: Selector
    fields: tuple[FieldRequirement, ...]
    limit: int  # 0: no limit
    after: Key | None  # the last one of the page before

    def takes(self, key: Key, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object is asked for, on whatever page."""
        return (
            self.namespace in ("", key[0])
            and self.name in ("", key[1])
            and matches(self.fields, dict(zip(_FIELDS, key, strict=True)))
            and self.labels.matches(labels or {})
        )

    def page(self, keys: Sequence[Key]) -> ObjectPage:
        """Return the page of ``keys``, all that are asked for in any order, by name."""
        ordered = sorted(keys)
        if self.after is not None:
            ordered = [key for key in ordered if key > self.after]
        if not self.limit or len(ordered) <= self.limit:
            return ObjectPage(ordered, {})
        shown = ordered[: self.limit]
        metadata: dict[str, Any] = {"continue": _token(shown[-1])}
        if not (self.labels.requirements or self.fields):
            # As the API server, which cannot count what a selector leaves.
            metadata["remainingItemCount"] = len(ordered) - self.limit
        return ObjectPage(shown, metadata)


def listed(request: ApiRequest) -> ListSelection | Status:
    """Return what ``request`` asks for, or the 400.

    RBAC judges a list that ``fieldSelector=metadata.name=x`` narrows as the object x, so that a
    role with resourceNames may ask for it: who lists has to heed the name, or such a role reads
    everything. A filter that is not known is refused: ignored, it would show too much.
    """
    text = request.parameter("limit")
    limit = whole_number(text) if text else 0
    if limit is None:
        return status.bad_request(f"limit={text[:40]} is not a number")
    try:
        labels = selectors.parse(request.parameter("labelSelector"))
        fields = parse_fields(request.parameter("fieldSelector"))
        for each in fields:
            if each.field not in _FIELDS:
                raise ValueError(f"field label not supported: {each.field[:200]}")
        after = _last(request.parameter("continue"))
    except ValueError as error:
        return status.bad_request(str(error))
    info = request.info
    return ListSelection(info.namespace, info.name, labels, fields, max(limit, 0), after)


async def made(
    keys: Sequence[Key], make: Callable[[Key], Mapping[str, Any] | None]
) -> list[msgspec.Raw]:
    """Return what ``make`` says of each key, as JSON; None: it is gone meanwhile.

    Others on the loop get their turn between two of them: thousands take seconds, and a Lease
    has to be renewed.
    """
    found: list[msgspec.Raw] = []
    pace = LoopPace()
    for key in keys:
        one = make(key)
        if one is not None:
            found.append(msgspec.Raw(msgspec.json.encode(one)))
        await pace.rest()
    return found


def _token(last: Key) -> str:
    return base64.urlsafe_b64encode("/".join(last).encode()).decode()


def _last(token: str) -> Key | None:
    if not token:
        return None
    try:
        namespace, slash, name = base64.urlsafe_b64decode(token).decode().partition("/")
    except (binascii.Error, ValueError):
        slash = ""
    if not slash:
        raise ValueError("invalid continue token: it is not one of ours")
    return namespace, name


RETRY_S = 1
_AHEAD_S = 60.0  # as far as clocks may differ
_LISTS = 2  # made at a time: of ten thousand objects one takes tens of megabytes


class HasDecisionMetadata(Protocol):
    """What is known of one decided object."""

    @property
    def metadata(self) -> dict[str, str]:
        """``decision_metadata`` of it."""


K = TypeVar("K", bound=HasDecisionMetadata)


class DecisionKind(Struct, frozen=True):
    """What the decisions of a group are called, and the columns of their table."""

    group: str
    version: str
    resource: ApiResource
    columns: tuple[tuple[str, str, int], ...]  # name, description, priority

    def object(
        self, metadata: Mapping[str, str], spec: Mapping[str, Any], told: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return one decision; ``told`` is its status."""
        return {
            "kind": self.resource.kind,
            "apiVersion": f"{self.group}/{self.version}",
            "metadata": metadata,
            "spec": spec,
            "status": told,
        }

    def listing(self, items: Sequence[Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": f"{self.resource.kind}List",
            "apiVersion": f"{self.group}/{self.version}",
            "metadata": metadata,
            "items": items,
        }

    def table(self, rows: Sequence[Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [
                {
                    "name": name,
                    "type": "string",
                    "format": "name" if name == "Name" else "",
                    "description": description,
                    "priority": priority,
                }
                for name, description, priority in self.columns
            ],
            "rows": rows,
        }


def decision_metadata(name: str, namespace: str, time_s: float) -> dict[str, str]:
    """Return the metadata of a decision about an object of this name."""
    return {"name": name, "namespace": namespace, "creationTimestamp": rfc3339(time_s)}


class DecisionApi(ABC, Generic[K]):
    """An ``ApiGroup`` of one version and one resource, over what its leader knows of each decided
    object, a ``K``: get and list.
    """

    def __init__(
        self,
        kind: DecisionKind,
        is_leader: Callable[[], bool],
        *,
        refusal: str,
        wall: Callable[[], float],
    ) -> None:
        """``refusal`` is said by who does not lead."""
        self._kind = kind
        self._is_leader = is_leader
        self._refusal = refusal
        self._wall = wall
        self._lists = asyncio.Semaphore(_LISTS)

    @property
    def name(self) -> str:
        return self._kind.group

    @property
    def versions(self) -> Sequence[str]:
        return (self._kind.version,)

    @property
    def offers_table(self) -> bool:
        """``kubectl get`` shows one."""
        return True

    def revision(self) -> Hashable:
        """Discovery never changes."""
        return 0

    def resources(self, version: str) -> Sequence[ApiResource]:
        return (self._kind.resource,)

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """None: the facts of an explanation differ from reason to reason."""
        return {}

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer, or say why not."""
        info = request.info
        if info.resource != self._kind.resource.name or info.subresource:
            return status.path_not_found()
        # Nor "proxy", which an old form of path names and RBAC judges apart.
        if request.method != "GET" or info.verb not in ("get", "list"):
            return status.method_not_allowed()
        if not self._is_leader():
            return self._not_leading()
        if info.verb == "list":
            return self._in_turn(request)
        answer = self._answered(request)
        return answer if isinstance(answer, ApiResponse | Status) else self._finished(answer)

    async def _in_turn(self, request: ApiRequest) -> Answered:
        async with self._lists:
            answer = self._answered(request)
            if isinstance(answer, ApiResponse | Status):
                return answer
            return await self._finished(answer)

    async def _finished(self, answer: Awaitable[Answered]) -> Answered:
        found = await answer
        # What was known may have been dropped while the answer was being made.
        return found if self._is_leader() else self._not_leading()

    def _not_leading(self) -> Status:
        return status.unavailable(
            self._refusal,
            causes=(Cause(reason="NotLeader", message="another replica holds the Lease"),),
            retry_after_s=RETRY_S,
        )

    @abstractmethod
    def _decided(self, wanted: ListSelection) -> Sequence[Key] | Status:
        """Return the objects of a list that have been decided on."""

    @abstractmethod
    def _known(self, key: Key) -> K | Status:
        """Return what is known, or why nothing is."""

    @abstractmethod
    def _earlier(self, known: K, time_s: float) -> K | Mapping[str, Any] | None:
        """Return what was known at a time, or its object; None: that is not known any more."""

    @abstractmethod
    def _known_since(self, key: Key) -> float | None:
        """Return since when ``_earlier`` knows something."""

    @abstractmethod
    def _body(self, known: K) -> dict[str, Any]:
        """Return the object."""

    @abstractmethod
    def _cells(self, known: K) -> list[str]:
        """Return its row."""

    def _whole(self, known: K) -> Answered | Awaitable[Answered]:
        """Answer with one object, and what has to be read for it."""
        return ApiResponse(value=self._body(known))

    def _answered(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        return self._one(request) if request.info.verb == "get" else self._list(request)

    def _one(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        key = (request.info.namespace, request.info.name)
        known = self._known(key)
        if isinstance(known, Status):
            return known
        text = request.parameter("at")
        if text:
            found = self._at(key, known, text)
            if isinstance(found, Status):
                return found
            if isinstance(found, Mapping):
                return ApiResponse(value=found)
            known = found
        if request.media.as_table:
            return ApiResponse(value=self._kind.table([self._row(known, request)], {}))
        return ApiResponse(value=self._body(known)) if text else self._whole(known)

    async def _list(self, request: ApiRequest) -> Answered:
        wanted = listed(request)
        if isinstance(wanted, Status):
            return wanted
        decided = self._decided(wanted)
        if isinstance(decided, Status):
            return decided
        page = wanted.page(decided)
        as_table = request.media.as_table

        def make(key: Key) -> dict[str, Any] | None:
            known = self._known(key)
            if isinstance(known, Status):
                return None  # gone meanwhile
            return self._row(known, request) if as_table else self._body(known)

        put_together = self._kind.table if as_table else self._kind.listing
        return ApiResponse(value=put_together(await made(page.keys, make), page.metadata))

    def _row(self, known: K, request: ApiRequest) -> dict[str, Any]:
        """Return the row, with the whole object where clients ask for it, to sort by it."""
        body: dict[str, Any] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": known.metadata,
        }
        if request.parameter("includeObject") == "Object":
            body = self._body(known)
        return {"cells": self._cells(known), "object": body}

    def _at(self, key: Key, known: K, text: str) -> K | Mapping[str, Any] | Status:
        now = self._wall()
        time_s = asked_time(text, now)
        if isinstance(time_s, Status):
            return time_s
        found = self._earlier(known, time_s)
        if found is not None:
            return found
        since = rfc3339(self._known_since(key) or now)
        text = (
            f"no decisions of {key[1]} before {since}: only recent ones are kept (8 KB per object, "
            "lost on restart or leader change)"
        )
        return status.not_found(text, name=key[1], group=self._kind.group)


def not_decided_yet(text: str) -> Status:
    """Return the refusal of a leader that has just begun; ``text`` says what it waits for."""
    cause = Cause(reason="NotDecidedYet", message="the leader has just begun")
    return status.unavailable(text, causes=(cause,), retry_after_s=RETRY_S)


def asked_time(text: str, now: float) -> float | Status:
    """Return the unix seconds that ``?at=`` asks for, or why that is no time to be asked for."""
    time_s = read_time(text, now)
    if time_s is None:
        return status.bad_request(
            f"at={text} is neither a time (2026-11-21T10:00:00Z) nor an age (5m)"
        )
    if time_s > now + _AHEAD_S:
        return status.bad_request(f"at={text} lies ahead: it is {rfc3339(now)}")
    return time_s
