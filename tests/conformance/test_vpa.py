"""The VPA's decisions against cases executed by upstream's own code.

Every case must give what upstream gave; of a ``known_defect`` a rule of ``vpa_deviations``
may say what is expected instead.
"""

import pytest

from tests.conformance.cases import Case, cases, params
from tests.conformance.vpa_cases import KINDS
from tests.conformance.vpa_compare import differences
from tests.conformance.vpa_deviations import expected_of
from tests.conformance.vpa_shared import Given, Json


def found(case: Case) -> Json:
    return KINDS[case["kind"]](Given(case["inputs"]), Given(case["expected"]))


def different(case: Case, expected: Json) -> list[str]:
    return differences(case["kind"], expected, found(case), case["inputs"].get("pod"))


@pytest.mark.parametrize("case", params(cases("vpa.yaml")))
def test_case(case: Case) -> None:
    expected = expected_of(case)
    if expected is None:  # upstream panics: an answer is all that is asked for
        assert found(case)
        return
    wrong = different(case, expected)
    assert not wrong, "\n".join(wrong)
