"""HPA and VPA together converge where apart they drift: production's loads, eight days of each."""

import os

import numpy as np
import pytest

from tests.integration.coordination import DAYS, Story, Verdict, loads, row, run
from tests.integration.crane import ROOT

STORY = Story()
MOST_CHANGES_A_DAY = 0.2
LEARNING_DAYS = 2
DOCUMENT = ROOT / "docs" / "coordination.md"


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[Verdict, Verdict]]:
    """Return the HPA alone and the two together, by series."""
    return {
        name: (run(STORY, cores, ""), run(STORY, cores, "coordinated"))
        for name, cores in loads().items()
    }


@pytest.mark.timeout(600)
def test_replicas_end_within_the_comfort_band(pairs):
    low, high = STORY.comfort
    assert {name: together.replicas for name, (_, together) in pairs.items()
            if not low <= together.replicas <= high} == {}  # fmt: skip


def test_requests_hardly_change_after_the_second_day(pairs):
    late = {
        name: sum(at > LEARNING_DAYS * 86400.0 for at in together.changes)
        for name, (_, together) in pairs.items()
    }
    assert max(late.values()) / (DAYS - LEARNING_DAYS) <= MOST_CHANGES_A_DAY, late


def test_a_fifth_of_the_cores_is_saved_and_nothing_is_served_less(pairs):
    cores = {name: together.cores / alone.cores for name, (alone, together) in pairs.items()}
    more = [together.unserved - alone.unserved for alone, together in pairs.values()]
    assert float(np.median(list(cores.values()))) <= 0.8, cores
    assert max(cores.values()) <= 1.02, cores
    assert float(np.median(more)) <= 0.0, more


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_document_shows_these_runs_and_the_drift_of_two_that_ignore_each_other(pairs):
    shown = DOCUMENT.read_text().splitlines()
    apart = []
    for name, cores in list(loads().items())[: 1 if os.environ.get("PODSCALE_SHORT") else None]:
        alone, together = pairs[name]
        apart.append(run(STORY, cores, "vpa"))
        assert row(name, (alone, apart[-1], together)) in shown
    assert float(np.median([each.replicas for each in apart])) > STORY.comfort[1]
