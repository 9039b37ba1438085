"""What the gate says of many HPAs once a day, and what has become of the forecasts in between.

Days are of UTC. A gate looks at whole days; of those that it has looked at before the sums are
kept, so that a day costs a day. The forecasts rest on all that is known until now.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast.demand import DAY, SLOT_S, DemandHistory, demand_of
from hpa.forecast.gate import (
    FEWEST_DAYS,
    LAST,
    MOST_DAYS,
    DaySums,
    GateSubject,
    KnownPast,
    PastForecasts,
    day_sums,
    ratio_to_alone,
    slots_ahead,
    verdict,
)
from hpa.forecast.lanes import LoopRules
from hpa.forecast.models import NONE
from hpa.forecast.plan import PLANNED_DAYS, ForecastPlan, ForecastVerdict, LivedDay
from hpa.forecast.trial import delay_of
from hpa.simulate.load import LoadHistory, key_of
from hpa.simulate.verdict import capacity_of, target_of
from hpa.simulate.workload import Plant

DAY_S = DAY * SLOT_S
HISTORY_S = (MOST_DAYS + 1) * DAY_S  # that a gate reads, the day under way apart
REGRETS_AFTER = 360  # minutes under a forecast
_SHORTEST = 60  # minutes that may be left out, so that many are replayed side by side
_LATE_S = 3600.0  # a first day that begins later than this is none


class GateQuestion(Struct, frozen=True):
    """One HPA that wants a forecast."""

    hpa: HPA
    requests: Mapping[str, Mapping[str, int]]  # of a pod: container → resource → milli-units
    verdict: ForecastVerdict | None = None  # of the last gate; of today: it stands
    sums: "KeptSums | None" = None
    lived: LivedDay | None = None  # all that is asked is whether it is regretted


class KeptSums(Struct, frozen=True, eq=False):
    """The days that gates have looked at, up to ``until_s``, and what they rest on."""

    until_s: float
    rules: LoopRules
    days: DaySums


class GateAnswer(Struct, frozen=True):
    """What is to be done from now on."""

    verdict: ForecastVerdict
    plan: ForecastPlan | None = None
    sums: KeptSums | None = None


class GateSight(Struct, frozen=True):
    """A question, and what was read for it."""

    question: GateQuestion
    load: LoadHistory
    plant: Plant


def day_of(now: float) -> float:
    """Return when the day of ``now`` began: a gate is of then."""
    return math.floor(now / DAY_S) * DAY_S


def answers(seen: Sequence[GateSight], settings: Settings, now: float) -> list[GateAnswer]:
    """Return one answer for each; those that move by the same rules are replayed together."""
    cases = [_Case(each, settings, day_of(now)) for each in seen]
    together: dict[tuple[LoopRules, int], list[_Case]] = {}
    for each in cases:
        if each.fresh_days:
            together.setdefault((each.rules, each.fresh_days), []).append(each)
    for (rules, days), some in together.items():
        subjects = [each.subject for each in some]
        found = day_sums(rules, subjects, [each.forecasts for each in some], days)
        for each, sums in zip(some, found, strict=True):
            each.sums = sums if each.sums is None else each.sums.followed_by(sums)
    return [each.answer() for each in cases]


class _Case:
    # One HPA on its way through the gate.

    def __init__(self, seen: GateSight, settings: Settings, until_s: float) -> None:
        self.question = question = seen.question
        self.until_s = until_s
        hpa, plant = question.hpa, seen.plant
        self.delay_s = delay_of(plant)
        self.rules = LoopRules.of(hpa, settings, self.delay_s)
        capacities = {key_of(each): capacity_of(each, plant)[0] for each in hpa.metrics}
        self.share = max(target_of(each, plant) / capacities[key_of(each)] for each in hpa.metrics)
        self.demand = _by_days(demand_of(hpa, seen.load, plant, capacities))
        self.days = max(0, round((until_s - self.demand.start_s) // DAY_S))
        self.sums: DaySums | None = None
        self.known: KnownPast | None = None
        self.forecasts = PastForecasts((), np.empty((0, 0)))
        self.fresh_days = 0
        pods = self.demand.pods
        if self.days < FEWEST_DAYS or np.isnan(pods[:DAY]).all():
            return
        self.known = KnownPast.of(pods, slots_ahead(self.delay_s), PLANNED_DAYS)
        if _stands(question, until_s):
            return
        kept, self.fresh_days = question.sums, self.days - 1
        if kept is not None and kept.rules == self.rules and kept.until_s < until_s:
            fresh = round((until_s - kept.until_s) / DAY_S)
            if fresh < self.fresh_days:
                self.forecasts = self.known.forecasts(self.days - fresh, self.days)
                if kept.days.names == self.forecasts.names:
                    self.sums, self.fresh_days = kept.days, fresh
                    return
        self.forecasts = self.known.forecasts(1, self.days)

    @property
    def subject(self) -> GateSubject:
        hpa, end = self.question.hpa, self.days * DAY
        demand = self.demand
        whole = DemandHistory(demand.start_s, demand.pods[:end], demand.needed[:end])
        return GateSubject(whole, float(hpa.min_replicas), float(hpa.max_replicas))

    def answer(self) -> GateAnswer:
        """Return the answer, once the days are replayed."""
        said, kept = self.question.verdict, self.question.sums
        if self.sums is not None:
            sums = self.sums.until(len(self.sums.needed))
            found = verdict(sums)
            row = found.taken
            said = ForecastVerdict(
                found.candidate, self.until_s, row.saved if row else 0.0, row.more if row else 0.0,
                found.days,
            )  # fmt: skip
            kept = KeptSums(self.until_s, self.rules, sums)
        elif said is None or not _stands(self.question, self.until_s):
            return GateAnswer(ForecastVerdict(NONE, self.until_s, days=self.days))
        plan = None
        if said.is_taken and self.known is not None:
            start_s = self.demand.start_s
            plan = ForecastPlan.of(self.known, start_s, said, self.share, self.delay_s)
        if plan is None:
            said = structs.replace(said, candidate=NONE)
        return GateAnswer(said, plan, kept)


def regrets(questions: Sequence[GateQuestion], settings: Settings) -> list[bool]:
    """Return whether each forecast has left more unserved, over the minutes that were lived under
    it, than the metrics alone would have with as many pods."""
    found = [False] * len(questions)
    together: dict[tuple[LoopRules, int], list[int]] = {}
    for place, each in enumerate(questions):
        lived = each.lived
        if lived is not None and not np.isnan(lived.pods).all():
            minutes = len(lived.pods) // _SHORTEST * _SHORTEST
            if minutes >= REGRETS_AFTER:
                rules = LoopRules.of(each.hpa, settings, lived.within_s)
                together.setdefault((rules, minutes), []).append(place)
    for (rules, minutes), places in together.items():
        subjects, said = [], []
        for place in places:
            hpa, lived = questions[place].hpa, questions[place].lived
            assert lived is not None  # noqa: S101 - as above
            pods = lived.pods[-minutes:]
            demand = DemandHistory(0.0, pods, np.ceil(pods * lived.share - 1e-9))
            subjects.append(GateSubject(demand, float(hpa.min_replicas), float(hpa.max_replicas)))
            said.append(PastForecasts((NONE,), lived.said[-minutes:, None]))
        for place, sums in zip(places, day_sums(rules, subjects, said, 1, minutes), strict=True):
            found[place] = bool(ratio_to_alone(sums)[0] > LAST)
    return found


def is_alike(hpa: HPA, before: HPA) -> bool:
    """Return whether what was found for one spec holds for another: demand is in pods at its
    targets."""
    return (
        hpa.metrics == before.metrics
        and hpa.behavior == before.behavior
        and (hpa.min_replicas, hpa.max_replicas) == (before.min_replicas, before.max_replicas)
    )


def has_targets(question: GateQuestion) -> bool:
    """Return whether every metric has a target that demand can be told by."""
    hpa, plant = question.hpa, Plant(requests=question.requests)
    return bool(hpa.metrics) and all(target_of(each, plant) > 0 for each in hpa.metrics)


def _stands(question: GateQuestion, until_s: float) -> bool:
    return question.verdict is not None and question.verdict.at >= until_s


def _by_days(demand: DemandHistory) -> DemandHistory:
    # The same demand from the beginning of a day on.
    first_s = day_of(demand.start_s)
    late = round((demand.start_s - first_s) / SLOT_S)
    if late * SLOT_S <= _LATE_S:
        gap = np.full(late, np.nan)
        return DemandHistory(
            first_s, np.concatenate((gap, demand.pods)), np.concatenate((gap, demand.needed))
        )
    skipped = DAY - late
    return DemandHistory(first_s + DAY_S, demand.pods[skipped:], demand.needed[skipped:])
