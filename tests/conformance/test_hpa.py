"""The HPA's decisions against the original's tables and against executed 1.36.3."""

import math

import pytest

from hpa.decide.metrics.answers import summed
from hpa.decide.metrics.replicas import Tolerance
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case, cases, params
from tests.conformance.hpa_checks import CHECKS, average_value, concluded
from tests.conformance.hpa_deviations import rule_of, sum_of

ALL = cases("hpa.yaml", "hpa-executed.yaml")


@pytest.mark.parametrize("case", params(ALL))
def test_case(case: Case) -> None:
    fitting = given.releases(case)
    assert fitting
    for release in fitting:
        if rule_of(case) is None:
            expected = given.expected(case, release)
            CHECKS[case["kind"]]({**case, "release": release}, case["inputs"], expected)
        else:
            check_negative_sum({**case, "release": release})


def check_negative_sum(case: Case) -> None:
    """The sum is as it is, so the proposal is the smallest there is; and not upstream's."""
    inputs, expected = case["inputs"], case["expected"]
    total = summed(inputs.get("values") or inputs["external_metric"])
    assert total == sum_of(case)
    if case["kind"] == "external_average_value":
        found = average_value(case, inputs, total)
        assert found.replicas <= 0
        assert found.usage <= 0
        assert found.replicas != expected["replicas"]
    elif case["kind"] == "reconcile":
        _, done = concluded(case, inputs)
        assert done.status.desired_replicas < expected["desired_replicas"]
    else:
        with pytest.raises(AssertionError):
            CHECKS[case["kind"]](case, inputs, expected)


def test_exact_ratio_survives_the_float() -> None:
    # The pin behind the tolerance's form: 1.1 is inside, although 1.1 - 1 > 0.1.
    assert Tolerance(0.1, 0.1).holds(1.1)
    assert abs(1 - 1.1) > 0.1
    assert not Tolerance(0.1, 0.1).holds(math.nextafter(1.1, 2))
