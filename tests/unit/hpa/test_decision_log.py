"""Which decisions are kept, for how long, and that they replay."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from hpa.decide.api.spec import MetricSpec
from hpa.decide.decision import Outcome, Trace
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide, replay
from hpa.decide.settings import Settings
from hpa.history.decision_log import DecisionLog, encode, shape_of
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample, Unavailable
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.samplecolumns import SampleColumns
from podscale.core.times.rfc3339 import rfc3339
from podscale.explain.decision_history import MOST, MOST_BYTES
from podscale.feed.http import refusals
from podscale.feed.outage import OutageWatch
from podscale.kube.client.wire import Quantity
from podscale.kube.columns.pod_set import template
from podscale.kube.objects.pod import (
    Container,
    PodSpec,
    ResizePolicy,
    ResourceRequirements,
    TemplateContainer,
    WirePodTemplate,
)
from tests.unit.hpa.days import day
from tests.unit.hpa.hpas import PLAIN_HPA

KEY = ("shop", "web")
NOW = 1_795_000_000.0
NAMES = tuple(f"web-{n}" for n in range(4))
PODS = Pods(
    NAMES, bytes([PodPhase.RUNNING] * 4), bytes([PodReadiness.TRUE] * 4), bytes(4),
    (NOW - 9e3,) * 4, (NOW - 8e3,) * 4, (0,) * 4,
)  # fmt: skip


def decided(load: int, at: float = NOW) -> Trace:
    return of_pods(PODS, load, at)


def of_pods(pods: Pods, load: int = 2000, at: float = NOW) -> Trace:
    hpa = structs.replace(PLAIN_HPA, metrics=PLAIN_HPA.metrics[:1], max_replicas=10_000)
    answers = (PodSamples({name: Sample(load, at) for name in NAMES}, at),)
    observation = Observation(hpa, Scale(4, 4, "app=web"), pods, answers)
    return decide(observation, Past(), Settings(), at).trace


def packed(trace: Trace) -> Trace | None:
    """Keep one, and a later one, and return the first as it is told then."""
    traces = DecisionLog()
    traces.put(KEY, trace)
    traces.put(KEY, decided(9000, trace.now + 600))
    return traces.at(KEY, trace.now + 1)


def test_a_packed_trace_is_the_same_trace_and_decides_the_same() -> None:
    conflict = Outcome("conflict", "no")
    trace = structs.replace(decided(2000), outcome=conflict, outcome_at=NOW + 0.5)
    again = packed(trace)
    assert again == trace
    assert again.steps
    assert replay(again).replicas == 8


def test_amounts_of_more_than_64_bits_are_kept_as_what_decisions_read_of_them() -> None:
    amounts: dict[str, Quantity] = {"cpu": "500m", "memory": "64Gi"}  # 7e19 nano-units
    app = Container("app", ResourceRequirements(amounts, amounts), (ResizePolicy("cpu"),))
    whole = ResourceRequirements(amounts, amounts)
    wire = PodSpec((app,), (structs.replace(app, restart_policy="Always"),), whole, priority=7)
    milli = {"cpu": 500, "memory": 64 * 2**30 * 1000}
    read = WirePodTemplate(
        (TemplateContainer("app", milli),),
        (TemplateContainer("app", milli, is_sidecar=True),),
        milli,
    )
    trace, expected = (
        of_pods(structs.replace(PODS, templates=(each,))) for each in (template(wire), read)
    )
    assert packed(trace) == expected
    assert encode(trace) == encode(expected)


def test_numbers_of_other_classes_are_kept_as_plain_ones() -> None:
    class Seconds(float):
        """As a provider of another package might count."""

    traces = DecisionLog()
    traces.put(KEY, decided(2000, Seconds(NOW)))
    last = traces.last(KEY)
    assert last is not None
    assert last == decided(2000)
    assert packed(decided(2000, Seconds(NOW))) == decided(2000)


def test_since_when_the_source_is_silent_is_kept_once_it_is_known() -> None:
    watch, traces = OutageWatch(), DecisionLog()
    hpa = structs.replace(PLAIN_HPA, metrics=PLAIN_HPA.metrics[:1])
    for second in range(0, 60, 10):
        failed = watch.failed(refusals.error("deadline"), NOW + second, NOW + second + 9)
        observation = Observation(hpa, Scale(4, 4, "app=web"), PODS, (failed.failure,))
        traces.put(KEY, decide(observation, Past(), Settings(), NOW + second).trace)
    traces.put(KEY, decided(2000, NOW + 60))
    assert len(traces.changes(KEY)) == 3  # it fails, it is an outage, it is over
    for second, is_known in ((1, False), (31, True)):
        found = traces.at(KEY, NOW + second)
        assert found is not None
        (answer,) = found.observation.answers
        assert isinstance(answer, Unavailable)
        assert (f"(since {rfc3339(NOW)})" in answer.message) is is_known


def test_passes_that_decide_alike_keep_only_the_last() -> None:
    traces = DecisionLog()
    for n in range(100):
        traces.put(KEY, decided(1000 + n % 50, NOW + n))
    assert len(traces.changes(KEY)) == 1
    last = traces.last(KEY)
    assert last is not None
    assert last.now == NOW + 99
    assert traces.at(KEY, NOW + 50) == decided(1000, NOW)  # it spoke for the passes after it


def test_the_decision_in_force_at_a_time_is_found_and_before_that_nothing() -> None:
    traces = DecisionLog()
    for n, load in enumerate((1000, 2000, 1000, 500)):
        traces.put(KEY, decided(load, NOW + 60 * n))
    at_70 = traces.at(KEY, NOW + 70)
    assert at_70 is not None
    assert at_70.decided == 8
    assert traces.at(KEY, NOW - 1) is None
    assert traces.known_since(KEY) == NOW
    assert [reason for _, reason in traces.changes(KEY)][:2] == [
        "WithinTolerance", "MetricAboveTarget",
    ]  # fmt: skip


def test_history_is_bounded_in_number_and_bytes_and_says_since_when() -> None:
    traces = DecisionLog()
    for n in range(200):
        traces.put(KEY, decided(2000 + 1000 * n, NOW + n))
    kept = traces.changes(KEY)
    assert 10 < len(kept) <= MOST
    assert traces.known_since(KEY) == kept[0][0]
    assert sum(len(each.body) for each in traces.of(KEY).older) <= MOST_BYTES


@pytest.mark.parametrize(("pods", "metrics", "least"), [
    pytest.param(3, 1, 32, id="a-plain-one-keeps-all"),
    pytest.param(3, 3, 20, id="three-metrics"),
    pytest.param(10, 1, 20, id="ten-pods"),
    pytest.param(10, 3, 10, id="ten-pods-three-metrics"),
    pytest.param(50, 1, 5, id="fifty-pods"),
])  # fmt: skip
def test_a_day_keeps_so_many_decisions_and_each_is_the_same_again(
    pods: int, metrics: int, least: int
) -> None:
    # The figures of docs/explain.md.
    traces = DecisionLog()
    made: list[Trace] = []
    fewest = MOST
    for trace in day(pods, metrics, passes=240):
        if not made or shape_of(trace) != shape_of(made[-1]):
            made.append(trace)
        traces.put(KEY, trace)
        assert sum(len(each.body) for each in traces.of(KEY).older) <= MOST_BYTES
        if len(made) > MOST:
            fewest = min(fewest, len(traces.changes(KEY)))
    assert len(made) > MOST
    assert fewest >= least
    kept = traces.changes(KEY)
    assert [at for at, _ in kept] == [each.now for each in made[-len(kept) :]]
    for trace in made[-fewest:]:
        assert traces.at(KEY, trace.now) == trace
        assert replay(trace).trace.decided == trace.decided
    traces.forget(KEY)
    assert traces.last(KEY) is None
    assert traces.known_since(KEY) is None


def test_of_pods_by_the_thousand_only_the_last_decision_is_known_and_since_when_says_so() -> None:
    traces = DecisionLog()
    for turn, trace in enumerate(day(2000, 1, passes=2)):
        traces.put(KEY, trace)
        assert traces.changes(KEY) == []
        assert traces.known_since(KEY) == trace.now, turn
        assert traces.at(KEY, trace.now) == trace
        assert traces.at(KEY, trace.now - 1) is None


def test_after_decisions_too_large_to_be_kept_the_first_that_is_says_since_when() -> None:
    traces = DecisionLog()
    large = day(2000, 1, passes=1)[0]
    traces.put(KEY, large)
    small = structs.replace(day(3, 1, passes=1)[0], now=large.now + 100)
    traces.put(KEY, small)
    assert traces.known_since(KEY) == small.now
    assert traces.at(KEY, small.now - 50) is None
    assert traces.at(KEY, small.now) == small


class Followed:
    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def decided(self, key: tuple[str, str], trace: Trace, reason: str) -> None:
        self.told.append((reason, trace.decided))

    def forgotten(self, key: tuple[str, str] | None) -> None:
        self.told.append(("forgotten", key))


def test_the_size_shown_is_of_the_last_pass_that_came_to_its_end() -> None:
    traces = DecisionLog()
    assert traces.decided(KEY) is None
    traces.put(KEY, decided(2000))
    assert traces.decided(KEY) == 8
    refused = structs.replace(decided(1000, NOW + 15), outcome=Outcome("failed", "no"))
    unmeasured = structs.replace(decided(1000, NOW + 30), decided=None)
    for trace in (refused, unmeasured):
        traces.put(KEY, trace)
        assert traces.decided(KEY) == 8
    traces.put(KEY, decided(1000, NOW + 45))
    assert traces.decided(KEY) == 4


def test_a_follower_hears_every_decision_even_those_that_change_nothing() -> None:
    traces = DecisionLog()
    traces.follower = followed = Followed()
    for load in (1000, 1010, 2000):
        traces.put(KEY, decided(load))
    traces.forget(KEY)
    traces.clear()
    assert followed.told == [
        ("WithinTolerance", 4), ("WithinTolerance", 4), ("MetricAboveTarget", 8),
        ("forgotten", KEY), ("forgotten", None),
    ]  # fmt: skip


@pytest.mark.parametrize("ages", [(5, 5, 5, 5), (5, 6, 7, 8), (5, 5, 5, math.nan)], ids=str)
def test_the_last_one_is_whole_with_samples_in_columns_too(ages: tuple[float, ...]) -> None:
    def columns(load: int) -> PodSamples:
        values = array("q", [load] * 4).tobytes()
        times = array("d", [NOW - age for age in ages]).tobytes()
        return PodSamples(SampleColumns(NAMES, values, times, 30.0), NOW)

    trace = decided(2000)
    seen = structs.replace(trace.observation, answers=(columns(2000),))
    trace = decide(seen, Past(), Settings(), NOW).trace
    traces = DecisionLog()
    traces.put(KEY, structs.replace(trace, outcome=Outcome("conflict", "no"), outcome_at=NOW + 1))
    last = traces.last(KEY)
    assert last is not None
    assert last == structs.replace(trace, outcome=Outcome("conflict", "no"), outcome_at=NOW + 1)
    assert packed(trace) == trace
    traces.put(KEY, decide(
        structs.replace(seen, answers=(columns(1000),)), Past(), Settings(), NOW + 15).trace
    )  # fmt: skip
    changed = traces.last(KEY)
    assert changed is not None
    assert changed.decided == 4


def test_many_external_series_are_kept_like_few() -> None:
    class Lazily(Sequence[ExternalSample]):
        def __len__(self) -> int:
            return 300

        def __getitem__(self, place: Any) -> Any:
            if not 0 <= place < 300:
                raise IndexError
            return ExternalSample({"shard": str(place)}, Sample(1000, NOW))

    spec = MetricSpec("External", "queue", target_type="AverageValue", average_value_milli=50_000)
    hpa = structs.replace(PLAIN_HPA, metrics=(spec,))
    seen = Observation(hpa, Scale(4, 4, "app=web"), PODS, (ExternalSamples(Lazily(), NOW),))
    trace = decide(seen, Past(), Settings(), NOW).trace
    traces = DecisionLog()
    traces.put(KEY, trace)
    last = traces.last(KEY)
    assert last is not None
    assert (last.decided, last.steps) == (trace.decided, trace.steps)
    assert replay(last).replicas == 6
