"""What is wrong with HPAs and VPAs that the API server accepts. Pure; see ``lints``."""

from collections.abc import Iterator, Mapping, Sequence

from adapter.doctor.lint_hpa_vpa import HPA_AND_VPA, NOT_COORDINATED, TWO_VPAS, beside_vpas
from adapter.doctor.lints import LintFinding
from adapter.doctor.objects import (
    Hpa,
    LintedVpa,
    LintedWorkload,
    Meta,
    ObjectOwner,
    PodFacts,
    World,
)
from podscale.core.selectors import selector
from podscale.core.settings import unknown_settings

NO_REQUESTS = "NoRequests"
MIN_EQUALS_MAX = "MinEqualsMax"
FOREIGN_PODS = "ForeignPods"
UNKNOWN_ANNOTATION = "UnknownAnnotation"
NOT_SCALING = "NotScaling"
SCHEDULE_REFUSED = "ScheduleRefused"

OBJECT_LINTS: Mapping[str, str] = {
    NO_REQUESTS: "a utilisation target over containers without requests",
    HPA_AND_VPA: "an HPA and a VPA on one resource of one workload",
    TWO_VPAS: "two VPAs on the target of an HPA",
    NOT_COORDINATED: "an HPA that is to be coordinated with a VPA, and is not",
    MIN_EQUALS_MAX: "an HPA whose minReplicas is its maxReplicas",
    FOREIGN_PODS: "an HPA's selector matches pods of somebody else",
    UNKNOWN_ANNOTATION: "a podscale.io/ annotation of an HPA that is no setting",
    NOT_SCALING: "an HPA whose controller says that it cannot decide",
    SCHEDULE_REFUSED: "an HPA that is not lowered because its schedule is refused",
}


def lint_objects(world: World, disabled: frozenset[str] = frozenset()) -> list[LintFinding]:
    """Return the findings HPA by HPA, without those of ``disabled`` lints."""
    workloads = {_key(w.metadata.namespace, w.kind, w.metadata.name): w for w in world.workloads}
    vpas: dict[tuple[str, str, str], list[LintedVpa]] = {}
    for vpa in world.vpas:
        about = vpa.spec.target_ref
        vpas.setdefault(_key(vpa.metadata.namespace, about.kind, about.name), []).append(vpa)
    pods: dict[str, list[PodFacts]] = {}
    for pod in world.pods:
        pods.setdefault(pod.metadata.namespace, []).append(pod)
    behind = {
        (each.metadata.namespace, each.metadata.name): _controller(each.metadata)
        for each in world.replica_sets
    }
    found = []
    for hpa in world.hpas:
        about = hpa.spec.scale_target_ref
        key = _key(hpa.metadata.namespace, about.kind, about.name)
        workload = workloads.get(key)
        told = [*_of_hpa(hpa), *beside_vpas(hpa, vpas.get(key, ()))]
        if workload is not None:
            told += _requests(hpa, workload)
            told += _foreign(workload, pods.get(hpa.metadata.namespace, ()), behind)
        found += [LintFinding(k, hpa.subject, reason) for k, reason in told if k not in disabled]
    return found


def _of_hpa(hpa: Hpa) -> Iterator[tuple[str, str]]:
    if hpa.spec.min_replicas == hpa.spec.max_replicas:
        yield (
            MIN_EQUALS_MAX,
            f"minReplicas and maxReplicas are both {hpa.spec.max_replicas}: it will never scale",
        )

    for sentence in unknown_settings(hpa.metadata.annotations or {}):
        yield UNKNOWN_ANNOTATION, sentence
    if hpa.failure:
        yield NOT_SCALING, f"its condition {hpa.failure}"


def _requests(hpa: Hpa, workload: LintedWorkload) -> Iterator[tuple[str, str]]:
    for metric in hpa.metrics:
        about = metric.about
        if about is None or about.target.type != "Utilization":
            continue
        bare = [
            container.name
            for container in workload.spec.template.spec.containers
            # The API server defaults a request from the limit.
            if about.name not in container.resources.requests
            and about.name not in container.resources.limits
            and about.container in ("", container.name)
        ]
        if bare:
            yield (
                NO_REQUESTS,
                (
                    f"the target is a share of the {about.name} request, and container "
                    f"{', '.join(bare)} of {workload.kind} {workload.metadata.name} has none "
                    "(unless a LimitRange gives it one)"
                ),
            )


def _foreign(
    workload: LintedWorkload,
    pods: Sequence[PodFacts],
    behind: Mapping[tuple[str, str], ObjectOwner | None],
) -> Iterator[tuple[str, str]]:
    try:
        chosen = selector.from_wire(workload.spec.selector)
    except selector.SelectorError:
        return
    strangers = sorted(
        pod.metadata.name
        for pod in pods
        if chosen.matches(pod.metadata.labels) and not _belongs(pod.metadata, workload, behind)
    )
    if strangers:
        shown = ", ".join(strangers[:3]) + ("…" if len(strangers) > 3 else "")
        yield (
            FOREIGN_PODS,
            (
                f"the selector {chosen} of {workload.kind} {workload.metadata.name} also matches "
                f"{len(strangers)} pod{'s' * (len(strangers) != 1)} not its own ({shown}), counted "
                "in every average. Give them other labels, or set podscale.io/pods-by: owner"
            ),
        )


def _belongs(
    pod: Meta, workload: LintedWorkload, behind: Mapping[tuple[str, str], ObjectOwner | None]
) -> bool:
    owner = _controller(pod)
    if owner is None:
        return False
    if owner.kind == "ReplicaSet" and workload.kind != "ReplicaSet":
        owner = behind.get((pod.namespace, owner.name)) or owner
        if owner.kind == "ReplicaSet":  # it was not given: a Deployment's begin with its name
            return owner.name.rpartition("-")[0] == workload.metadata.name
    return (owner.kind, owner.name) == (workload.kind, workload.metadata.name)


def _controller(meta: Meta) -> ObjectOwner | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)


def _key(namespace: str, kind: str, name: str) -> tuple[str, str, str]:
    return namespace, kind, name
