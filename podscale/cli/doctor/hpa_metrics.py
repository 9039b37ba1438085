"""The metrics of HPAs as the doctor's questions, and their schedules."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from adapter.doctor.diagnosis import Diagnosis
from adapter.doctor.evidence import AskedEvidence
from adapter.doctor.lint_objects import SCHEDULE_REFUSED
from adapter.doctor.lints import LintFinding
from adapter.doctor.objects import Hpa, HpaMetric, NamedMetricSource, ResourceMetricSource, World
from adapter.stages import Stage
from hpa.decide.api.options import read_options
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import SelectorError
from podscale.kube.client.errors import NoMatch
from podscale.kube.discovery.restmapper import Mapper

_OF_PODS = ("Pods", "Resource", "ContainerResource")


async def of_hpa(
    cluster: DoctorCluster, namespace: str, name: str
) -> tuple[list[AskedEvidence], list[str]]:
    """Return the metrics of an HPA as questions, and notes about those that are none.

    Usage of pods is asked for with the api ``resource``. Raises ``ClusterFailed``.
    """
    try:
        hpa = msgspec.convert(await cluster.hpa(namespace, name), Hpa)
        for metric in hpa.spec.metrics:
            _ = metric.source and metric.source.selector
    except (msgspec.ValidationError, SelectorError) as error:
        why = since_1_36(str(error))
        raise ClusterFailed(f"the HPA {name} in namespace {namespace}: {why}") from error
    about = hpa.spec.scale_target_ref
    asked, notes = [], []
    pods = ""
    if any(metric.type in _OF_PODS for metric in hpa.spec.metrics):
        pods = await cluster.target_selector(namespace, about.kind, about.api_version, about.name)
    for metric in hpa.spec.metrics:
        try:
            made = _question(metric, namespace, pods, cluster.mapper)
        except NoMatch as error:
            raise ClusterFailed(f"the object of metric {_name(metric)}: {error}") from error
        if made is None:
            notes.append(f"a metric of type {metric.type} is not known here")
        else:
            asked.append(made)
    return asked, sorted(set(notes))


def unexposed(
    hpas: Iterable[Hpa], mapper: Mapper, exposed: Mapping[str, Collection[str]]
) -> Iterator[tuple[Hpa, AskedEvidence, Diagnosis | None]]:
    """Yield each metric that an HPA asks for and nobody lists, with what is known already.

    ``exposed`` are the names by API, as discovery lists them; an API that is not among its
    keys is not judged. Which pods are meant does not matter to it.
    """
    for hpa in hpas:
        for metric in hpa.metrics:
            try:
                made = _question(metric, hpa.metadata.namespace, "", mapper)
            except NoMatch as error:
                asked = AskedEvidence("custom", _name(metric), hpa.metadata.namespace)
                yield hpa, asked, _no_kind(error)
                continue
            except SelectorError:
                continue  # the API server refuses it since 1.36, and the HPA says so itself
            if made is None or made.api not in exposed:
                continue
            name = f"{made.resource}/{made.metric}" if made.api == "custom" else made.metric
            if name not in exposed[made.api]:
                yield hpa, made, None


def refused_schedules(world: World) -> Iterator[LintFinding]:
    """Yield the HPAs that our HPA controller does not lower, for what it cannot follow."""
    for hpa in world.hpas:
        if why := read_options(hpa.metadata.annotations or {}).refused_schedule:
            yield LintFinding(SCHEDULE_REFUSED, hpa.subject, f"it is not lowered: {why}")


def _no_kind(error: NoMatch) -> Diagnosis:
    change = "Correct object.describedObject of the HPA, or install what serves the kind."
    return Diagnosis(Stage.OBJECT_MISMATCH, f"{error}.", change)


def _name(metric: HpaMetric) -> str:
    return metric.source.name if metric.source else ""


def _question(metric: HpaMetric, namespace: str, pods: str, mapper: Mapper) -> AskedEvidence | None:
    """Return what is asked for, ``None`` for an unknown type.

    Raises ``NoMatch`` for an object of a kind that is not served, and ``SelectorError``.
    """
    match metric:
        case HpaMetric(type="Pods", pods=NamedMetricSource() as source):
            return AskedEvidence("custom", source.name, namespace, "pods", "*", pods,
                                 source.selector)  # fmt: skip
        case HpaMetric(type="Object", object=NamedMetricSource() as source):
            described = source.described_object
            group = described.api_version.rpartition("/")[0]
            resource = mapper.for_kind(described.kind, group)[0].group_resource
            return AskedEvidence("custom", source.name, namespace, resource, described.name, "",
                                 source.selector)  # fmt: skip
        case HpaMetric(type="External", external=NamedMetricSource() as source):
            return AskedEvidence("external", source.name, namespace,
                                 metric_selector=source.selector)  # fmt: skip
        case HpaMetric(type="Resource", resource=ResourceMetricSource() as used):
            return AskedEvidence("resource", used.name, namespace, "pods", "*", pods)
        case HpaMetric(type="ContainerResource", container_resource=ResourceMetricSource() as used):
            return AskedEvidence("resource", used.name, namespace, "pods", "*", pods,
                                 container=used.container)  # fmt: skip
    return None
