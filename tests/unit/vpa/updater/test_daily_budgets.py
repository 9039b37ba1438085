"""The day's disruptions as they stand on a VPA."""

from typing import Any

import pytest

from podscale.kube.client.wire import decode
from podscale.kube.objects.vpa import StoredVpa
from tests.unit.vpa.test_stores import NoKinds
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.decide.disruption_budget import SPENT, EvictionRate, TokenBucket
from vpa.updater.loop.memory import DailyBudgets, hours_of, hours_text

NOON = 1_773_057_600.0  # 2026-03-09T12:00:00Z


def test_what_is_written_is_read_again() -> None:
    hours = {NOON: 3, NOON + 3600.0: 1}
    assert hours_text(hours) == "2026-03-09T12:3, 2026-03-09T13:1"
    assert hours_of({SPENT: hours_text(hours)}) == hours


@pytest.mark.parametrize("text", ["", "x", "2026-03-09T12", "2026-03-09T12:-4", "2026-13-09T12:1"])
def test_what_cannot_be_read_counts_for_nothing(text: str) -> None:
    assert sum(hours_of({SPENT: text}).values()) == 0


def test_one_bad_hour_does_not_hide_the_others() -> None:
    assert hours_of({SPENT: "what, 2026-03-09T12:2"}) == {NOON: 2}


@pytest.mark.parametrize(
    ("rate", "burst", "waits"),
    [
        pytest.param(None, 0, [0.0, 0.0, 0.0], id="no-limit"),
        pytest.param(0.5, 1, [0.0, 2.0, 2.0], id="one-at-a-time"),
        pytest.param(0.5, 2, [0.0, 0.0, 2.0], id="two-at-once"),
    ],
)
def test_tokens(rate: float | None, burst: int, waits: list[float]) -> None:
    tokens, now, found = TokenBucket(EvictionRate(rate, burst)), 100.0, []
    for _ in waits:
        found.append(tokens.wait_s(now))
        now += tokens.wait_s(now)
        tokens.take(now)
    assert found == waits


def test_asking_how_long_it_takes_costs_nothing() -> None:
    tokens = TokenBucket(EvictionRate(0.01, 1))
    tokens.take(0.0)
    # A loop shorter than the wait asks, gives up, and asks again in the next loop.
    assert [tokens.wait_s(now) for now in (0.0, 60.0, 100.0)] == [100.0, 40.0, 0.0]


def test_of_vpas_that_are_gone_only_the_last_day_is_kept() -> None:
    api: Any = None
    stores = VpaStores(api, NoKinds())
    budgets = DailyBudgets(api, stores)
    stores.vpas.accept(decode(b'{"metadata": {"namespace": "shop", "name": "web"}}', StoredVpa))
    for name, hours in {"web": {}, "gone": {NOON: 2}, "unspent": {}}.items():
        budgets._hours[VpaKey("shop", name)] = hours
    budgets.forget(NOON + 3600.0)
    assert [key.name for key in budgets._hours] == ["web", "gone"]
    budgets.forget(NOON + 2 * 86400.0)
    assert [key.name for key in budgets._hours] == ["web"]
