"""What must hold whatever fails (DESIGN.md, invariants 1 and 2), over random histories."""

import math
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from hpa.decide.api.spec import Behavior, Rules
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Chosen, Corrected, Decision, Measured, Outcome
from hpa.decide.metrics.measuring import Invalid
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.reconcile import decide
from podscale.core.metrics import ExternalSamples, ObjectSample, PodSamples, SampleGap
from podscale.kube.objects.autoscaler import Policy
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW

seeds = st.integers(0, 2**32).map(Random)
PASSES = 12


def decided(draw: Random, seen: Observation) -> Decision:
    return decide(seen, worlds.past(draw, NOW), worlds.settings(draw), NOW)


def failed(decision: Decision) -> bool:
    return any(
        isinstance(step, Measured) and isinstance(step.result, Invalid)
        for step in decision.trace.steps
    )


def is_corrected(decision: Decision) -> bool:
    return any(isinstance(step, Corrected) for step in decision.trace.steps)


@given(seeds)
@settings(max_examples=800, deadline=None)
def test_a_failed_metric_never_shrinks(draw: Random) -> None:
    decision = decided(draw, worlds.observation(draw))
    scale = decision.trace.observation.scale
    if not failed(decision) or not isinstance(scale, Scale):
        return
    if decision.trace.observation.hpa.options.may_lower:
        return  # the user wrote it down
    assert decision.trace.decided is None or decision.trace.decided >= scale.spec_replicas


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_when_every_metric_fails_nothing_moves(draw: Random) -> None:
    seen = worlds.observation(draw)
    hpa = structs.replace(seen.hpa, options=structs.replace(seen.hpa.options, fallbacks=()))
    broken = tuple(worlds.failure(draw) for _ in hpa.metrics)
    decision = decided(draw, structs.replace(seen, hpa=hpa, answers=broken))
    assert decision.replicas is None or is_corrected(decision)


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_a_fallback_lowers_only_where_the_object_allows_it(draw: Random) -> None:
    seen = worlds.observation(draw)
    fallback = worlds.Fallback("replicas", draw.randint(0, 20))
    allowed = draw.random() < 0.5
    opts = worlds.Options(
        fallbacks=tuple((spec.name, fallback) for spec in seen.hpa.metrics), may_lower=allowed
    )
    broken = tuple(worlds.failure(draw) for _ in seen.hpa.metrics)
    hpa = structs.replace(seen.hpa, options=opts)
    decision = decided(draw, structs.replace(seen, hpa=hpa, answers=broken))
    chosen = [step for step in decision.trace.steps if isinstance(step, Chosen)]
    if not chosen or not isinstance(seen.scale, Scale):
        return
    wanted = fallback.replicas if allowed else max(fallback.replicas, seen.scale.spec_replicas)
    assert chosen[0].replicas == wanted
    if not allowed and decision.trace.decided is not None:
        assert decision.trace.decided >= seen.scale.spec_replicas


