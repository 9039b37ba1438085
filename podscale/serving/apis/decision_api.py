"""A group of decisions: one object for each decided one, in lists and tables, now or earlier."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from podscale.core.times.rfc3339 import rfc3339
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.apis.leader_api import RETRY_S, LeaderApi, asked_time
from podscale.serving.apis.list_selection import Key, ListSelection, listed, made
from podscale.serving.status import Cause, Status


class HasDecisionMetadata(Protocol):
    """What is known of one decided object."""

    @property
    def metadata(self) -> dict[str, str]:
        """``decision_metadata`` of it."""


K = TypeVar("K", bound=HasDecisionMetadata)
T = TypeVar("T")


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
        """Return a meta.k8s.io/v1 Table."""
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


class DecisionApi(LeaderApi, Generic[K]):
    """The group over what its leader knows of each decided object, a ``K``."""

    def __init__(
        self,
        kind: DecisionKind,
        is_leader: Callable[[], bool],
        *,
        refusal: str,
        wall: Callable[[], float],
    ) -> None:
        """``refusal`` is said by who does not lead."""
        super().__init__(
            kind.group,
            kind.version,
            kind.resource,
            is_leader=is_leader,
            refusal=refusal,
            answer=self._answered,
        )
        self._kind = kind
        self._wall = wall

    @abstractmethod
    def _one(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer about one object."""

    @abstractmethod
    def _decided(self, wanted: ListSelection) -> Sequence[Key] | Status:
        """Return the objects of a list that have been decided on."""

    @abstractmethod
    def _known(self, key: Key) -> K | None:
        """Return what is known; None: it is gone."""

    @abstractmethod
    def _body(self, known: K) -> dict[str, Any]:
        """Return the object."""

    @abstractmethod
    def _cells(self, known: K) -> list[str]:
        """Return its row."""

    def _answered(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        return self._one(request) if request.info.verb == "get" else self._list(request)

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
            if known is None:
                return None
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

    def _at(
        self, name: str, text: str, find: Callable[[float], T | None], since: float | None
    ) -> T | Status:
        """Return what ``find`` does at the time that ``text`` asks for, or why there is nothing."""
        now = self._wall()
        time_s = asked_time(text, now)
        if isinstance(time_s, Status):
            return time_s
        found = find(time_s)
        if found is not None:
            return found
        text = (
            f"decisions about {name} are known from {rfc3339(since or now)} on: the last "
            "changes are kept that fit into 8 KB, and none over a restart or a new leader; ask "
            "for a later time"
        )
        return status.not_found(text, name=name, group=self._kind.group)


def not_decided_yet(text: str) -> Status:
    """Return the refusal of a leader that has just begun; ``text`` says what it waits for."""
    cause = Cause(reason="NotDecidedYet", message="the leader has just begun")
    return status.unavailable(text, causes=(cause,), retry_after_s=RETRY_S)
