"""Random situations for one HPA: everything ``decide`` can be handed, good and bad.

Made from a seeded generator, so that a run is repeated by its seed. Borders are sought
on purpose: ages that equal windows, ratios at the tolerance, empty answers.
"""

from collections.abc import Sequence
from random import Random

from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import (
    HPA,
    Behavior,
    Fallback,
    HpaStatus,
    MetricSpec,
    Options,
    Rules,
)
from hpa.decide.observation import (
    GoodProposal,
    MetricAnswer,
    MetricFailure,
    Observation,
    Past,
    Recommendation,
    Scale,
    ScaleEvent,
    ScaleUnreadable,
)
from hpa.decide.pods import Pods
from hpa.decide.settings import Gates, Settings
from podscale.core import metrics as core
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.wire import LabelSelector
from podscale.kube.objects.autoscaler import (
    AutoscalerCondition,
    CrossVersionObjectReference,
    Policy,
)
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

NOW = 1_750_000_000.0
AGES = (0.0, 1.0, 14.0, 15.0, 16.0, 59.0, 60.0, 61.0, 299.0, 300.0, 301.0, 900.0, 4000.0)
TYPES = ("Resource", "ContainerResource", "Pods", "Object", "External")


def failure(draw: Random) -> MetricFailure:
    return draw.choice(
        (
            core.NotFound("NameMismatch", "no rule knows it"),
            core.NoData("EmptyResult", ""),
            core.NoData("NotANumber", "the value is NaN"),
            core.Stale("Stale", "too old", 900.0),
            core.Unavailable("PrometheusUnreachable", "connection refused", True),
            core.Refused("Forbidden", "not allowed"),
        )
    )


def metric(draw: Random) -> MetricSpec:
    kind = draw.choice(TYPES)
    target = draw.choice((1, 50, 100, 1000, 15_000, 15_000, 0, 2**63 - 1))
    if kind in ("Resource", "ContainerResource"):
        container = draw.choice(("app", "app", "nope")) if kind == "ContainerResource" else ""
        name = draw.choice(("cpu", "memory"))
        if draw.random() < 0.5:
            return MetricSpec(kind, name, container, average_utilization=draw.randint(1, 150))
        return MetricSpec(kind, name, container, average_value_milli=target)
    selector = draw.choice((None, LabelSelector(), LabelSelector({"q": "a"})))
    if kind == "Pods":
        return MetricSpec(kind, "qps", selector=selector, average_value_milli=target)
    described = CrossVersionObjectReference("Ingress", "web", "networking.k8s.io/v1")
    is_value = draw.random() < 0.5
    return MetricSpec(
        kind,
        "depth",
        described=described if kind == "Object" else None,
        selector=selector,
        target_type="Value" if is_value else "AverageValue",
        value_milli=target if is_value else None,
        average_value_milli=None if is_value else target,
    )


def value(draw: Random, target: int) -> int:
    """Return a value around ``target``, often exactly on a border, seldom absurd."""
    shares = (0.0, 0.5, 0.899, 0.9, 0.901, 1.0, 1.099, 1.1, 1.101, 2.0, 7.3)
    roll = draw.random()
    if roll < 0.02:
        return draw.choice((2**63 - 1, -5, 10**15))
    return min(int(target * draw.choice(shares)), 2**63 - 1)


def answer(draw: Random, spec: MetricSpec, names: Sequence[str], now: float) -> MetricAnswer:
    target = spec.average_value_milli or spec.value_milli or (spec.average_utilization or 1) * 2
    if spec.type == "Object":
        return core.ObjectSample(core.Sample(value(draw, target * 3), now - draw.choice(AGES)), now)
    if spec.type == "External":
        series = [
            core.ExternalSample({"n": str(n)}, core.Sample(value(draw, target), now - 15))
            for n in range(draw.choice((0, 1, 1, 2, 3)))
        ]
        return core.ExternalSamples(series, now)
    told = [name for name in names if draw.random() < 0.85]
    if draw.random() < 0.15:
        told.append("gone-0")
    samples = {
        name: core.Sample(
            value(draw, target),
            draw.choice((None, now - draw.choice(AGES))),
            draw.choice((None, 30.0, 60.0)),
        )
        for name in told
    }
    return core.PodSamples(
        samples, now, frozenset({"old-0"}) if draw.random() < 0.1 else frozenset()
    )


def pods(draw: Random, count: int, now: float) -> Pods:
    is_quiet = draw.random() < 0.5
    phases = (PodPhase.RUNNING,) * 6 + (
        PodPhase.PENDING,
        PodPhase.FAILED,
        PodPhase.SUCCEEDED,
        PodPhase.UNKNOWN,
    )
    readies = (PodReadiness.TRUE,) * 5 + (
        PodReadiness.FALSE,
        PodReadiness.UNKNOWN,
        PodReadiness.ABSENT,
    )
    requests = {"cpu": 200, "memory": 10**9}
    full = WirePodTemplate((TemplateContainer("app", requests),))
    sidecar = TemplateContainer("proxy", {"cpu": 50}, is_sidecar=True)
    bare = WirePodTemplate((TemplateContainer("app", {}),), (sidecar,))
    level = WirePodTemplate((TemplateContainer("app", {}),), (), {"cpu": 300}, {"cpu": 10})
    templates = (full, full, level) if draw.random() < 0.9 else (full, bare, level)
    rows = range(count)
    owners = ("Deployment/web", "Job/batch")
    return Pods(
        tuple(f"web-{row}" for row in rows),
        bytes(PodPhase.RUNNING if is_quiet else draw.choice(phases) for _ in rows),
        bytes(PodReadiness.TRUE if is_quiet else draw.choice(readies) for _ in rows),
        bytes(0 if is_quiet else draw.random() < 0.1 for _ in rows),
        tuple(draw.choice((None, now - draw.choice(AGES))) for _ in rows),
        tuple(draw.choice((None, now - draw.choice(AGES))) for _ in rows),
        tuple(draw.randrange(3) for _ in rows),
        templates,
        tuple(int(draw.random() < 0.1) for _ in rows),
        owners,
    )