class History:
    """One HPA over many passes, with a log of every rescale kept apart from ``Past``."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.settings = structs.replace(worlds.settings(draw), mode="replace")
        self.seen = worlds.observation(draw)
        self.hpa = structs.replace(self.seen.hpa, options=worlds.Options())
        self.size = draw.randint(1, 20)
        self.past = Past()
        self.now = NOW
        self.log: list[tuple[float, int, int]] = []

    def step(self) -> Decision:
        listed = worlds.pods(self.draw, min(self.size, 8), self.now)
        answers = tuple(
            worlds.failure(self.draw)
            if self.draw.random() < 0.1
            else worlds.answer(self.draw, spec, listed.names, self.now)
            for spec in self.hpa.metrics
        )
        scale = Scale(self.size, self.size, "app=web")
        seen = structs.replace(
            self.seen, hpa=self.hpa, scale=scale, pods=listed, answers=answers, rivals=()
        )
        decision = decide(seen, self.past, self.settings, self.now)
        outcome = Outcome(self.draw.choice(("written", "written", "written", "failed")))
        done = conclude(decision, outcome, self.now)
        # A restart or a hand-over in the middle must not be noticed.
        self.past = msgspec.msgpack.decode(msgspec.msgpack.encode(done.past), type=Past)
        self.hpa = structs.replace(self.hpa, status=done.status)
        return decision

    def advance(self, decision: Decision) -> None:
        status = self.hpa.status
        if decision.replicas is not None and status.last_scale_s == self.now:
            self.log.append((self.now, self.size, decision.replicas))
            self.size = decision.replicas
        self.now += self.draw.choice((1.0, 15.0, 15.0, 60.0, 400.0))


@given(seeds)
@settings(max_examples=400, deadline=None)
def test_metric_driven_rescales_stay_within_bounds_and_policies(draw: Random) -> None:
    history = History(draw)
    for _ in range(PASSES):
        decision = history.step()
        wanted = decision.replicas
        if wanted is not None and not is_corrected(decision):
            hpa = history.hpa
            assert hpa.min_replicas <= wanted <= hpa.max_replicas
            if hpa.behavior is not None and history.size > 0:
                assert_within(hpa.behavior, history, wanted)
        history.advance(decision)


def assert_within(behavior: Behavior, history: History, wanted: int) -> None:
    is_up = wanted > history.size
    rules = behavior.up if is_up else behavior.down
    allowed = [reach(policy, history, is_up=is_up) for policy in rules.policies]
    assert rules.select != "Disabled"
    if is_up:
        assert wanted <= (min(allowed) if rules.select == "Min" else max(allowed))
    else:
        assert wanted >= (max(allowed) if rules.select == "Min" else min(allowed))


def reach(policy: Policy, history: History, *, is_up: bool) -> int:
    """Return how far ``policy`` lets it go, from the log alone: the size when its period
    began, as our own rescales tell, and from there the change it allows.
    """
    start = history.size
    for at, before, after in history.log:
        if at > history.now - policy.period_seconds:
            start -= after - before
    if policy.type == "Pods":
        return start + policy.value if is_up else start - policy.value
    share = 1 + policy.value / 100 if is_up else 1 - policy.value / 100
    return math.ceil(start * share) if is_up else math.trunc(start * share)


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_recommendations_hold_for_the_whole_window(draw: Random) -> None:
    """Without behavior nothing falls below what was recommended within the flag's window."""
    history = History(draw)
    history.hpa = structs.replace(history.hpa, behavior=None)
    made: list[tuple[float, int]] = []
    for _ in range(PASSES):
        current = history.size
        decision = history.step()
        chosen = [step.replicas for step in decision.trace.steps if isinstance(step, Chosen)]
        if chosen:
            made.append((history.now, max(chosen[0], 0)))
        window = history.settings.downscale_stabilization_s
        held = [number for at, number in made if at >= history.now - window]
        wanted = decision.trace.decided
        if chosen and wanted is not None and wanted < current:
            assert wanted >= min(max(held), history.hpa.max_replicas, current)
        history.advance(decision)


def test_rules_of_the_generator_cover_both_directions() -> None:
    drawn = [worlds.rules(Random(seed), worlds.UP) for seed in range(50)]
    assert {each.select for each in drawn} == {"Max", "Min", "Disabled"}
    assert any(isinstance(each, Rules) and len(each.policies) > 1 for each in drawn)


@given(seeds)
@settings(max_examples=800, deadline=None)
def test_a_gap_in_the_samples_lowers_nothing_and_changes_nothing_else(draw: Random) -> None:
    seen, past, chosen = worlds.observation(draw), worlds.past(draw, NOW), worlds.settings(draw)
    gap = SampleGap(NOW - 300, NOW - 60, 120.0, NOW + draw.choice((-1, 0, 1, 90)))
    given = tuple(
        structs.replace(each, gap=gap)
        if isinstance(each, PodSamples | ObjectSample | ExternalSamples)
        else each
        for each in seen.answers
    )
    without = decide(seen, past, chosen, NOW).trace
    decided = decide(structs.replace(seen, answers=given), past, chosen, NOW).trace.decided
    is_measured = any(isinstance(step, Chosen) for step in without.steps)
    is_acting = chosen.holds_after_outage and chosen.mode != "shadow"
    is_held = is_acting and gap.whole_s > NOW and given != seen.answers and is_measured
    if is_held and without.decided is not None and isinstance(seen.scale, Scale):
        assert decided == max(without.decided, seen.scale.spec_replicas)
    else:
        assert decided == without.decided
