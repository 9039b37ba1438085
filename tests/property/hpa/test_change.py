"""What an explanation says would change it does, read from its words and tried."""

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest
from hypothesis import given as drawn
from hypothesis import settings as trials
from hypothesis import strategies as st
from msgspec.structs import replace

from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import HPA, Behavior, MetricSpec, Rules
from hpa.decide.conclusion import conclude
from hpa.decide.decision import DONE
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import NOT_ENOUGH, NOTHING_ELSE, explain
from podscale.core.metrics import ExternalSample, ExternalSamples, ObjectSample, PodSamples, Sample
from podscale.core.quantity import parse
from podscale.explain.explanation import Explanation
from podscale.kube.objects.pod import WirePodTemplate
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case, cases
from tests.conformance.explain_hpa import LABELS
from tests.conformance.hpa_inputs import NOW
from tests.property.hpa import worlds

CASES = [each for each in cases("explain.yaml") if each["kind"] == "hpa"]


class Tried:
    """The inputs of a decision, changed as a sentence says."""

    def __init__(self, seen: Observation, past: Past, settings: Settings, size: int | None):
        self.seen, self.past = seen, past
        self.settings = replace(settings, mode="replace")
        self.actual = size
        self.is_later = False  # the sentence says that time passes

    def decided(self) -> int | None:
        past = self.past
        if not self.is_later:
            past = replace(past, recommendations=(), scale_ups=(), scale_downs=())
        return decide(self.seen, past, self.settings, NOW).trace.decided

    def copy(self) -> "Tried":
        made = Tried(self.seen, self.past, self.settings, self.actual)
        made.is_later = self.is_later
        return made

    @property
    def hpa(self) -> HPA:
        return self.seen.hpa

    def with_hpa(self, **fields: object) -> None:
        self.seen = replace(self.seen, hpa=replace(self.hpa, **fields))  # type: ignore[arg-type]

    def rules(self, change: Callable[[Rules], Rules]) -> None:
        known = self.hpa.behavior or Behavior(UP, DOWN)
        self.with_hpa(behavior=Behavior(change(known.up), change(known.down)))

    def named(self, name: str) -> Iterator[tuple[int, MetricSpec]]:
        for index, spec in enumerate(self.hpa.metrics):
            if spec.name == name:
                yield index, spec

    def answer(self, index: int, level: float) -> None:
        """Let a metric be at a level: percent, or milli-units a pod or of the whole."""
        spec, scale = self.hpa.metrics[index], self.seen.scale
        assert isinstance(scale, Scale)
        answers = list(self.seen.answers)
        known = answers[index]
        if spec.type in ("Object", "External"):
            whole = int(level) if spec.is_by_value else int(level * max(scale.status_replicas, 1))
            sample = Sample(whole, NOW)
            answers[index] = (
                ObjectSample(sample, NOW)
                if spec.type == "Object"
                else ExternalSamples([ExternalSample({}, sample)], NOW)
            )
        else:
            pods = self.seen.pods
            told = dict(known.pods) if isinstance(known, PodSamples) else {}
            is_percent = spec.average_value_milli is None
            amounts = {}
            for name in told or pods.names:
                row = pods.names.index(name) if name in pods.names else None
                of = 0 if row is None else _request(pods.templates[pods.template[row]], spec)
                milli = of * level / 100 if is_percent else level
                before = told.get(name, Sample(0, NOW))
                amounts[name] = replace(before, value_milli=int(milli))
            answers[index] = PodSamples(amounts, NOW)
        self.seen = replace(self.seen, answers=tuple(answers))


def _request(template: WirePodTemplate, spec: MetricSpec) -> int:
    level = template.pod_requests_milli or {}
    if not spec.container and spec.name in level:
        return level[spec.name] + template.overhead_milli.get(spec.name, 0)
    return sum(
        each.requests_milli.get(spec.name, 0)
        for each in template.running
        if not spec.container or each.name == spec.container
    )


def _amount(text: str) -> float:
    return float(text[:-1]) if text.endswith("%") else float(parse(text)) * 1000


Apply = Callable[[Tried, re.Match[str]], list[Tried]]


