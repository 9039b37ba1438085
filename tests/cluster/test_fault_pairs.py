"""Two faults at once on the real plane: no error changes a size, and afterwards all goes on."""

import os
from pathlib import Path

import pytest

from tests.cluster.fault_pairs import drawn, prepared, suffer
from tests.cluster.plane import Plane

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
PAIRS = 4 if IS_SHORT else 30
SEED = int(os.environ.get("PODSCALE_SEED", "20261128"))
LASTS_S = 8.0  # longer than a Lease
SIZES = (6, 3)  # in turn: it has to grow and to shrink again

pytestmark = pytest.mark.timeout(PAIRS * 90 + 120)


def test_two_faults_at_once_change_no_size_and_end_with_both_replicas_at_work(
    plane: Plane, tmp_path: Path
) -> None:
    with prepared(plane, tmp_path, SIZES[1], SEED) as stage:
        for number, pair in enumerate(drawn(SEED, PAIRS)):
            what = f"pair {number} of seed {SEED}, {' and '.join(pair)}"
            before = stage.size()
            suffer(stage, pair, LASTS_S)
            assert stage.size() == before, f"{what}\n{stage.stack.tails()}"
            stage.load(SIZES[number % 2])
            stage.wait_size(SIZES[number % 2])
            for replica in range(2):
                stage.stack.wait_serving(replica, 60.0)
            print(f"{what}: held {before[0]}, then {stage.size()[0]}")
