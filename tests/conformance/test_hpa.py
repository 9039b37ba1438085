"""The HPA's decisions against the original's tables and against executed 1.36.3."""

# ruff: noqa: E402 - assertions are rewritten in the module imported after the call below

import math

import pytest

pytest.register_assert_rewrite("tests.conformance.hpa_checks")

from hpa.decide.answers import summed
from hpa.decide.ratios import Tolerance
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case, cases, deviations, params
from tests.conformance.hpa_checks import CHECKS, average_value

ALL = cases("hpa.yaml", "hpa-executed.yaml")


def is_deviation(case: Case) -> bool:
    return case.get("compat") == "upstream_defect"


def test_only_upstream_defects_deviate() -> None:
    marked = {case["id"] for case in cases("hpa.yaml", "hpa-executed.yaml", only=is_deviation)}
    known = {case["id"] for case in ALL}
    assert set(deviations("hpa")) & known <= marked


@pytest.mark.parametrize("case", params([case for case in ALL if not is_deviation(case)]))
def test_case(case: Case) -> None:
    fitting = given.releases(case)
    assert fitting
    for release in fitting:
        CHECKS[case["kind"]]({**case, "release": release}, case["inputs"], case["expected"])


@pytest.mark.parametrize("case", params([case for case in ALL if is_deviation(case)]))
def test_negative_sum_stays_negative(case: Case) -> None:
    inputs = case["inputs"]
    total = summed(inputs["values"])
    found = average_value({**case, "release": given.releases(case)[-1]}, inputs, total)
    assert total == sum(inputs["values"]) < 0
    assert found.replicas <= 0
    assert found.replicas != case["expected"]["replicas"]


def test_exact_ratio_survives_the_float() -> None:
    # The pin behind the tolerance's form: 1.1 is inside, although 1.1 - 1 > 0.1.
    assert Tolerance(0.1, 0.1).holds(1.1)
    assert abs(1 - 1.1) > 0.1
    assert not Tolerance(0.1, 0.1).holds(math.nextafter(1.1, 2))
