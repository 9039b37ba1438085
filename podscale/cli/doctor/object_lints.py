"""HPAs and VPAs: what is wrong with those that the API server accepts, and the metrics of HPAs as
the doctor's questions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adapter.doctor.evidence import AskedEvidence, Diagnosis, LintFinding
from adapter.stages import Stage
from hpa.decide.api import reading
from hpa.decide.api.spec import HPA, MetricSpec
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.coordinate.pairing import CONDITION, drift, pair
from podscale.core.plainwords import plain_words
from podscale.core.quantity import QuantityError
from podscale.core.selectors import selector
from podscale.core.selectors.labels import since_1_36
from podscale.core.settings import COORDINATE, unknown_settings
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.errors import NoMatch
from podscale.kube.client.resource import DEPLOYMENTS, HPAS, PODS, REPLICA_SETS, STATEFUL_SETS, VPAS
from podscale.kube.client.wire import ObjectMeta, PartialObjectMetadata, convert, decode
from podscale.kube.discovery import Mapper
from podscale.kube.objects import vpa as vpa_objects
from podscale.kube.objects.autoscaler import Autoscaler, AutoscalerCondition
from podscale.kube.objects.pod import PodSpec

OBJECT_LINTS = {
    "NoRequests": "a utilisation target over containers without requests",
    "HPAAndVPA": "an HPA and a VPA on one resource of one workload",
    "TwoVPAs": "two VPAs on the target of an HPA",
    "NotCoordinated": "an HPA that is to be coordinated with a VPA, and is not",
    "MinEqualsMax": "an HPA whose minReplicas is its maxReplicas",
    "ForeignPods": "an HPA's selector matches pods of somebody else",
    "UnknownAnnotation": "a podscale.io/ annotation of an HPA that is no setting",
    "UnknownField": "a field of an HPA's spec that podscale does not know",
    "TwoSyncPeriods": "an HPA's spec.syncPeriodSeconds beside our annotation, which counts",
    "NotScaling": "an HPA whose controller says that it cannot decide",
    "ScheduleRefused": "an HPA that is not lowered because its schedule is refused",
}

_OF_PODS = ("Pods", "Resource", "ContainerResource")  # metrics that are asked for of pods
_NO_KIND = "Correct object.describedObject of the HPA, or install what serves the kind."
_WISH = f"this HPA asks for it by {COORDINATE}"

Lints = Iterator[tuple[str, str]]  # of OBJECT_LINTS, and the reason
Target = tuple[str, str, str]  # namespace, kind and name


class LintedHpa(Struct, frozen=True):
    """A HorizontalPodAutoscaler, and its annotations as they are written."""

    spec: HPA
    annotations: Mapping[str, str] = {}

    @classmethod
    def of(cls, written: Autoscaler) -> "LintedHpa":
        """Return the object; raises ``QuantityError``."""
        return cls(reading.read(written), written.metadata.annotations or {})

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"hpa/{self.spec.name} in {self.spec.namespace}"

    @property
    def conditions(self) -> Mapping[str, AutoscalerCondition]:
        """The conditions of its status, by type."""
        return {each.type: each for each in self.spec.status.conditions}

    @property
    def failure(self) -> str:
        """Since when its controller cannot decide, and why; ``""`` where it can."""
        found = self.conditions.get("ScalingActive")
        # ScalingDisabled is of an HPA whose target somebody scaled to zero.
        if found is None or found.status != "False" or found.reason == "ScalingDisabled":
            return ""
        at = found.last_transition_time
        since = f" since {rfc3339(at)}" if at else ""
        return f"{found.type} is False{since}: {found.reason}: {found.message}"

    def used_cpu(self, container: str) -> int | None:
        """Return the milli-cores that a pod or a container uses on average, as its status says."""
        for used in self.spec.status.metrics:
            if (used.name, used.container) == ("cpu", container):
                return used.average_value_milli
        return None


class LintedVpa(Struct, frozen=True):
    """A VerticalPodAutoscaler that has a target."""

    vpa: vpa_objects.Vpa
    cpu_milli: Mapping[str, int]  # that it recommends, by container

    def sized_cpu(self, container: str) -> int | None:
        """Return the milli-cores that it gives a container, or all of a pod for ``""``."""
        every = sum(self.cpu_milli.values())
        return (self.cpu_milli.get(container) if container else every) or None

    @property
    def changes(self) -> frozenset[str]:
        """The resources whose requests it sets."""
        if vpa_objects.update_mode(self.vpa) == "Off":
            return frozenset()
        policies = vpa_objects.container_policies(self.vpa.spec.resource_policy)
        every = policies or (vpa_objects.ContainerPolicy(),)
        resources = ("cpu", "memory")
        return frozenset(each for each in resources if any(policy.sizes(each) for policy in every))


class _Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class _WorkloadSpec(Struct, frozen=True):
    selector: Mapping[str, Any] | None = None
    template: _Template = _Template()


class LintedWorkload(Struct, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()


class World(Struct):
    hpas: list[LintedHpa] = []
    vpas: dict[Target, list[LintedVpa]] = {}
    workloads: dict[Target, LintedWorkload] = {}
    pods: dict[str, list[ObjectMeta]] = {}  # by namespace

    def add(self, kind: str, written: bytes | Raw) -> None:
        """Add what matters of an object; raises ``DecodeError`` and ``ValueError``."""
        meta = decode(written, PartialObjectMetadata).metadata
        if kind == "HorizontalPodAutoscaler":
            self.hpas.append(LintedHpa.of(decode(written, Autoscaler)))
        elif kind == "VerticalPodAutoscaler":
            self._add_vpa(meta, written)
        elif kind == "Pod":
            self.pods.setdefault(meta.namespace, []).append(meta)
        else:
            self.workloads[meta.namespace, kind, meta.name] = decode(written, LintedWorkload)

    def _add_vpa(self, meta: ObjectMeta, written: bytes | Raw) -> None:
        vpa = vpa_objects.vpa_of(decode(written, vpa_objects.StoredVpa))
        entries = vpa.status.recommendation and vpa.status.recommendation.container_recommendations
        cpu = {
            each.container_name: each.target["cpu"].milli
            for each in entries or ()
            if each.target and "cpu" in each.target
        }
        if vpa.spec.target_ref is not None:
            target = meta.namespace, vpa.spec.target_ref.kind, vpa.spec.target_ref.name
            self.vpas.setdefault(target, []).append(LintedVpa(vpa, cpu))


async def read_world(cluster: DoctorCluster, namespace: str) -> World:
    """Return the objects of ``namespace`` ("": of all); an odd one is a note, and hides none of
    the others. Little is kept of each, so no more than one page is held as it came.
    """
    world = World()
    for resource in (HPAS, VPAS, DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, PODS):
        if resource is VPAS and not any(r.plural == VPAS.plural for r in cluster.mapper.resources):
            continue
        async for page in cluster.listed(resource.path(namespace), resource.plural):
            for each in page:
                try:
                    world.add(resource.kind, each)
                except (msgspec.DecodeError, ValueError) as error:
                    name = decode(each, dict[str, Any]).get("metadata", {}).get("name", "")
                    why = plain_words(str(error))
                    cluster.notes.append(f"{resource.kind} {name} is not linted: {why}")
        if resource is HPAS and not world.hpas:
            break
    return world


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
    yield from hpa.spec.remarks
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
        names = " and ".join(sorted(f"vpa/{each.vpa.metadata.name}" for each in acting)[:2])
        text = f"{len(acting)} VPAs have its target ({names}), and which of them sizes a pod is"
        yield "TwoVPAs", f"{text} chance: delete all but one"
    wish = hpa.annotations.get(COORDINATE)
    has_condition = CONDITION in hpa.conditions
    cpu = next((each.container for each in _shares(hpa) if each.name == "cpu"), None)
    pairing = pair(cpu, [each.vpa for each in vpas])
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
        f"vpa/{vpa.vpa.metadata.name} changes the requests of {metric.name} that this HPA measures "
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
        replica_set = world.workloads.get((pod.namespace, "ReplicaSet", owner.name))
        if replica_set is None or replica_set.metadata.controller is None:
            # It was not read: a Deployment's begin with its name.
            return owner.name.rpartition("-")[0] == target[2]
        owner = replica_set.metadata.controller
    return owner is not None and (owner.kind, owner.name) == target[1:]


async def of_hpa(
    cluster: DoctorCluster, namespace: str, name: str
) -> tuple[list[AskedEvidence], list[str]]:
    """Return the metrics of an HPA as questions, and notes about those that are none.

    Usage of pods is asked for with the api ``resource``. Raises ``ClusterFailed``.
    """
    written = await cluster.hpa(namespace, name)
    asked, notes = [], set()
    pods = ""
    try:
        hpa = LintedHpa.of(convert(written, Autoscaler)).spec
        if any(metric.type in _OF_PODS for metric in hpa.metrics):
            pods = await cluster.target_selector(namespace, hpa.target)
        for metric in hpa.metrics:
            question = _question(metric, namespace, pods, cluster.mapper)
            if question is None:
                notes.add(f"a metric of type {metric.type} is not known here")
            else:
                asked.append(question)
    except NoMatch as error:
        raise ClusterFailed(f"the object of metric {metric.name}: {error}") from error
    except (msgspec.ValidationError, QuantityError, selector.SelectorError) as error:
        why = since_1_36(str(error))
        raise ClusterFailed(f"the HPA {name} in namespace {namespace}: {why}") from error
    return asked, sorted(notes)


def unexposed(
    hpas: Iterable[LintedHpa], mapper: Mapper, exposed: Mapping[str, Collection[str]]
) -> Iterator[tuple[LintedHpa, AskedEvidence, Diagnosis | None]]:
    """Yield each metric that an HPA asks for and nobody lists, with what is known already.

    ``exposed`` are the names by API, as discovery lists them; an API that is not among its
    keys is not judged. Which pods are meant does not matter to it.
    """
    for hpa in hpas:
        for metric in hpa.spec.metrics:
            try:
                question = _question(metric, hpa.spec.namespace, "", mapper)
            except NoMatch as error:
                asked = AskedEvidence("custom", metric.name, hpa.spec.namespace)
                yield hpa, asked, Diagnosis(Stage.OBJECT_MISMATCH, f"{error}.", _NO_KIND)
                continue
            except selector.SelectorError:
                continue  # the API server refuses it since 1.36, and the HPA says so itself
            if question is None or question.api not in exposed:
                continue
            kind = f"{question.resource}/" if question.api == "custom" else ""
            if f"{kind}{question.metric}" not in exposed[question.api]:
                yield hpa, question, None


def _question(
    metric: MetricSpec, namespace: str, pods: str, mapper: Mapper
) -> AskedEvidence | None:
    """Return what is asked for, ``None`` for an unknown type.

    Raises ``NoMatch`` for an object of a kind that is not served, and ``SelectorError``.
    """
    name = metric.name
    labels = str(metric.selector.parsed()) if metric.selector else ""
    match metric.type:
        case "Pods":
            return AskedEvidence("custom", name, namespace, "pods", "*", pods, labels)
        case "Object" if about := metric.described:
            group = about.api_version.rpartition("/")[0]
            resource = mapper.for_kind(about.kind, group)[0].group_resource
            return AskedEvidence("custom", name, namespace, resource, about.name, "", labels)
        case "External":
            return AskedEvidence("external", name, namespace, metric_selector=labels)
        case "Resource" | "ContainerResource":
            container = metric.container
            return AskedEvidence("resource", name, namespace, "pods", "*", pods, "", container)
    return None
