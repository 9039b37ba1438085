"""Everything that happens to a resource, as one endless stream: list, watch, again.

Four nested generators, each with one duty (the shape is kopf's): for ever, list and
watch, watch from connection to connection, one connection. A broken stream never
surfaces as an exception: it becomes ``Broken`` and another attempt.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from podscale.kube.api import Api
from podscale.kube.resource import Resource
from podscale.kube.wire import HasMetadata

T = TypeVar("T", bound=HasMetadata)
Kind = Literal["ADDED", "MODIFIED", "DELETED"]


class Rhythm(Struct, frozen=True):
    """The times of listing and watching."""

    page_size: int = 500
    list_timeout_s: float = 60.0
    watch_timeout_s: float = 300.0  # asked of the server; jittered up to twice
    silence_s: float = 90.0  # bookmarks come every minute; longer silence is a dead stream
    backoff_s: float = 0.5  # first pause after a failure, doubled with jitter ...
    backoff_max_s: float = 30.0  # ... up to this
    poll_s: float = 30.0  # between lists where watching is forbidden or not offered


DEFAULT_RHYTHM = Rhythm()


class Source(Struct, Generic[T], frozen=True):
    """What to list and watch."""

    resource: Resource
    type: type[T]
    namespace: str = ""  # "" is all namespaces
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False
    rhythm: Rhythm = DEFAULT_RHYTHM


class Listing(Struct, frozen=True):
    """A list begins: from here to ``Listed`` the picture is not current."""


class Page(Struct, Generic[T], frozen=True):
    """A part of a list."""

    items: Sequence[T]


class Listed(Struct, frozen=True):
    """The list is whole: what was not in its pages is gone."""

    resource_version: str


class Changes(Struct, Generic[T], frozen=True):
    """Events of a watch that arrived together, in order."""

    events: Sequence[tuple[Kind, T]]


class Alive(Struct, frozen=True):
    """The watch stands, or a bookmark came."""

    resource_version: str


class Broken(Struct, frozen=True):
    """The picture is growing old: what failed, in words."""

    reason: str


Happening = Listing | Page[T] | Listed | Changes[T] | Alive | Broken


def happenings(api: Api, source: Source[T]) -> AsyncIterator[Happening[T]]:
    """Yield what happens to ``source`` for ever; ends only by cancellation."""
    raise NotImplementedError
