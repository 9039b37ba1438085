"""CPU of decisions, beside kube-controller-manager's own code on the same passes.

The original's ``reconcileAutoscaler`` runs in a Go process of its own, its clients answered from
memory; ours is ``decide`` with its trace, and ``conclude``. Objects and answers are made before
each round, in both. Windows of the one and the other take turns, and the median ratio counts.
"""

import gc
import random
import sys
import time
from collections.abc import Callable
from statistics import median

from msgspec.structs import replace

from hpa.decide.conclusion import conclude
from hpa.decide.decision import DONE, Decision
from hpa.decide.reconcile import decide
from hpa.explain.explanation import explain, first_reason
from tests.bench.figures import Figures
from tests.cluster import executed
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case

GOAL = 4.0
RELEASE = "1.37"
PODS, HPAS = 10, 200
WARM, ROUNDS = 4, 26  # in all more than the recommendations of a window
WINDOWS = 5
PERIOD_S = 15.0
RULES: Case = {"scaleUp": {}, "scaleDown": {}}
LOADS: list[Case] = [
    {
        "type": "Pods",
        "metric": name,
        "target": {"type": "AverageValue", "averageValue": 100_000},
    }
    for name in ("requests", "connections")
]
QUEUE: Case = {"type": "External", "metric": "queue", "target": {"type": "Value", "value": 10**6}}
CPU: Case = {
    "type": "Resource",
    "resource": "cpu",
    "target": {"type": "Utilization", "averageUtilization": 50},
}
CASTS: dict[str, tuple[list[Case], Case | None]] = {
    "two Pods metrics and an External one": ([*LOADS, QUEUE], None),
    "the same with behavior": ([*LOADS, QUEUE], RULES),
    "utilization of cpu": ([CPU], None),
}


def one_pass(noise: random.Random, age_s: float) -> Case:
    """Return what a pass sees: every value within the tolerance."""
    names = [f"pod-{number}" for number in range(PODS)]

    def around(target: int) -> int:
        return int(target * noise.uniform(0.95, 1.05))

    return {
        "pods": [
            {
                "name": name,
                "requests": {"app": 500},
                "start_age_s": 9000.0,
                "ready_transition_age_s": 8990.0,
            }
            for name in names
        ],
        "custom_pod_metrics": [
            {"pod": name, "value": around(100_000), "age_s": age_s} for name in names
        ],
        "resource_metrics": [
            {"pod": name, "usage": {"app": around(250)}, "age_s": age_s} for name in names
        ],
        "external_metric": [around(10**6)],
        "faults": {},
    }


class Fleet:
    """HPAs that are decided on round after round, as the controller does."""

    def __init__(self, metrics: list[Case], behavior: Case | None) -> None:
        noise = random.Random(7)
        self.fixed: Case = {
            "hpa": {"maxReplicas": 100, "metrics": metrics, "behavior": behavior},
            "gates": {},
            "flags": {
                "tolerance": 0.1,
                "downscale_stabilization_s": 300,
                "cpu_initialization_period_s": 300,
                "initial_readiness_delay_s": 30,
            },
            "target": {
                "kind": "Deployment",
                "spec_replicas": PODS,
                "status_replicas": PODS,
                "selector": "name=test-pod",
            },
            "status_before": {"currentReplicas": PODS, "desiredReplicas": PODS, "conditions": []},
            "recommendations": None,
            "scale_up_events": [],
            "scale_down_events": [],
        }
        self.rounds = [[one_pass(noise, 5.0) for _ in range(HPAS)] for _ in range(WARM + ROUNDS)]

    def asked(self) -> list[Case]:
        """Return all passes of each HPA, in the form of the case files."""
        return [
            self.fixed | first | {"then": [each | {"after_s": PERIOD_S} for each in later]}
            for first, *later in zip(*self.rounds, strict=True)
        ]

    def decided(self) -> tuple[list[float], list[int], list[Decision]]:
        """Return CPU seconds and the sum of desired sizes of each round, and the last round."""
        settings = given.settings({"release": RELEASE, "inputs": self.fixed})
        read = given.hpa(self.fixed)
        hpas, pasts = [replace(read, generation=7)] * HPAS, [given.past(self.fixed)] * HPAS
        spent, desired, made = [], [], list[Decision]()
        for number, passes in enumerate(self.rounds):
            later_s = number * PERIOD_S
            seen = [
                replace(given.observation(self.fixed | _later(each, later_s)), hpa=hpa)
                for each, hpa in zip(passes, hpas, strict=True)
            ]
            now = given.NOW + later_s
            gc.collect()
            began = time.process_time()
            made = [
                conclude(decide(each, past, settings, now), DONE, now)
                for each, past in zip(seen, pasts, strict=True)
            ]
            spent.append(time.process_time() - began)
            pasts = [each.past for each in made]
            hpas = [replace(hpa, status=each.status) for hpa, each in zip(hpas, made, strict=True)]
            desired.append(sum(each.status.desired_replicas for each in made))
        return spent, desired, made


def _later(seen: Case, by_s: float) -> Case:
    """Return a pass as it is seen when so much time has gone since the first."""
    samples = {
        kind: [each | {"age_s": each["age_s"] - by_s} for each in seen[kind]]
        for kind in ("custom_pod_metrics", "resource_metrics")
    }
    return seen | samples


def rate(step: Callable[[Decision], object], made: list[Decision]) -> float:
    began = time.process_time()
    for each in made:
        step(each)
    return len(made) / (time.process_time() - began)


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("decide")
    built = executed.program(RELEASE)
    for name, (metrics, behavior) in CASTS.items():
        fleet = Fleet(metrics, behavior)
        asked = fleet.asked()
        gc.collect()
        gc.freeze()
        windows = []
        for _ in range(WINDOWS):
            theirs, they_desire = executed.timed(built, asked)
            ours, we_desire, made = fleet.decided()
            if we_desire != they_desire:
                raise RuntimeError(f"other decisions: {we_desire}, the original {they_desire}")
            windows.append((sum(ours[WARM:]), sum(theirs[WARM:])))
        each_us = [[1e6 * s / HPAS / ROUNDS for s in side] for side in zip(*windows, strict=True)]
        for who, found in zip(("ours", "original"), each_us, strict=True):
            figures.note(f"{who}: " + ", ".join(f"{us:.1f}" for us in found) + " us a decision")
        ratio = median(ours / theirs for ours, theirs in windows)
        figures.at_most(f"CPU of a decision, {name}: ours / the original", ratio, GOAL)
        figures.note(f"first reason {rate(lambda one: first_reason(one.trace), made):,.0f}/s")
        figures.note(f"explain {rate(lambda one: explain(one.trace), made):,.0f}/s")
        gc.unfreeze()
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
