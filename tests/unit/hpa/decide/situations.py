"""Short ways to write one situation down."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.observation import MetricAnswer, Observation, Past, Recommendation, Scale
from hpa.decide.pods import Pods
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

NOW = 1_750_000_000.0
OLD = NOW - 86_400


def cpu(percent: int) -> MetricSpec:
    return MetricSpec("Resource", "cpu", average_utilization=percent)


def per_pod(target: int, name: str = "qps") -> MetricSpec:
    return MetricSpec("Pods", name, average_value_milli=target)


def queue(target: int) -> MetricSpec:
    return MetricSpec("External", "queue", value_milli=target)


def pod(
    request: int | None = 1000,
    *,
    phase: PodPhase = PodPhase.RUNNING,
    ready: PodReadiness = PodReadiness.TRUE,
    started: float | None = OLD,
    since: float | None = OLD,
    owner: str = "Deployment/web",
    deleted: bool = False,
) -> dict[str, Any]:
    return locals()


def listed(*pods: Mapping[str, Any]) -> Pods:
    owners = sorted({each["owner"] for each in pods})
    return Pods(
        tuple(f"web-{row}" for row in range(len(pods))),
        bytes(each["phase"] for each in pods),
        bytes(each["ready"] for each in pods),
        bytes(each["deleted"] for each in pods),
        tuple(each["started"] for each in pods),
        tuple(each["since"] for each in pods),
        tuple(range(len(pods))),
        tuple(
            WirePodTemplate(
                (TemplateContainer("app", {} if e["request"] is None else {"cpu": e["request"]}),)
            )
            for e in pods
        ),
        tuple(owners.index(each["owner"]) for each in pods),
        tuple(owners),
    )


def usage(*values: int | None, age: float = 0.0, window: float = 30.0) -> PodSamples:
    """One sample per pod in order; None: the pod reports nothing."""
    return PodSamples(
        {
            f"web-{row}": Sample(value, NOW - age, window)
            for row, value in enumerate(values)
            if value is not None
        },
        NOW,
    )


def series(*values: int) -> ExternalSamples:
    return ExternalSamples([ExternalSample({}, Sample(value, NOW)) for value in values], NOW)


def web(*metrics: MetricSpec, low: int = 1, high: int = 100, **rest: Any) -> HPA:
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    return HPA("shop", "web", target, high, metrics, low, **rest)


def seen(
    hpa: HPA,
    current: int,
    pods: Pods,
    answers: Sequence[MetricAnswer],
    *,
    status: int | None = None,
    **rest: Any,
) -> Observation:
    scale = Scale(current, current if status is None else status, "app=web")
    return Observation(hpa, scale, pods, tuple(answers), **rest)


def remembered(*entries: tuple[int, float]) -> Past:
    """Recommendations as (replicas, age)."""
    return Past(tuple(Recommendation(number, NOW - age) for number, age in entries))