def rules(draw: Random, default: Rules) -> Rules:
    if draw.random() < 0.3:
        return default
    policies = tuple(
        Policy(
            draw.choice(("Pods", "Percent")),
            draw.choice((1, 2, 10, 50, 100, 700)),
            draw.choice((1, 15, 60, 300, 1800)),
        )
        for _ in range(draw.randint(1, 3))
    )
    return Rules(
        draw.choice((default.window_s, 0, 15, 60, 300, 3600)),
        draw.choice(("Max", "Max", "Min", "Disabled")),
        policies,
        draw.choice((None, None, 0.0, 0.01, 0.5)),
    )


def behavior(draw: Random) -> Behavior | None:
    return None if draw.random() < 0.4 else Behavior(rules(draw, UP), rules(draw, DOWN))


def options(draw: Random, metrics: Sequence[MetricSpec]) -> Options:
    if draw.random() < 0.7:
        return Options()
    fallback = draw.choice((Fallback("hold"), Fallback("replicas", 3), Fallback("last", 0, 300.0)))
    return Options(
        is_paused=draw.random() < 0.05,
        fallbacks=((metrics[0].name, fallback),),
        may_lower=draw.random() < 0.3,
        pods_by_owner=draw.random() < 0.3,
    )


def events(draw: Random, now: float) -> tuple[ScaleEvent, ...]:
    return tuple(
        ScaleEvent(draw.randint(1, 5), now - draw.choice(AGES), draw.random() < 0.2)
        for _ in range(draw.choice((0, 0, 1, 3)))
    )


def past(draw: Random, now: float) -> Past:
    made = None
    if draw.random() < 0.8:
        made = tuple(
            Recommendation(draw.randint(0, 12), now - draw.choice(AGES))
            for _ in range(draw.choice((0, 1, 5, 20)))
        )
    good = (GoodProposal("Pods::qps:", draw.randint(0, 12), now - draw.choice(AGES)),)
    return Past(made, events(draw, now), events(draw, now), draw.choice(((), good)))


def settings(draw: Random) -> Settings:
    return Settings(
        release=draw.choice(("1.36", "1.37", "1.38")),
        gates=Gates(
            scale_to_zero=draw.random() < 0.8,
            configurable_tolerance=draw.random() < 0.8,
            pod_level_resources=draw.random() < 0.8,
        ),
        mode=draw.choice(("replace", "replace", "shadow")),
        tolerance=draw.choice((0.0, 0.1, 0.1, 0.5)),
        downscale_stabilization_s=draw.choice((0.0, 60.0, 300.0)),
        metric_max_age_s=draw.choice((None, None, 300.0)),
    )


def hpa(draw: Random) -> HPA:
    metrics = tuple(metric(draw) for _ in range(draw.choice((1, 1, 2, 3))))
    minimum = draw.choice((0, 1, 1, 2, 5))
    conditions = (AutoscalerCondition("AbleToScale", "True", "ReadyForNewScale", "", NOW - 500),)
    zeroed = AutoscalerCondition("ScaledToZero", "True", "ScaledToZero", "", NOW - 500)
    before = draw.randint(0, 12)
    return HPA(
        "shop",
        "web",
        CrossVersionObjectReference(
            "Deployment", "web", draw.choice(("apps/v1",) * 20 + ("a/b/c",))
        ),
        max(minimum, draw.choice((1, 5, 10, 1000))),
        metrics,
        minimum,
        behavior(draw),
        HpaStatus(
            before,
            draw.choice((before, 0)),
            draw.choice((None, NOW - 600)),
            conditions=draw.choice(((), conditions, (zeroed,))),
        ),
        draw.choice((None, 3)),
        options(draw, metrics),
    )


def observation(draw: Random, now: float = NOW) -> Observation:
    written = hpa(draw)
    current = draw.choice((0, 1, 2, 3, 4, 10, 50))
    scale: Scale | ScaleUnreadable = Scale(
        current,
        draw.choice((current, current, 0, current + 2)),
        draw.choice(("app=web",) * 20 + ("", "a b c")),
    )
    if draw.random() < 0.03:
        scale = ScaleUnreadable("backend down", kind=draw.choice(("NotFound", "Other")))
    listed = pods(draw, draw.choice((0, 1, current, min(current, 5))), now)
    answers = tuple(
        failure(draw) if draw.random() < 0.15 else answer(draw, spec, listed.names, now)
        for spec in written.metrics
    )
    is_contested = draw.random() < 0.03
    return Observation(written, scale, listed, answers, ("other",) if is_contested else ())