def _level(factor: float) -> Apply:
    def apply(tried: Tried, found: re.Match[str]) -> list[Tried]:
        made = []
        for index, _ in tried.named(found[1]):
            one = tried.copy()
            amount = _amount(found[2])
            # Shown in four digits; percentages are whole numbers.
            off = max(1.0, amount * 0.002)
            one.answer(index, amount + (off if factor > 0 else -off if "below" in found[0] else 0))
            if factor < 0:
                one.answer(index, max(amount - off, 0))
            made.append(one)
        return made

    return apply


def _far(tried: Tried, found: re.Match[str]) -> list[Tried]:
    made = []
    for index, spec in tried.named(found[1]):
        one = tried.copy()
        target = spec.average_value_milli or spec.value_milli or spec.average_utilization or 1
        one.answer(index, min(target * 1e5, 1e14))
        made.append(one)
    return made


def _risen(tried: Tried, _found: re.Match[str]) -> list[Tried]:
    names = dict.fromkeys(spec.name for spec in tried.hpa.metrics if spec.name)
    return [
        one for name in names if (found := re.match("(.*)", name)) for one in _far(tried, found)
    ]


def _fallen(tried: Tried, found: re.Match[str]) -> list[Tried]:
    made = []
    for index, _ in tried.named(found[1]):
        one = tried.copy()
        one.answer(index, 0)
        made.append(one)
    return made


def _target_times(factor: float) -> Apply:
    def apply(tried: Tried, found: re.Match[str]) -> list[Tried]:
        made = []
        for index, spec in enumerate(tried.hpa.metrics):
            if found.groups() and spec.name != found[1]:
                continue
            one = tried.copy()
            fields = {
                name: max(int(value * factor), 1)
                for name in ("average_value_milli", "value_milli", "average_utilization")
                if (value := getattr(spec, name)) is not None
            }
            metrics = list(tried.hpa.metrics)
            metrics[index] = replace(spec, **fields)
            one.with_hpa(metrics=tuple(metrics))
            made.append(one)
        return made

    return apply


def _readable(tried: Tried, found: re.Match[str]) -> list[Tried]:
    made = []
    for index, spec in tried.named(found[1]):
        target = spec.average_value_milli or spec.value_milli or spec.average_utilization or 1
        for level in (0, 2 * target, target):
            one = tried.copy()
            answers = list(one.seen.answers)
            answers[index] = None
            one.seen = replace(one.seen, answers=tuple(answers))
            one.answer(index, level)
            made.append(one)
    return made


def _one(change: Callable[[Tried, re.Match[str]], None], *, is_later: bool = False) -> Apply:
    def apply(tried: Tried, found: re.Match[str]) -> list[Tried]:
        one = tried.copy()
        one.is_later = is_later
        change(one, found)
        return [one]

    return apply


def _recommendations(tried: Tried, found: re.Match[str]) -> None:
    known = tried.past.recommendations or ()
    last = max((each.at for each in known if each.replicas == int(found[1])), default=NOW)
    # Without any, the size itself counts as recommended now.
    tried.past = replace(
        tried.past, recommendations=tuple(each for each in known if each.at > last)
    )


def _exact(tried: Tried, _found: re.Match[str]) -> None:
    tried.settings = replace(tried.settings, tolerance=0.0)


def _no_window(tried: Tried, _found: re.Match[str]) -> None:
    tried.settings = replace(tried.settings, downscale_stabilization_s=-1.0)
    if tried.hpa.behavior is not None:
        tried.rules(lambda rules: replace(rules, window_s=-1))


def _next_pass(tried: Tried, _found: re.Match[str]) -> None:
    scale = tried.seen.scale
    assert isinstance(scale, Scale)
    assert tried.actual is not None
    scaled = replace(scale, spec_replicas=tried.actual, status_replicas=tried.actual)
    tried.seen = replace(tried.seen, scale=scaled)
    tried.past = replace(tried.past, recommendations=(), scale_ups=(), scale_downs=())


def _bounds(tried: Tried, least: int | None = None, most: int | None = None) -> None:
    tried.with_hpa(
        min_replicas=tried.hpa.min_replicas if least is None else least,
        max_replicas=tried.hpa.max_replicas if most is None else most,
    )


