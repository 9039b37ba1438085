"""Sentences agree in number with what they tell of."""

import pytest

from hpa.decide import Observation, Settings, decide
from hpa.decide.pods import Ready
from hpa.explain import explain
from tests.unit.hpa.decide.situations import (
    NOW,
    cpu,
    listed,
    per_pod,
    pod,
    remembered,
    seen,
    usage,
    web,
)


def words(observation: Observation, *entries: tuple[int, float]) -> str:
    found = explain(decide(observation, remembered(*entries), Settings(), NOW).trace)
    return " ".join([*found.sentences, found.change])


JOB = pod(owner="Job/web")
ONE_FOREIGN = seen(web(cpu(50)), 2, listed(pod(), JOB), [usage(900, 90)])
TWO_FOREIGN = seen(web(cpu(50)), 3, listed(pod(), JOB, JOB), [usage(900, 90, 90)])
ONE_SILENT = seen(web(per_pod(1000)), 2, listed(pod(), pod()), [usage(1500, None)])
TWO_SILENT = seen(web(per_pod(1000)), 3, listed(pod(), pod(), pod()), [usage(1500, None, None)])
ONE_UNREADY = seen(web(cpu(50)), 2, listed(pod(), pod(ready=Ready.FALSE)), [usage(600, 900)])
ONE_GONE = seen(web(per_pod(1000)), 1, listed(pod()), [usage(1500, 100)])


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (ONE_FOREIGN, "web-1 belongs to Job/web and is counted"),
        (TWO_FOREIGN, "web-1, web-2 belong to Job/web and are counted"),
        (ONE_SILENT, "web-1 reports the metric."),
        (TWO_SILENT, "web-1, web-2 report the metric."),
        (ONE_UNREADY, "web-1 becomes ready"),
        (ONE_GONE, "still tell of web-1, which does not exist"),
    ],
)
def test_one_is_told_as_one_and_two_as_two(observation: Observation, expected: str) -> None:
    assert expected in words(observation)


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (120.0, "leaves the window, at the earliest in 3 min, or"),
        (300.0, "leaves the window, which it does with the next pass, or"),
    ],
)
def test_a_window_that_ends_now_is_not_told_to_end_in_no_time(age_s: float, expected: str) -> None:
    idle = seen(web(cpu(50)), 4, listed(*[pod()] * 4), [usage(*[50] * 4)])
    assert expected in words(idle, (4, age_s))
