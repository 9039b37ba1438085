"""The VPA's decisions on random inputs, beside the original's own code called in process.

The inputs and the comparison are those of the conformance cases; what the file recorded for
these kinds is asked first, so that the program is known to answer as the file was made.
"""

import json
import os
import re
from collections import Counter
from random import Random

import pytest

from tests.cluster import (
    vpa_admission_draws,
    vpa_history_draws,
    vpa_recommender_draws,
    vpa_updater_draws,
)
from tests.cluster.vpa_executed import execute, program
from tests.conformance.cases import Case, cases
from tests.conformance.vpa_cases import KINDS
from tests.conformance.vpa_compare import differences
from tests.conformance.vpa_refused import without_refused
from tests.conformance.vpa_shared import Given

pytestmark = pytest.mark.timeout(1200)  # the first time, Go builds what executes

SHORT, LONG = 400, 5_000  # of each kind

DRAWN = (vpa_admission_draws, vpa_recommender_draws, vpa_history_draws, vpa_updater_draws)
DRAWS = {kind: draw for each in DRAWN for kind, draw in each.DRAWS.items()}
DEVIATIONS = {kind: known for each in DRAWN for kind, known in each.DEVIATIONS.items()}
CHANGES = vpa_admission_draws.CHANGES
OURS = {**KINDS, **vpa_history_draws.KINDS}


def question(case: Case) -> Case:
    """Return the case with the percentiles that it reads, which stand in its answer."""
    read = [each["p"] for each in case["expected"].get("percentiles", ())]
    return {**case, "inputs": {**case["inputs"], "percentiles": read}}


# Shares of what may be left out; by deviation as measured, for the rest 5 %.
MOST = {
    "panic": 0.12,
    "inplace_resource_patch D11": 0.15,
    "recommendation D12": 0.12,
    "recommendation D6, D7": 0.12,
    "aggregate_gc D6": 0.16,
    "disruption_sequence D2": 0.1,
}


def nothing(told: Case) -> str:
    """Return how the original came to nothing: it died, gave up, or wants less than nothing.

    A share of less than a byte comes to -1 there, which an API server refuses.
    """
    if "upstream_panics" in told:
        return "panic"
    if isinstance(told.get("error"), str):
        return "error"
    return "negative" if re.search(r'"(cpu|memory|value)": "-1"', json.dumps(told)) else ""


@pytest.mark.parametrize("kind", DRAWS)
def test_the_original_answers_the_cases_as_they_were_recorded(kind: str) -> None:
    recorded = cases("vpa.yaml", only=lambda case: case["kind"] == kind)
    told = execute(program(), [question(case) for case in recorded])
    different = [
        f"{case['id']}: {difference}"
        for case, found in zip(recorded, told, strict=True)
        if "upstream_panics" not in case["expected"]
        for difference in differences(kind, case["expected"], found)
    ]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("kind", DRAWS)
def test_random_inputs_come_to_what_the_original_makes_of_them(kind: str) -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    asked = [
        {"kind": kind, "inputs": DRAWS[kind](Random(f"{kind} {seed}"))}
        for seed in range(start, start + count)
    ]
    differing, left_out = [], Counter[str]()
    for seed, (case, told) in enumerate(zip(asked, execute(program(), asked), strict=True), start):
        if reason := nothing(told):
            left_out[reason] += 1
            continue
        expected = without_refused(kind, case["inputs"], told)
        if kind in CHANGES:
            expected = CHANGES[kind](case["inputs"], expected)
        different = differences(kind, expected, OURS[kind](Given(case["inputs"]), Given(expected)))
        if not different:
            continue
        known = DEVIATIONS.get(kind, {}).items()
        deviation = next((name for name, fits in known if fits(case["inputs"])), "")
        if deviation:
            left_out[deviation] += 1
        else:
            differing.append(f"seed {seed}: {different}")
    print(f"{kind}: {count} from seed {start}, left out {dict(left_out)}, {len(differing)} differ")
    assert not differing, "\n".join(differing[:10])
    too_many = {
        reason: number
        for reason, number in left_out.items()
        if number > count * MOST.get(f"{kind} {reason}", MOST.get(reason, 0.05))
    }
    assert not too_many
