"""What is wrong with HPAs and VPAs that the API server accepts. Pure; see ``lints``."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from adapter.doctor.lints import LintFinding
from podscale.core import selector
from podscale.core.settings import unknown_settings

NO_REQUESTS = "NoRequests"
HPA_AND_VPA = "HPAAndVPA"
MIN_EQUALS_MAX = "MinEqualsMax"
FOREIGN_PODS = "ForeignPods"
UNKNOWN_ANNOTATION = "UnknownAnnotation"

OBJECT_LINTS: Mapping[str, str] = {
    NO_REQUESTS: "a utilisation target over containers without requests",
    HPA_AND_VPA: "an HPA and a VPA on one resource of one workload",
    MIN_EQUALS_MAX: "an HPA whose minReplicas is its maxReplicas",
    FOREIGN_PODS: "an HPA's selector matches pods of somebody else",
    UNKNOWN_ANNOTATION: "a podscale.io/ annotation of an HPA that is no setting",
}


class _Owner(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel"):
    """``metadata``, as far as it matters here."""

    name: str = ""
    namespace: str = "default"
    labels: Mapping[str, str] = {}
    owner_references: Sequence[_Owner] = ()


class MetricReference(Struct, frozen=True, rename="camel"):
    """``scaleTargetRef`` or ``targetRef``."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class _Target(Struct, frozen=True):
    type: str = ""


class _Resource(Struct, frozen=True):
    name: str = ""
    container: str = ""
    target: _Target = _Target()


class _Metric(Struct, frozen=True, rename="camel"):
    type: str = ""
    resource: _Resource | None = None
    container_resource: _Resource | None = None

    @property
    def about(self) -> _Resource | None:
        return self.resource or self.container_resource


class _HpaSpec(Struct, frozen=True, rename="camel"):
    scale_target_ref: MetricReference = MetricReference()
    min_replicas: int = 1
    max_replicas: int = 0
    metrics: Sequence[_Metric] = ()


class HpaMeta(Meta, frozen=True, rename="camel"):
    """``metadata`` of an HPA, whose annotations are settings."""

    annotations: Mapping[str, str] | None = None


class Hpa(Struct, frozen=True):
    """A HorizontalPodAutoscaler, autoscaling/v2."""

    metadata: HpaMeta = HpaMeta()
    spec: _HpaSpec = _HpaSpec()

    @property
    def metrics(self) -> Sequence[_Metric]:
        """The metrics; none written means CPU utilisation, as the API server defaults."""
        return self.spec.metrics or (
            _Metric("Resource", resource=_Resource("cpu", target=_Target("Utilization"))),
        )


class _ContainerPolicy(Struct, frozen=True, rename="camel"):
    container_name: str = "*"
    mode: str = "Auto"
    controlled_resources: Sequence[str] | None = None


class _ResourcePolicy(Struct, frozen=True, rename="camel"):
    container_policies: Sequence[_ContainerPolicy] = ()


class _UpdatePolicy(Struct, frozen=True, rename="camel"):
    update_mode: str = "Recreate"


class _VpaSpec(Struct, frozen=True, rename="camel"):
    target_ref: MetricReference = MetricReference()
    update_policy: _UpdatePolicy | None = None
    resource_policy: _ResourcePolicy | None = None


class LintedVpa(Struct, frozen=True):
    """A VerticalPodAutoscaler."""

    metadata: Meta = Meta()
    spec: _VpaSpec = _VpaSpec()

    @property
    def changes(self) -> frozenset[str]:
        """The resources whose requests it sets."""
        if self.spec.update_policy and self.spec.update_policy.update_mode == "Off":
            return frozenset()
        policies = self.spec.resource_policy.container_policies if self.spec.resource_policy else ()
        if not policies:
            return frozenset(["cpu", "memory"])
        found: set[str] = set()
        for policy in policies:
            if policy.mode != "Off":
                controlled = policy.controlled_resources
                found.update(("cpu", "memory") if controlled is None else controlled)
        return frozenset(found)


class _Requests(Struct, frozen=True):
    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}


class _Container(Struct, frozen=True):
    name: str = ""
    resources: _Requests = _Requests()


class _PodSpec(Struct, frozen=True):
    containers: Sequence[_Container] = ()


