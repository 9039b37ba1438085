"""Which objects of a list a request asks for, and a page of them at a time.

RBAC judges a list that ``fieldSelector=metadata.name=x`` narrows as the object x, so that a
role with resourceNames may ask for it: who lists has to heed the name, or such a role reads
everything. A filter that is not known is refused: ignored, it would show too much.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from podscale.core.ascii_text import whole_number
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import Selector
from podscale.serving import status
from podscale.serving.apis.api import ApiRequest
from podscale.serving.status import Status

Key = tuple[str, str]  # namespace, name

_FIELDS: Mapping[str, Literal[0, 1]] = {"metadata.namespace": 0, "metadata.name": 1}


class _Field(Struct, frozen=True):
    place: Literal[0, 1]  # in a key
    value: str
    is_wanted: bool  # False: every other value is


class ObjectPage(Struct, frozen=True):
    """A part of a list, and its ListMeta."""

    keys: Sequence[Key]
    metadata: Mapping[str, Any]


class ListSelection(Struct, frozen=True):
    """What one list request asks for."""

    namespace: str  # empty: all
    name: str  # the only one that was authorized; empty: all
    labels: Selector
    fields: tuple[_Field, ...]
    limit: int  # 0: no limit
    after: Key | None  # the last one of the page before

    def takes(self, key: Key, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object is asked for, on whatever page."""
        return (
            self.namespace in ("", key[0])
            and self.name in ("", key[1])
            and all((key[each.place] == each.value) is each.is_wanted for each in self.fields)
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
    """Return what ``request`` asks for, or the 400."""
    text = request.parameter("limit")
    limit = whole_number(text) if text else 0
    if limit is None:
        return status.bad_request(f"limit={text[:40]} is not a number")
    try:
        labels = selectors.parse(request.parameter("labelSelector"))
        fields = _fields(request.parameter("fieldSelector"))
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


def _fields(text: str) -> tuple[_Field, ...]:
    # fields.ParseSelector; names and namespaces hold nothing that would have to be escaped.
    found = []
    for term in text.split(","):
        if not term.strip():
            continue
        name, equals, value = term.partition("=")
        if not equals:
            raise ValueError(f"invalid selector: '{text[:200]}'; can't understand '{term[:200]}'")
        is_wanted = not name.endswith("!")
        name = name.removesuffix("!").strip()
        place = _FIELDS.get(name)
        if place is None:
            raise ValueError(f"field label not supported: {name[:200]}")
        found.append(_Field(place, value.removeprefix("=").strip(), is_wanted))
    return tuple(found)


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
