"""Lists heed what they were narrowed to: by RBAC, by selectors, by pages."""

from typing import Any

import msgspec
import pytest

from podscale.explain.decision_api import Key, ListSelection, listed, made
from podscale.serving.apis.api import ApiRequest, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info
from podscale.serving.status import Status
from tests.unit.loop_turns import others

KEYS: list[Key] = [(f"ns-{n % 3}", f"web-{n}") for n in range(10)]


def asked(path: str = "/things", **query: str) -> ListSelection | Status:
    path = f"/apis/example.io/v1{path}"
    values = {key: [value] for key, value in query.items()}
    return listed(
        ApiRequest(
            "GET", path, request_info("GET", path, values), values, {}, b"", ANONYMOUS_USER,
            Media(), 0.0,
        )
    )  # fmt: skip


def taken(found: ListSelection | Status) -> list[Key]:
    assert isinstance(found, ListSelection)
    return [key for key in KEYS if found.takes(key, {"app": key[1]})]


@pytest.mark.parametrize(
    ("path", "query", "names"),
    [
        pytest.param("/things", {}, range(10), id="all"),
        pytest.param("/namespaces/ns-1/things", {}, (1, 4, 7), id="one-namespace"),
        pytest.param("/things", {"labelSelector": "app in (web-2,web-3)"}, (2, 3), id="labels"),
        pytest.param("/things", {"fieldSelector": "metadata.name=web-4"}, (4,), id="name"),
        pytest.param("/things", {"fieldSelector": "metadata.name==web-4"}, (4,), id="twice-equal"),
        pytest.param(
            "/things",
            {"fieldSelector": "metadata.namespace!=ns-0,metadata.namespace!=ns-1"},
            (2, 5, 8),
            id="not-there",
        ),
        pytest.param(
            "/things",
            # RBAC was asked about the first, so nothing else may come.
            {"fieldSelector": "metadata.name=web-4,metadata.name=web-5"},
            (),
            id="no-object-has-two-names",
        ),
        pytest.param(
            "/namespaces/ns-1/things", {"fieldSelector": "metadata.namespace=ns-2"}, (), id="other"
        ),
    ],
)
def test_only_what_is_asked_for_is_taken(path: str, query: dict[str, str], names: Any) -> None:
    assert taken(asked(path, **query)) == [KEYS[n] for n in names]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"fieldSelector": "spec.mode=Off"}, "field label not supported: spec.mode"),
        ({"fieldSelector": "metadata.name"}, "can't understand 'metadata.name'"),
        ({"labelSelector": "a==b==c"}, ""),
        ({"limit": "many"}, "limit=many is not a number"),
        ({"continue": "%%"}, "invalid continue token"),
        ({"continue": "bm90aGluZw=="}, "invalid continue token"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused(query: dict[str, str], says: str) -> None:
    found = asked(**query)
    assert isinstance(found, Status)
    assert (found.code, says in found.message) == (400, True)


def test_pages_follow_each_other_until_everything_was_told_once() -> None:
    told: list[Key] = []
    query = {"limit": "4"}
    counts = []
    while True:
        found = asked(**query)
        assert isinstance(found, ListSelection)
        page = found.page(KEYS)
        told += page.keys
        counts.append(page.metadata.get("remainingItemCount"))
        if "continue" not in page.metadata:
            break
        query["continue"] = page.metadata["continue"]
    assert told == sorted(KEYS)
    assert counts == [6, 2, None]


async def test_others_get_their_turn_while_a_long_list_is_made() -> None:
    def make(key: Key) -> dict[str, str] | None:
        sum(range(50_000))  # a millisecond, as an explanation takes
        return None if key == KEYS[0] else {"name": key[1]}

    async with others() as turns:
        found = await made(KEYS * 10, make)
    assert turns.taken > 3
    assert len(found) == 90  # what is gone meanwhile is left out
    assert msgspec.json.decode(msgspec.json.encode(found))[0] == {"name": "web-1"}
