"""What is wrong with HPAs and VPAs that the API server accepts. Pure."""

from collections.abc import Iterator, Sequence

from adapter.doctor.findings import LintFinding
from hpa.decide.api.spec import MetricSpec
from podscale.cli.doctor.objects import LintedHpa, LintedVpa, LintedWorkload, Target, World
from podscale.coordinate.drift import drift
from podscale.coordinate.pairing import CONDITION, pair
from podscale.core.selectors import selector
from podscale.core.settings import COORDINATE, unknown_settings
from podscale.kube.client.wire import ObjectMeta

OBJECT_LINTS = {
    "NoRequests": "a utilisation target over containers without requests",
    "HPAAndVPA": "an HPA and a VPA on one resource of one workload",
    "TwoVPAs": "two VPAs on the target of an HPA",
    "NotCoordinated": "an HPA that is to be coordinated with a VPA, and is not",
    "MinEqualsMax": "an HPA whose minReplicas is its maxReplicas",
    "ForeignPods": "an HPA's selector matches pods of somebody else",
    "UnknownAnnotation": "a podscale.io/ annotation of an HPA that is no setting",
    "NotScaling": "an HPA whose controller says that it cannot decide",
    "ScheduleRefused": "an HPA that is not lowered because its schedule is refused",
}

_WISH = f"this HPA asks for it by {COORDINATE}"

Lints = Iterator[tuple[str, str]]  # of OBJECT_LINTS, and the reason


def lint_objects(world: World) -> Iterator[LintFinding]:
    """Yield the findings HPA by HPA."""
    for hpa in world.hpas:
        target = hpa.spec.namespace, hpa.spec.target.kind, hpa.spec.target.name
        found = [*_of_hpa(hpa), *_beside_vpas(hpa, world.vpas.get(target, ()))]
        if workload := world.workloads.get(target):
            found += _requests(hpa, workload, target)
            found += _foreign(workload, target, world)
        for lint, reason in found:
            yield LintFinding(lint, hpa.subject, reason)


def _of_hpa(hpa: LintedHpa) -> Lints:
    most = hpa.spec.max_replicas
    if hpa.spec.min_replicas == most:
        yield "MinEqualsMax", f"minReplicas and maxReplicas are both {most}: it will never scale"
    for sentence in unknown_settings(hpa.annotations):
        yield "UnknownAnnotation", sentence
    if hpa.failure:
        yield "NotScaling", f"its condition {hpa.failure}"
    if why := hpa.spec.options.refused_schedule:  # which our HPA controller cannot follow
        yield "ScheduleRefused", f"it is not lowered: {why}"


def _shares(hpa: LintedHpa) -> list[MetricSpec]:
    """Return the metrics that are a share of what pods request."""
    return [each for each in hpa.spec.metrics if each.target_type == "Utilization"]


def _beside_vpas(hpa: LintedHpa, vpas: Sequence[LintedVpa]) -> Lints:
    acting = [each for each in vpas if each.changes]
    if len(acting) > 1:
        names = " and ".join(sorted(f"vpa/{each.side.name}" for each in acting)[:2])
        text = f"{len(acting)} VPAs have its target ({names}), and which of them sizes a pod is"
        yield "TwoVPAs", f"{text} chance: delete all but one"
    wish = hpa.annotations.get(COORDINATE)
    has_condition = CONDITION in hpa.conditions
    cpu = next((each.container for each in _shares(hpa) if each.name == "cpu"), None)
    pairing = pair(cpu, [each.side for each in vpas])
    if wish == "on" and pairing.vpa is None and pairing.reason != "TwoVpas":
        yield "NotCoordinated", f"{_WISH}, and {pairing.text}: it scales as without it"
    elif wish == "on" and not has_condition:
        text = f"{_WISH}, and has no condition {CONDITION}: podscale's HPA part does not act on it"
        yield "NotCoordinated", f"{text} (mode replace or own)"
    is_held = pairing.vpa is not None and has_condition and wish != "off"
    for vpa in acting:
        for metric in _shares(hpa):
            if metric.name in vpa.changes and not (is_held and metric.name == "cpu"):
                yield "HPAAndVPA", _drifts(hpa, metric, vpa)
                break


def _drifts(hpa: LintedHpa, metric: MetricSpec, vpa: LintedVpa) -> str:
    text = (
        f"vpa/{vpa.side.name} changes the requests of {metric.name} that this HPA measures "
        "usage against"
    )
    ways = "scale by another metric, or take the resource out of the VPA's controlledResources"
    if metric.name != "cpu" or metric.average_utilization is None:
        return f"{text}: {ways}"
    used, sized = hpa.used_cpu(metric.container), vpa.sized_cpu(metric.container)
    return (
        f"{text}; {drift(metric.average_utilization, used, sized)}. Where podscale acts on "
        f'both, set {COORDINATE}: "on"; otherwise {ways}'
    )


def _requests(hpa: LintedHpa, workload: LintedWorkload, target: Target) -> Lints:
    for metric in _shares(hpa):
        bare = [
            each.name
            for each in workload.spec.template.spec.containers
            # The API server defaults a request from the limit.
            if metric.name not in (each.resources.requests or {})
            and metric.name not in (each.resources.limits or {})
            and metric.container in ("", each.name)
        ]
        if bare:
            text = (
                f"the target is a share of the {metric.name} request, and container "
                f"{', '.join(bare)} of {target[1]} {target[2]} has none "
                "(unless a LimitRange gives it one)"
            )
            yield "NoRequests", text


def _foreign(workload: LintedWorkload, target: Target, world: World) -> Lints:
    try:
        chosen = selector.from_wire(workload.spec.selector)
    except selector.SelectorError:
        return
    strangers = sorted(
        pod.name
        for pod in world.pods.get(target[0], ())
        if chosen.matches(pod.labels or {}) and not _belongs(pod, target, world)
    )
    if strangers:
        shown = ", ".join(strangers[:3]) + ("…" if len(strangers) > 3 else "")
        text = (
            f"the selector {chosen} of {target[1]} {target[2]} also matches "
            f"{len(strangers)} pod{'s' * (len(strangers) != 1)} not its own ({shown}), counted "
            "in every average. Give them other labels, or set podscale.io/pods-by: owner"
        )
        yield "ForeignPods", text


def _belongs(pod: ObjectMeta, target: Target, world: World) -> bool:
    owner = pod.controller
    if owner is not None and owner.kind == "ReplicaSet" and target[1] != "ReplicaSet":
        replica_set = world.replica_sets.get((pod.namespace, owner.name))
        if replica_set is None or replica_set.controller is None:
            # It was not read: a Deployment's begin with its name.
            return owner.name.rpartition("-")[0] == target[2]
        owner = replica_set.controller
    return owner is not None and (owner.kind, owner.name) == target[1:]
