"""The metrics of an HPA as the doctor's questions."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from adapter.doctor.evidence import AskedEvidence
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.core.labels import since_1_36
from podscale.core.selector import SelectorError, from_wire
from podscale.kube.errors import NoMatch

_OF_PODS = ("Pods", "Resource", "ContainerResource")


async def of_hpa(
    cluster: DoctorCluster, namespace: str, name: str
) -> tuple[list[AskedEvidence], list[str]]:
    """Return the metrics of an HPA as questions, and notes about those that are none.

    Usage of pods is asked for with the api ``resource``. Raises ``ClusterFailed``.
    """
    try:
        hpa = msgspec.convert(await cluster.hpa(namespace, name), _Hpa)
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
        match metric:
            case _Metric(type="Pods", pods=_Source() as source):
                asked.append(AskedEvidence("custom", source.name, namespace, "pods", "*", pods,
                                   source.selector))  # fmt: skip
            case _Metric(type="Object", object=_Source() as source):
                described = source.described_object
                group = described.api_version.rpartition("/")[0]
                try:
                    resource = cluster.mapper.for_kind(described.kind, group)[0].group_resource
                except NoMatch as error:
                    raise ClusterFailed(f"the object of metric {source.name}: {error}") from error
                if described.kind == "Namespace":
                    resource = "namespaces"
                asked.append(
                    AskedEvidence(
                        "custom", source.name, namespace, resource, described.name, "",
                        source.selector,
                    )
                )  # fmt: skip
            case _Metric(type="External", external=_Source() as source):
                asked.append(AskedEvidence("external", source.name, namespace,
                                   metric_selector=source.selector))  # fmt: skip
            case _Metric(type="Resource", resource=_Resource() as used):
                asked.append(AskedEvidence("resource", used.name, namespace, "pods", "*", pods))
            case _Metric(type="ContainerResource", container_resource=_Resource() as used):
                asked.append(AskedEvidence("resource", used.name, namespace, "pods", "*", pods,
                                   container=used.container))  # fmt: skip
            case _:
                notes.append(f"a metric of type {metric.type} is not known here")
    return asked, sorted(set(notes))


class _Reference(Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _Identifier(Struct, frozen=True):
    name: str = ""
    selector: Mapping[str, object] | None = None


class _Source(Struct, frozen=True, rename="camel"):
    metric: _Identifier = _Identifier()
    described_object: _Reference = _Reference()

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def selector(self) -> str:
        return str(from_wire(self.metric.selector or {}))


class _Resource(Struct, frozen=True):
    name: str = ""
    container: str = ""  # of a container resource


class _Metric(Struct, frozen=True, rename="camel"):
    type: str = ""
    pods: _Source | None = None
    object: _Source | None = None
    external: _Source | None = None
    resource: _Resource | None = None
    container_resource: _Resource | None = None

    @property
    def source(self) -> _Source | None:
        return self.pods or self.object or self.external


class _HpaSpec(Struct, frozen=True, rename="camel"):
    scale_target_ref: _Reference = _Reference()
    metrics: Sequence[_Metric] = ()


class _Hpa(Struct, frozen=True):
    spec: _HpaSpec = _HpaSpec()
