"""How many decisions a core makes a second: ten pods, two Pods metrics, one External one.

Inputs are made beforehand; what is timed is CPU of ``decide``, its trace included.
"""

import gc
import random
import sys
import time
from collections.abc import Callable

from hpa.decide import Decision, Observation, Past, Scale, Settings, conclude, decide
from hpa.decide.decision import Outcome
from hpa.decide.observation import MetricAnswer
from hpa.decide.pods import (
    ContainerRequest,
    DecidedPhase,
    DecidedPodTemplate,
    DecidedReadiness,
    Pods,
)
from hpa.decide.reading import DOWN, UP
from hpa.decide.spec import HPA, Behavior, MetricObject, MetricSelector, MetricSpec
from hpa.explain import explain, first_reason
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample
from tests.bench.figures import Figures

GOAL = 20_000  # decisions a second and core, with their traces
PODS = 10
HPAS = 500
ROUNDS = 24  # more than the recommendations of a window
PERIOD_S = 15.0
NOW = 1_750_000_000.0
WRITTEN = Outcome()


def hpa(index: int, *, behavior: bool) -> HPA:
    return HPA(
        f"team-{index % 20}",
        f"web-{index}",
        MetricObject("Deployment", f"web-{index}", "apps/v1"),
        100,
        (
            MetricSpec("Pods", "requests", average_value_milli=100_000),
            MetricSpec("Pods", "connections", average_value_milli=50_000),
            MetricSpec("External", "queue", selector=MetricSelector(), value_milli=1_000_000),
        ),
        behavior=Behavior(UP, DOWN) if behavior else None,
        generation=1,
    )


def pods(index: int) -> Pods:
    template = DecidedPodTemplate((ContainerRequest("app", {"cpu": 500, "memory": 10**11}),))
    return Pods(
        tuple(f"web-{index}-{pod}" for pod in range(PODS)),
        bytes([DecidedPhase.RUNNING] * PODS),
        bytes([DecidedReadiness.TRUE] * PODS),
        bytes(PODS),
        (NOW - 9_000.0,) * PODS,
        (NOW - 8_990.0,) * PODS,
        (0,) * PODS,
        (template,),
    )


def answers(names: tuple[str, ...], now: float, noise: random.Random) -> tuple[MetricAnswer, ...]:
    def around(target: int) -> PodSamples:
        return PodSamples(
            {n: Sample(int(target * noise.uniform(0.95, 1.05)), now - 5, 60) for n in names}, now
        )

    queue = Sample(int(1_000_000 * noise.uniform(0.95, 1.05)), now - 5)
    return (around(100_000), around(50_000), ExternalSamples([ExternalSample({}, queue)], now))


class Fleet:
    """HPAs that are decided on round after round, as the controller does."""

    def __init__(self, *, behavior: bool) -> None:
        self.hpas = [hpa(index, behavior=behavior) for index in range(HPAS)]
        self.pods = [pods(index) for index in range(HPAS)]
        self.pasts = [Past() for _ in range(HPAS)]
        self.settings = Settings()
        self.noise = random.Random(7)
        self.decided = 0
        self.spent = 0.0

    def round(self, number: int) -> list[Decision]:
        now = NOW + number * PERIOD_S
        scale = Scale(PODS, PODS, "app=web")
        seen = [
            Observation(each, scale, listed, answers(listed.names, now, self.noise))
            for each, listed in zip(self.hpas, self.pods, strict=True)
        ]
        started = time.process_time()
        made = [
            decide(observation, past, self.settings, now)
            for observation, past in zip(seen, self.pasts, strict=True)
        ]
        self.spent += time.process_time() - started
        self.decided += len(made)
        self.pasts = [decision.past for decision in made]
        return made


def rate(step: Callable[[Decision], object], made: list[Decision]) -> float:
    started = time.process_time()
    for decision in made:
        step(decision)
    return len(made) / (time.process_time() - started)


def main() -> int:
    figures = Figures("decide")
    for behavior in (False, True):
        fleet = Fleet(behavior=behavior)
        for number in range(4):
            fleet.round(number)
        gc.collect()
        gc.freeze()
        fleet.decided, fleet.spent = 0, 0.0
        for number in range(4, 4 + ROUNDS):
            made = fleet.round(number)
        found = fleet.decided / fleet.spent
        path = "with behavior" if behavior else "without behavior"
        figures.at_least(f"decisions/s/core {path}", found, GOAL, f"{1e6 / found:.1f} µs each")
        figures.note(f"conclude {rate(lambda each: conclude(each, WRITTEN, NOW), made):,.0f}/s")
        figures.note(f"first reason {rate(lambda each: first_reason(each.trace), made):,.0f}/s")
        figures.note(f"explain {rate(lambda each: explain(each.trace), made):,.0f}/s")
        gc.unfreeze()
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
