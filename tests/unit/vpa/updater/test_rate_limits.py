"""Rate, windows and daily budget."""

from datetime import UTC, datetime

import pytest

from podscale.core.disruptions import PaceError, pace_of
from vpa.updater.decide.disruption_budget import EvictionRate, rate_limit

WINDOWS = "vpa.podscale.io/disruption-windows"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("windows", "moment", "inside"),
    [
        ("Mon-Fri 09:00-17:00", "2026-03-09T09:00:00", True),
        ("Mon-Fri 09:00-17:00", "2026-03-09T17:00:00", False),
        ("Mon-Fri 09:00-17:00", "2026-03-08T12:00:00", False),
        ("Sun 22:00-05:00", "2026-03-08T23:00:00", True),
        ("Sun 22:00-05:00", "2026-03-09T04:59:59", True),
        ("Sun 22:00-05:00", "2026-03-09T23:00:00", False),
        ("Fri-Mon 00:00-24:00", "2026-03-08T23:59:59", True),
        ("Fri-Mon 00:00-24:00", "2026-03-10T00:00:00", False),
        ("Mon 10:00-11:00 Europe/Berlin", "2026-03-09T09:30:00", True),
        ("Mon 10:00-11:00 Europe/Berlin", "2026-03-09T10:30:00", False),
        ("Mon 01:00-02:00; Tue 01:00-02:00", "2026-03-10T01:30:00", True),
    ],
)
def test_windows(windows: str, moment: str, inside: bool) -> None:
    held = pace_of({WINDOWS: windows}).allows(at(moment), 0)
    assert (held is None) == inside


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ; ",
        "Mon",
        "Mo 10:00-11:00",
        "Mon 10-11",
        "Mon 10:00",
        "Mon 10:00-11:00 Nowhere/Land",
        "a b c d",
        ";".join(["Mon 10:00-11:00"] * 80),
    ],
)
def test_a_window_that_cannot_be_read_names_its_annotation(text: str) -> None:
    with pytest.raises(PaceError, match="disruption-windows"):
        pace_of({WINDOWS: text})


@pytest.mark.parametrize("text", ["-1", "few", "1.5", ""])
def test_a_daily_budget_is_a_number(text: str) -> None:
    with pytest.raises(PaceError, match="per-day"):
        pace_of({"vpa.podscale.io/max-disruptions-per-day": text})


@pytest.mark.parametrize(
    ("rate", "burst", "limit"),
    [(-1, 5, EvictionRate(None, 0)), (0, 1, EvictionRate(None, 0)), (0.5, 2, EvictionRate(0.5, 2))],
)
def test_a_rate_of_nothing_is_no_limit(rate: float, burst: int, limit: EvictionRate) -> None:
    assert rate_limit(rate, burst) == limit
