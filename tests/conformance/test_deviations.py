"""The deliberate differences are rules that speak of something, and of nothing unmarked."""

import os

import pytest

from tests.conformance import (
    adapter_deviations,
    hpa_deviations,
    template_deviations,
    vpa_deviations,
)
from tests.conformance.cases import cases, deviations
from tests.conformance.deviation_counts import counts

MODULES = {
    "hpa": hpa_deviations,
    "vpa": vpa_deviations,
    "adapter": adapter_deviations,
    "templates": template_deviations,
}
IS_OURS = not os.environ.get("PODSCALE_CASES")


@pytest.mark.parametrize("product", MODULES)
def test_every_rule_is_listed_with_its_reason(product):
    assert set(deviations(product)) == set(MODULES[product].RULES)
    assert all(len(reason) > 20 for reason in deviations(product).values())


@pytest.mark.skipif(not IS_OURS, reason="other files need not show every difference")
def test_every_rule_changes_what_some_case_expects():
    silent = {p: [rule for rule, count in of.items() if not count] for p, of in counts().items()}
    assert silent == {product: [] for product in MODULES}


def test_no_rule_speaks_of_a_case_that_is_not_marked():
    for case in cases("vpa.yaml", only=lambda case: case["compat"] == "parity"):
        assert vpa_deviations.rule_of(case) is None
    for case in cases("hpa.yaml", "hpa-executed.yaml", only=lambda case: "compat" not in case):
        assert hpa_deviations.rule_of(case) is None
