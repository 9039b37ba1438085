"""What the gate says of many HPAs once a day, and what has become of the forecasts in between.

Days are of UTC. A gate looks at whole days; of those that it has looked at before the sums are
kept, so that a day costs a day. The forecasts rest on all that is known until now. A trial is the
gate through a whole history: what it takes over the days before forecasts each day.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA
from hpa.decide.observation import ExpectedDemand
from hpa.decide.settings import Settings
from hpa.forecast import gate
from hpa.forecast.demand import DAY, SLOT_S, DemandHistory, demand_of
from hpa.forecast.plan import PLANNED_DAYS, ForecastPlan, ForecastVerdict, LivedDay
from hpa.simulate.loop import capacity_of, target_of
from hpa.simulate.workload import Floats, LoadHistory, Plant, key_of

DAY_S = DAY * SLOT_S
HISTORY_S = (gate.MOST_DAYS + 1) * DAY_S  # that a gate reads, the day under way apart
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
    rules: gate.LoopRules
    days: gate.DaySums


class GateAnswer(Struct, frozen=True):
    """What is to be done from now on."""

    verdict: ForecastVerdict
    plan: ForecastPlan | None = None
    sums: KeptSums | None = None


class GateSight(Struct, frozen=True):
    question: GateQuestion
    load: LoadHistory
    plant: Plant


def day_of(now: float) -> float:
    """Return when the day of ``now`` began: a gate is of then."""
    return math.floor(now / DAY_S) * DAY_S


def answers(seen: Sequence[GateSight], settings: Settings, now: float) -> list[GateAnswer]:
    """Return one answer for each; those that move by the same rules are replayed together."""
    cases = [_Case(each, settings, day_of(now)) for each in seen]
    fresh = [(each, each.fresh) for each in cases if each.fresh is not None]
    found = gate.day_sums([subject for _, subject in fresh])
    for (each, _), sums in zip(fresh, found, strict=True):
        each.sums = sums if each.sums is None else each.sums.followed_by(sums)
    return [each.answer() for each in cases]


class _Case:
    # One HPA on its way through the gate.

    def __init__(self, seen: GateSight, settings: Settings, until_s: float) -> None:
        self.question = question = seen.question
        self.until_s = until_s
        hpa, plant = question.hpa, seen.plant
        self.delay_s = delay_of(plant)
        self.rules = gate.LoopRules.of(hpa, settings, self.delay_s)
        capacities = {key_of(each): capacity_of(each, plant)[0] for each in hpa.metrics}
        self.share = max(target_of(each, plant) / capacities[key_of(each)] for each in hpa.metrics)
        start_s = math.ceil((seen.load.time_s[0] - _LATE_S) / DAY_S) * DAY_S
        self.demand = demand_of(hpa, seen.load, plant, capacities, start_s)
        self.days = max(0, round((until_s - start_s) // DAY_S))
        self.sums: gate.DaySums | None = None
        self.known: gate.KnownPast | None = None
        last = question.verdict
        self.said = None if last is None or last.at < until_s else last
        self.fresh: gate.GateSubject | None = None  # what is still to be replayed
        pods = self.demand.pods
        if self.days < gate.FEWEST_DAYS or np.isnan(pods[:DAY]).all():
            return
        self.known = gate.KnownPast.of(pods, gate.slots_ahead(self.delay_s), PLANNED_DAYS)
        if self.said is not None:
            return
        kept, first = question.sums, 1
        if kept is not None and kept.rules == self.rules:
            since = round((until_s - kept.until_s) / DAY_S)
            if 0 < since < self.days - 1:
                self.sums, first = kept.days, self.days - since
        forecasts = self.known.forecasts(first, self.days)
        self.fresh = gate.GateSubject(
            self.rules, hpa, self.demand.until(self.days * DAY), forecasts
        )

    def answer(self) -> GateAnswer:
        """Return the answer, once the days are replayed."""
        said, kept = self.said, self.question.sums
        if self.sums is not None:
            found = gate.verdict(self.sums)
            row = found.taken
            said = ForecastVerdict(
                found.candidate, self.until_s, row.saved if row else 0.0, row.more if row else 0.0,
                found.days,
            )  # fmt: skip
            kept = KeptSums(self.until_s, self.rules, self.sums)
        elif said is None:
            return GateAnswer(ForecastVerdict(gate.NONE, self.until_s, days=self.days))
        plan = None
        if said.is_taken and self.known is not None:
            start_s = self.demand.start_s
            plan = ForecastPlan.of(self.known, start_s, said, self.share, self.delay_s)
        if plan is None:
            said = structs.replace(said, candidate=gate.NONE)
        return GateAnswer(said, plan, kept)


def regrets(questions: Sequence[GateQuestion], settings: Settings) -> list[bool]:
    """Return whether each forecast has left more unserved, over the minutes that were lived under
    it, than the metrics alone would have with as many pods."""
    found, subjects = [False] * len(questions), dict[int, gate.GateSubject]()
    for place, each in enumerate(questions):
        lived = each.lived
        if lived is None or np.isnan(lived.pods).all():
            continue
        minutes = len(lived.pods) // _SHORTEST * _SHORTEST
        if minutes >= REGRETS_AFTER:
            pods, said = lived.pods[-minutes:], lived.said[-minutes:]
            demand = DemandHistory(0.0, pods, np.ceil(pods * lived.share - 1e-9))
            forecasts = np.column_stack((np.full(minutes, np.nan), said))
            rules = gate.LoopRules.of(each.hpa, settings, lived.within_s)
            subjects[place] = gate.GateSubject(rules, each.hpa, demand, forecasts, minutes)
    for place, sums in zip(subjects, gate.day_sums(list(subjects.values())), strict=True):
        ratios = gate.shares(sums, np.ones((1, 1), np.bool_))[2]
        found[place] = bool(ratios[0, 1] > gate.LAST)
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


class ForecastTrial(Struct, frozen=True, eq=False):
    """What was taken each day, and what it said."""

    start_s: float
    taken: Sequence[gate.GateVerdict | None]  # by day
    pods: Floats  # by minute; NaN: nothing
    highest: Floats  # before that minute's day
    delay_s: float
    last: gate.GateVerdict | None  # over the last days: what the gate would say now

    def expected(self, now: float) -> ExpectedDemand | None:
        slot = math.floor((now - self.start_s) / SLOT_S)
        if not 0 <= slot < len(self.pods) or math.isnan(self.pods[slot]):
            return None
        name = taken.candidate if (taken := self.taken[slot // DAY]) else ""
        highest = float(self.highest[slot // DAY])
        return ExpectedDemand(float(self.pods[slot]), now, highest, name, self.delay_s)


def trial(
    hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings, capacities: Mapping[str, float]
) -> ForecastTrial:
    """Return what forecasts would have done for ``hpa`` over ``load``."""
    delay_s = delay_of(plant)
    demand = demand_of(hpa, load, plant, capacities)
    count = len(demand.pods)
    days, whole = -(-count // DAY), count // DAY
    pods, highest = np.full(count, np.nan), np.full(days, np.nan)
    taken: list[gate.GateVerdict | None] = [None] * days
    last = None
    if whole >= gate.FEWEST_DAYS and not np.isnan(demand.pods).all():
        forecasts = gate.KnownPast.of(demand.pods, gate.slots_ahead(delay_s)).forecasts(1, days)
        rules, judged = gate.LoopRules.of(hpa, settings, delay_s), forecasts[: (whole - 1) * DAY]
        (sums,) = gate.day_sums([gate.GateSubject(rules, hpa, demand.until(whole * DAY), judged)])
        for day in range(gate.FEWEST_DAYS, days):
            taken[day] = found = gate.verdict(sums.until(day - 1))
            start = day * DAY
            highest[day] = np.nanmax(demand.pods[:start])
            said = forecasts[start - DAY : start, gate.CANDIDATES.index(found.candidate)]
            pods[start : start + DAY] = said
        last = gate.verdict(sums.until(whole - 1))
    return ForecastTrial(demand.start_s, taken, pods, highest, delay_s, last)


def delay_of(plant: Plant) -> float:
    """Return how long a decision takes to serve: of pods in the middle, from metrics of then."""
    times = sorted(plant.ready_after_s)
    return times[len(times) // 2] + plant.metric_age_s