APPLY: Sequence[tuple[str, Apply]] = (
    (r"(\S+) rises above (\d+(?:\.\d+)?(?:%|[a-zA-Z]+)?)", _level(1)),
    (r"(\S+) falls (?:to|below) (\d+(?:\.\d+)?(?:%|[a-zA-Z]+)?)", _level(-1)),
    (r"(\S+) rises(?=,|\.| )(?! above)", _far),
    (
        r"a smaller tolerance is set",
        _one(lambda one, _: one.rules(lambda r: replace(r, tolerance=0.0))),
    ),
    (r"--horizontal-pod-autoscaler-tolerance is made smaller", _one(_exact)),
    (r"The recommendation of (\d+) expires", _one(_recommendations, is_later=True)),
    (r"you shorten the window", _one(_no_window, is_later=True)),
    (r"The policy's \d+ s period ends", _one(_next_pass, is_later=True)),
    (
        r"you loosen the policy",
        _one(
            lambda one, _: one.rules(
                lambda r: replace(
                    r, policies=tuple(replace(p, type="Pods", value=10**6) for p in r.policies)
                )
            ),
            is_later=True,
        ),
    ),
    (r"maxReplicas is raised from", _one(lambda one, _: _bounds(one, most=2**31 - 1))),
    (r"minReplicas is lowered from (\d+) \(the metrics ask for (\d+)\)",
     _one(lambda one, found: _bounds(one, least=min(int(found[2]), int(found[1]) - 1)))),
    (r"minReplicas and maxReplicas are set apart",
     _one(lambda one, _: _bounds(one, least=0, most=2**31 - 1))),
    (
        r"behavior\.scale(?:Up|Down)\.selectPolicy is set",
        _one(lambda one, _: one.rules(lambda r: replace(r, select="Max"))),
    ),
    (r"(\S+) falls(?=[.,])", _fallen),
    (r"(?:^|, or )its target is raised", _target_times(1000.0)),
    (r"A metric rises", _risen),
    (r"a target is lowered", _target_times(0.001)),
    (r"(\S+) becomes readable", _readable),
)  # fmt: skip


def applied(tried: Tried, sentence: str) -> list[tuple[str, list[Tried]]]:
    """Return what the sentence names, each with the ways in which it may come out."""
    found = [
        (match.start(), match[0], apply(tried, match))
        for pattern, apply in APPLY
        for match in re.finditer(pattern, sentence)
    ]
    found.sort(key=lambda each: each[0])
    return [(text, made) for _, text, made in found if made]


def check(explanation: Explanation, tried: Tried) -> int:
    """Check that what is said does change the number, and return how many things were tried."""
    parts = explanation.change.removesuffix(NOTHING_ELSE).split(NOT_ENOUGH)
    count = 0
    for place, part in enumerate(parts):
        named = applied(tried, part)
        is_last = place == len(parts) - 1 and not explanation.change.endswith(NOTHING_ELSE)
        for text, made in named:
            numbers = [each.decided() for each in made]
            count += 1
            if is_last:
                assert any(each != tried.actual for each in numbers), (text, numbers)
        if not named or "The silent pods report" in part:
            return count  # of what follows upon it, only the product has the inputs
        if not is_last:
            tried = named[0][1][0]
            # What follows is said of when all windows and periods have run out.
            tried.past = replace(tried.past, recommendations=(), scale_ups=(), scale_downs=())
    return count


def _of(case: Case) -> int:
    inputs = dict(case["inputs"])
    inputs["pods"] = [{"labels": LABELS, **pod} for pod in inputs["pods"]]
    seen, past, settings = given.observation(inputs), given.past(inputs), given.settings(case)
    decision = decide(seen, past, settings, NOW)
    explanation = explain(conclude(decision, given.outcome(inputs), NOW).trace)
    return check(explanation, Tried(seen, past, settings, decision.trace.decided))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_a_case_says_would_change_it_does(case: Case) -> None:
    _of(case)


def test_of_all_cases_but_those_of_gates_and_of_pods_the_words_can_be_tried() -> None:
    assert sum(_of(case) > 0 for case in CASES) >= 25


@drawn(st.integers(0, 2**32))
@trials(max_examples=600, deadline=None)
def test_what_is_said_of_any_decision_does(seed: int) -> None:
    draw = Random(seed)
    seen, past, settings = worlds.observation(draw), worlds.past(draw, NOW), worlds.settings(draw)
    decision = decide(seen, past, settings, NOW)
    explanation = explain(conclude(decision, DONE, NOW).trace)
    if explanation.first_reason in ("ShadowMode", "Paused") or len(
        {spec.name for spec in seen.hpa.metrics}
    ) < len(seen.hpa.metrics):
        return  # of two metrics of one name the words do not tell which
    check(explanation, Tried(seen, past, settings, decision.trace.decided))