class _Template(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(Struct, frozen=True):
    selector: Mapping[str, object] | None = None
    template: _Template = _Template()


class LintedWorkload(Struct, frozen=True):
    """A Deployment, StatefulSet, or whatever has a pod template."""

    kind: str = ""
    metadata: Meta = Meta()
    spec: _WorkloadSpec = _WorkloadSpec()


class PodFacts(Struct, frozen=True):
    """A pod, as far as labels and owners go."""

    metadata: Meta = Meta()


class World(Struct, frozen=True):
    """The objects to look at; all of one cluster, or of one file."""

    hpas: Sequence[Hpa] = ()
    vpas: Sequence[LintedVpa] = ()
    workloads: Sequence[LintedWorkload] = ()
    pods: Sequence[PodFacts] = ()
    replica_sets: Sequence[PodFacts] = ()  # they stand between a pod and its Deployment


_WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet")


def read(objects: Collection[Mapping[str, object]]) -> World:
    """Return the objects that matter; raises ``msgspec.ValidationError`` for a broken one."""
    hpas, vpas, pods, workloads, sets = [], [], [], [], []
    for each in objects:
        kind = each.get("kind")
        if kind == "HorizontalPodAutoscaler":
            hpas.append(msgspec.convert(each, Hpa))
        elif kind == "VerticalPodAutoscaler":
            vpas.append(msgspec.convert(each, LintedVpa))
        elif kind == "Pod":
            pods.append(msgspec.convert(each, PodFacts))
        elif kind in _WORKLOADS:
            workloads.append(msgspec.convert(each, LintedWorkload))
        if kind == "ReplicaSet":
            sets.append(msgspec.convert(each, PodFacts))
    return World(hpas, vpas, workloads, pods, sets)


def joined(worlds: Iterable[World]) -> World:
    """Return the objects of all, in their order."""
    every = list(worlds)
    return World(*(
        [each for world in every for each in getattr(world, field)]
        for field in World.__struct_fields__
    ))  # fmt: skip


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
        told = [*_of_hpa(hpa), *_beside_vpa(hpa, vpas.get(key, ()))]
        if workload is not None:
            told += _requests(hpa, workload)
            told += _foreign(workload, pods.get(hpa.metadata.namespace, ()), behind)
        subject = f"hpa/{hpa.metadata.name} in {hpa.metadata.namespace}"
        found += [LintFinding(k, subject, reason) for k, reason in told if k not in disabled]
    return found


def _of_hpa(hpa: Hpa) -> Iterator[tuple[str, str]]:
    if hpa.spec.min_replicas == hpa.spec.max_replicas:
        yield (
            MIN_EQUALS_MAX,
            f"minReplicas and maxReplicas are both {hpa.spec.max_replicas}: it will never scale",
        )

    for sentence in unknown_settings(hpa.metadata.annotations or {}):
        yield UNKNOWN_ANNOTATION, sentence


def _beside_vpa(hpa: Hpa, vpas: Sequence[LintedVpa]) -> Iterator[tuple[str, str]]:
    used = {m.about.name for m in hpa.metrics if m.about is not None}
    for vpa in vpas:
        both = sorted(used & vpa.changes)
        if both:
            yield (
                HPA_AND_VPA,
                (
                    f"vpa/{vpa.metadata.name} changes the requests of {' and '.join(both)} that "
                    "this HPA measures usage against: scale by another metric, or take the "
                    "resource out of the VPA's controlledResources"
                ),
            )


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
    behind: Mapping[tuple[str, str], _Owner | None],
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
    pod: Meta, workload: LintedWorkload, behind: Mapping[tuple[str, str], _Owner | None]
) -> bool:
    owner = _controller(pod)
    if owner is None:
        return False
    if owner.kind == "ReplicaSet" and workload.kind != "ReplicaSet":
        owner = behind.get((pod.namespace, owner.name)) or owner
        if owner.kind == "ReplicaSet":  # it was not given: a Deployment's begin with its name
            return owner.name.rpartition("-")[0] == workload.metadata.name
    return (owner.kind, owner.name) == (workload.kind, workload.metadata.name)


def _controller(meta: Meta) -> _Owner | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)


def _key(namespace: str, kind: str, name: str) -> tuple[str, str, str]:
    return namespace, kind, name
