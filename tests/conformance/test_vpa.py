"""The VPA's decisions against cases executed by upstream's own code.

Every ``parity`` case must give what upstream gave. A ``known_defect`` case either gives it
too or stands in ``deviations.yaml`` with the reason, and then must really differ.
"""

import os

import pytest

from tests.conformance.cases import Case, cases, deviations, params
from tests.conformance.vpa_cases import KINDS
from tests.conformance.vpa_compare import differences

ALL = cases("vpa.yaml")


def is_defect(case: Case) -> bool:
    return case["compat"] == "known_defect"


DECIDED_KINDS = {
    case["kind"] for case in cases("vpa.yaml", only=is_defect) if case["id"] in deviations("vpa")
}


@pytest.mark.parametrize("case", params([case for case in ALL if not is_defect(case)]))
def test_parity(case: Case) -> None:
    found = KINDS[case["kind"]](case["inputs"], case["expected"])
    different = differences(case["kind"], case["expected"], found)
    assert not different, "\n".join(different)


@pytest.mark.parametrize("case", params([case for case in ALL if is_defect(case)]))
def test_known_defect(case: Case) -> None:
    found = KINDS[case["kind"]](case["inputs"], case["expected"])
    panics = "upstream_panics" in case["expected"]
    different = [] if panics else differences(case["kind"], case["expected"], found)
    if case["id"] in deviations("vpa"):
        assert panics or different, "no longer deviates: take it out of deviations.yaml"
    elif case["id"] in deviations("vpa_matched"):
        assert not different, "\n".join(different)
    else:
        # Not a case of this repository: it must have an answer, and may differ only where
        # a deviation of its kind was decided.
        assert panics or not different or case["kind"] in DECIDED_KINDS, "\n".join(different)


def test_every_known_defect_is_decided() -> None:
    own = {case["id"] for case in ALL if is_defect(case)}
    decided = set(deviations("vpa")) | set(deviations("vpa_matched"))
    assert not set(deviations("vpa")) & set(deviations("vpa_matched"))
    if not os.environ.get("PODSCALE_CASES"):
        assert own == decided
