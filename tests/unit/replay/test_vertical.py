"""What other settings of the recommender would have requested."""

import numpy as np
import pytest

from podscale.replay.inputs import ReplayError
from podscale.replay.vertical import (
    TODAY,
    SizingCandidate,
    SizingRow,
    candidates,
    history_of,
    replayed,
)
from vpa.model.amounts import Windows
from vpa.model.estimation.recommendation import RecommendedUsage, RecommenderSettings, recommend
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.container_rows import Containers, Intake

MIB = 2.0**20
USUAL = SizingCandidate()


def history(cpu, memory=None, step_s: float = 60.0):
    cpu = np.asarray(cpu, np.float64)
    times = 1_700_000_000.0 + step_s * np.arange(len(cpu))
    usage = {"cpu": {("app", "web-1"): cpu}, "memory": {}}
    if memory is not None:
        usage["memory"]["app", "web-1"] = np.asarray(memory, np.float64)
    return history_of(times, usage)


def row(rows: list[SizingRow], settings: str, resource: str = "cpu") -> SizingRow:
    (found,) = [each for each in rows if (each.settings, each.resource) == (settings, resource)]
    return found


def test_steady_usage_leaves_the_margin_free_and_nothing_moves():
    rows = replayed(history([0.5] * 600), [USUAL], {})
    found = row(rows, USUAL.name)
    assert 0.5 * 1.15 <= found.request <= 0.5 * 1.15 * 1.06  # and the width of a bucket
    assert found.slack == pytest.approx(1 - 0.5 / found.request)
    assert (found.overrun, found.changes_a_day, found.oom_kills) == (0.0, 0.0, None)


def test_a_request_is_what_the_recommender_itself_would_have_said():
    noise = np.random.default_rng(3).gamma(2.0, 0.2, 120)
    rows = replayed(history(noise), [USUAL], {})
    aggregates, pods = Aggregates(), Containers()
    intake = Intake(aggregates, pods)
    columns = aggregates.open(1, 0.0, Windows())
    at = np.array([pods.open(int(columns[0]), Windows())])
    for step, value in enumerate(noise[: history(noise).check_steps]):
        times = np.array([1_700_000_000.0 + 60 * step])
        intake.add("cpu", at, np.array([value]), times, 1.0)
    settings = RecommenderSettings()
    known = aggregates.usage(columns, settings)[0]
    made = recommend([RecommendedUsage("app", known)], settings)
    published = made.amounts["app", "cpu", "target"].published
    assert row(rows, USUAL.name).request == pytest.approx(float(published.milli_int64) / 1000.0)


def test_memory_that_rises_above_its_request_is_counted_once_a_rise():
    memory = np.repeat([300, 2000, 300, 2000], [180, 20, 460, 60]) * MIB
    rows = replayed(history([0.1] * len(memory), memory), [USUAL], {"app": {"memory": 400 * MIB}})
    today = row(rows, TODAY, "memory")
    assert today.oom_kills == 2
    assert today.overrun == pytest.approx(80 / (len(memory) - 60))
    usual = row(rows, USUAL.name, "memory")
    assert usual.oom_kills == 1  # it has learned from the first
    assert usual.changes_a_day > 0


def test_more_margin_never_overruns_more_and_a_percentile_is_a_percentile():
    noise = np.random.default_rng(5).gamma(2.0, 0.2, 2880)
    tried = candidates([0.5, 0.9], [0.0, 0.3], [86400.0])
    rows = replayed(history(noise), tried, {})
    for fraction in (0.5, 0.9):
        low, high = (row(rows, SizingCandidate(fraction, each).name) for each in (0.0, 0.3))
        assert low.request < high.request
        assert low.overrun > high.overrun
    assert row(rows, SizingCandidate(0.5, 0.0).name).overrun > 0.2
    assert row(rows, SizingCandidate(0.9, 0.0).name).overrun < 0.2


def test_half_lives_differ_and_do_not_disturb_each_other():
    grown = [0.2] * 1440 + [0.8] * 2880
    both = candidates([0.9], [0.15], [3600.0, 86400.0])
    together = replayed(history(grown), both, {})
    for each in both:
        assert row(together, each.name) == row(replayed(history(grown), [each], {}), each.name)
    quick, slow = (row(together, each.name) for each in both)
    assert quick.changes_a_day >= slow.changes_a_day


def test_pods_that_come_and_go_are_one_container():
    nan = float("nan")
    times = 1_700_000_000.0 + 60.0 * np.arange(300)
    first = np.array([0.5] * 150 + [nan] * 150)
    second = np.array([nan] * 150 + [0.5] * 150)
    usage = {"cpu": {("app", "a"): first, ("app", "b"): second}, "memory": {}}
    alone = row(replayed(history([0.5] * 300), [USUAL], {}), USUAL.name)
    moved = row(replayed(history_of(times, usage), [USUAL], {}), USUAL.name)
    assert (moved.overrun, moved.changes_a_day) == (alone.overrun, alone.changes_a_day)
    assert moved.request == pytest.approx(alone.request)


def test_what_cannot_be_replayed_is_said():
    with pytest.raises(ReplayError, match="no sample"):
        history_of(np.arange(3.0), {"cpu": {}, "memory": {}})
    with pytest.raises(ReplayError, match="125 combinations"):
        candidates([0.5] * 5, [0.1] * 5, [60.0] * 5)
