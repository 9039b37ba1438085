"""Thousands of HPAs, decided once each, as a page over them."""

import random

from msgspec import structs

from hpa.decide.observation import MetricAnswer, Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.history.decision_log import DecisionLog
from podscale.core.metrics import PodSamples, Sample, Unavailable
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.page.part import PagePart
from podscale.page.sampler import PageSources
from tests.browser.scenes import SHOP, START

PASSES = 12


class Crowd:
    """A page and the traces under it."""

    def __init__(self) -> None:
        self.traces = DecisionLog()
        self.page = PagePart(PageSources(self.traces), wall=lambda: START + PASSES * 15.0)
        self.traces.follower = self.page.board


def crowd(count: int, *, passes: int = 1) -> Crowd:
    """Return ``count`` HPAs in a hundred namespaces; one of 500 has no metrics."""
    made, chance = Crowd(), random.Random(7)
    for index in range(count):
        name, namespace = f"app-{index:04}", f"team-{index % 100:02}"
        hpa = structs.replace(
            SHOP, namespace=namespace, name=name,
            target=CrossVersionObjectReference("Deployment", name, "apps/v1"),
        )  # fmt: skip
        size = chance.randint(2, 6)
        names = tuple(f"{name}-{pod}" for pod in range(size))
        pods = Pods(
            names, bytes([PodPhase.RUNNING] * size),
            bytes([PodReadiness.TRUE] * size), bytes(size),
            (START - 9e3,) * size, (START - 8e3,) * size, (0,) * size,
        )  # fmt: skip
        for each in range(passes):
            now = START + 15.0 * each
            answer: MetricAnswer
            if index % 500 == 77:
                answer = Unavailable("PrometheusDown", "Prometheus does not answer")
            else:
                load = round(12_000 * chance.uniform(0.9, 1.12))
                answer = PodSamples({pod: Sample(load, now) for pod in names}, now)
            look = Observation(hpa, Scale(size, size, f"app={name}"), pods, (answer,))
            trace = decide(look, Past(), Settings(), now).trace
            made.traces.put((namespace, name), trace)
    return made
