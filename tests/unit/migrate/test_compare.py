"""Side by side: where KEDA and the migrated HPA part."""

from pathlib import Path

import pytest

from podscale.migrate.outcome import Comparable, comparison
from tests.kit.migrating import migrate

INPUTS = Path(__file__).parent / "inputs"


def comparable(name: str) -> Comparable:
    (found,) = migrate((INPUTS / f"keda-{name}.yaml").read_text()).compared
    return found


@pytest.mark.parametrize(("name", "values", "old", "new"), [
    pytest.param("minimal", [450.0], 5, 5, id="the-same-number"),
    pytest.param("minimal", [], 0, None, id="silence-scaled-in-and-now-holds"),
    pytest.param("minimal", [float("nan")], 0, None, id="nan-scaled-in-and-now-holds"),
    pytest.param("minimal", [1e9], 100, 100, id="within-the-maximum"),
    pytest.param("minimal", [100.0, 300.0], None, 4, id="several-elements-are-added-up"),
    pytest.param("fallback-static", [], 6, 6, id="the-fallback-stands-in-for-both"),
    pytest.param("fallback-static", [0.0], 2, 2, id="a-real-zero-scales-in"),
])  # fmt: skip
def test_moments(name, values, old, new):
    compared = comparable(name)
    assert comparison(compared, {compared.metrics[0].name: values}) == (old, new)


def test_what_depends_on_the_size_is_left_out_and_said():
    assert list(comparable("cpu-memory").left_out) == [
        "Resource", "ContainerResource", "Resource"
    ]  # fmt: skip
