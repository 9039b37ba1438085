"""A moment is told as an age or as a time with its zone."""

import pytest

from podscale.core.times.duration import read_time


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("1m30s", 910.0),
        ("1970-01-01T00:10:00Z", 600.0),
        ("1970-01-01T01:10:00 01:00", 600.0),  # a "+" that was not escaped
        ("1970-01-01 00:10:00Z", 600.0),
        ("1970-01-01T00:10:00", None),
        ("soon", None),
    ],
)
def test_times_as_people_write_them(text: str, time_s: float | None) -> None:
    assert read_time(text, 1000.0) == time_s
