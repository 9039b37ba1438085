"""The traces of an autoscaler over hours: its past carried on, pods that come and go."""

import math
import random

from msgspec import structs

from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Outcome, Trace
from hpa.decide.observation import MetricAnswer, Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

NOW = 1_795_000_000.0
METRICS = (
    MetricSpec(
        "Pods", "http_requests_per_second",
        target_type="AverageValue", average_value_milli=12_000,
    ),
    MetricSpec("Resource", "cpu", target_type="Utilization", average_utilization=50),
    MetricSpec("External", "queue", target_type="AverageValue", average_value_milli=30_000),
)  # fmt: skip
_TEMPLATES = (
    WirePodTemplate((
        TemplateContainer("app", {"cpu": 100, "memory": 268_435_456_000}),
        TemplateContainer("proxy", {"cpu": 50}),
    )),
)  # fmt: skip


def day(pods: int, metrics: int, *, passes: int) -> list[Trace]:
    """Return one trace a pass, 15 s apart; ``pods`` is how many there are at a middling load."""
    chance = random.Random(pods * 10 + metrics)
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    hpa = HPA("shop", "web", target, 4 * pods, METRICS[:metrics])
    born = {_name(chance): (NOW - 9e3, NOW - 8995.0) for _ in range(pods)}
    past, traces = Past(), []
    for turn in range(passes):
        at = NOW + 15 * turn + chance.random() * 0.3
        load = pods * (1 + 0.6 * math.sin(turn / 25)) * (0.97 + 0.06 * chance.random())
        answers = _answers(load, sorted(born), math.floor(at), chance)[:metrics]
        scale = Scale(len(born), len(born), "app=web")
        decision = decide(Observation(hpa, scale, _pods(born), answers), past, Settings(), at)
        done = conclude(decision, Outcome(), at + 0.02)
        traces.append(done.trace)
        past, hpa = done.past, structs.replace(hpa, status=done.status)
        wanted = len(born) if decision.replicas is None else decision.replicas
        while len(born) < wanted:
            born[_name(chance)] = (math.floor(at), math.floor(at) + 5.0)
        for name in chance.sample(sorted(born), max(len(born) - wanted, 0)):
            del born[name]
    return traces


def _name(chance: random.Random) -> str:
    letters = "".join(chance.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
    return f"web-6d4cf56db6-{letters}"


def _pods(born: dict[str, tuple[float, float]]) -> Pods:
    names, count = sorted(born), len(born)
    return Pods(
        tuple(names), bytes([PodPhase.RUNNING] * count),
        bytes([PodReadiness.TRUE] * count), bytes(count),
        tuple(born[name][0] for name in names), tuple(born[name][1] for name in names),
        (0,) * count, _TEMPLATES, (0,) * count, ("Deployment/web",),
    )  # fmt: skip


def _answers(
    load: float, names: list[str], at: int, chance: random.Random
) -> tuple[MetricAnswer, ...]:
    def sampled(mean_milli: float, window_s: float | None) -> PodSamples:
        def sample() -> Sample:
            value = int(mean_milli * chance.uniform(0.9, 1.1))
            return Sample(value, at - round(chance.uniform(0, 10), 3), window_s)

        return PodSamples({name: sample() for name in names}, float(at))

    each = load / len(names)
    waiting = ExternalSample({"queue": "orders"}, Sample(int(load * 25_000), at - 3.0))
    return (
        sampled(each * 12_000, None),
        sampled(each * 75, 60.0),
        ExternalSamples([waiting], float(at)),
    )
