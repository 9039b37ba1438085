"""How long a watch may be believed, and for how long it has not been."""

import math
from collections.abc import Sequence

from podscale.kube.client.errors import ApiUnreachable
from podscale.kube.client.wire import PartialObjectMetadata
from podscale.kube.informer.freshness import FreshnessTracker
from podscale.kube.informer.list_watch import (
    Happening,
    ListBegan,
    ListEnded,
    ListPage,
    WatchAlive,
    WatchBroken,
)

SILENT = WatchBroken("silent", ApiUnreachable("silent", is_timeout=True))
FAILED = WatchBroken("GET: etcd cannot read one of them")

Object = PartialObjectMetadata


def tracker(*scopes: str) -> FreshnessTracker:
    return FreshnessTracker(scopes or ("",))


def note(
    known: FreshnessTracker, now: float, *happenings: Happening[Object], scope: str = ""
) -> None:
    for each in happenings:
        known.note(each, scope=scope, now=now)


def listed() -> Sequence[Happening[Object]]:
    return ListBegan(), ListPage([], "1"), ListEnded("1")


def test_a_watch_is_doubted_from_its_silence_to_the_next_list() -> None:
    known = tracker()
    for began in (0.0, 182.0):
        note(known, began, *listed(), WatchAlive("1", 100.0))
        assert known.facts(began + 100.0).doubted_s == 0.0
        note(known, began + 100.5, SILENT)
        assert known.facts(began + 181.5).doubted_s == 81.5


def test_a_list_that_fails_at_a_later_page_is_no_sign_of_life() -> None:
    known = tracker()
    note(known, 0.0, *listed(), WatchAlive("1", 90.0))
    for at in range(10, 400, 30):
        note(known, at, ListBegan(), ListPage([], "2"), FAILED)
    assert known.facts(400.0).doubted_s == 390.0


def test_a_poll_that_fails_at_a_later_page_lets_the_last_list_grow_older() -> None:
    known = tracker()
    note(known, 0.0, ListBegan(), ListPage([], "1"), ListEnded("1"))
    note(known, 0.0, WatchAlive("1", 120.0, is_poll=True))
    for at in range(30, 200, 30):
        note(known, at, ListBegan(), ListPage([], "2"), FAILED)
    assert known.is_current(120.0)
    assert not known.is_current(121.0)
    assert known.facts(200.0).doubted_s == 80.0


def test_a_first_list_is_doubted_since_it_was_read() -> None:
    known = tracker()
    assert known.facts(1000.0).doubted_s == math.inf
    note(known, 1000.0, *listed())
    assert known.facts(1001.0).doubted_s == 1.0


def test_the_scope_that_is_doubted_for_longest_counts() -> None:
    known = tracker("a", "b")
    for scope in ("a", "b"):
        note(known, 0.0, *listed(), WatchAlive("1", 90.0), scope=scope)
    note(known, 20.0, SILENT, scope="b")
    note(known, 50.0, WatchAlive("1", 90.0), scope="a")
    assert known.facts(60.0).doubted_s == 40.0


def test_what_was_read_while_a_watch_was_doubted_is_not_believed_afterwards() -> None:
    known = tracker("a", "b")
    for scope in ("a", "b"):
        note(known, 10.0, *listed(), WatchAlive("1", 90.0), scope=scope)
    assert not known.is_current(12.0, since=9.0)
    assert known.is_current(12.0, since=11.0)
    note(known, 20.0, SILENT, scope="b")
    note(known, 30.0, *listed(), WatchAlive("2", 90.0), scope="b")
    note(known, 40.0, WatchAlive("3", 90.0), scope="b")  # a bookmark, and no new beginning
    assert not known.is_current(50.0, since=25.0)
    assert known.is_current(50.0, since=35.0)


def test_a_watch_that_spoke_after_its_silence_is_believed_from_then_on() -> None:
    known = tracker()
    note(known, 0.0, *listed(), WatchAlive("1", 90.0))
    note(known, 100.0, WatchAlive("2", 90.0))
    assert known.is_current(101.0)
    assert not known.is_current(101.0, since=95.0)


def test_a_scope_in_doubt_is_one_for_its_own_namespace_only() -> None:
    known = tracker("shop", "bank")
    for scope in ("shop", "bank"):
        note(known, 0.0, *listed(), WatchAlive("1", 90.0), scope=scope)
    note(known, 20.0, SILENT, scope="bank")
    assert known.is_current(30.0, namespace="shop")
    assert not known.is_current(30.0, namespace="bank")
    assert not known.is_current(30.0, namespace="elsewhere")  # of which it knows nothing
    assert not known.is_current(30.0)
    everywhere = tracker()
    note(everywhere, 0.0, *listed())
    assert not everywhere.is_current(0.0, namespace="shop")
