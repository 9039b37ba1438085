"""Who does a job does not matter; who dies at one is replaced."""

import os
import signal
from itertools import count, islice
from pathlib import Path

import pytest

from podscale.replay.inputs import ReplayError
from podscale.replay.parallel import over_cores


def squared(shared: int, job: int) -> int:
    return shared + job * job


def dies_once(folder: Path, job: int) -> int:
    """Kill the process at the first attempt at job 3, and at every one at job 5."""
    mark = folder / str(job)
    if job in (3, 5) and (job == 5 or not mark.exists()):
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return job


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_answers_come_in_the_order_of_the_jobs(workers, start):
    found = list(over_cores(squared, 7, range(20), workers, start))
    assert found == [7 + job * job for job in range(20)]


def test_jobs_are_taken_as_they_are_needed():
    """A thousand histories at once would be gigabytes."""
    taken = []
    found = over_cores(squared, 0, (taken.append(job) or job for job in count()), 2)
    assert list(islice(found, 10)) == [job * job for job in range(10)]
    assert len(taken) <= 10 + 2 * 2
    found.close()


def test_a_job_whose_process_dies_is_done_again_and_fails_alone(tmp_path):
    found = list(over_cores(dies_once, tmp_path, range(9), 2))
    assert [each for each in found if not isinstance(each, ReplayError)] == [
        0, 1, 2, 3, 4, 6, 7, 8
    ]  # fmt: skip
    assert isinstance(found[5], ReplayError)
    assert "memory" in str(found[5])
