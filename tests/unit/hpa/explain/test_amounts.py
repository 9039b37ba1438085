"""Amounts as people read them."""

import pytest

from hpa.explain.reading import amount


@pytest.mark.parametrize(
    ("milli", "name", "shown"),
    [
        pytest.param(14_424, "http_requests_per_second", "14.424", id="no milli-units"),
        pytest.param(12_000, "queue", "12", id="whole"),
        pytest.param(300, "load", "0.3", id="below one"),
        pytest.param(-1_050, "drift", "-1.05", id="negative"),
        pytest.param(1_234_567_890, "bytes", "1234567.89", id="large"),
        pytest.param(0, "queue", "0", id="nothing"),
        pytest.param(250, "cpu", "250m", id="cpu as in manifests"),
        pytest.param(2_000_000, "cpu", "2000", id="whole cores"),
        pytest.param(64 * 1024**2 * 1000, "memory", "64Mi", id="memory"),
    ],
)
def test_an_amount_reads_as_its_unit_is_written(milli: int, name: str, shown: str) -> None:
    assert amount(milli, name) == shown
