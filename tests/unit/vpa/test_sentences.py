"""Amounts in the sentences of a SizingDecision are for people, those of its facts for programs."""

import pytest

from vpa import sizing


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("memory", "865936536", "825.82Mi"),
        ("memory", "100", "100"),
        ("memory", "512Mi", "512Mi"),
        ("cpu", "1000", "1000"),
        ("memory", None, ""),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(
    resource: str, amount: str | None, shown: str
) -> None:
    assert sizing._readable(resource, amount) == shown
