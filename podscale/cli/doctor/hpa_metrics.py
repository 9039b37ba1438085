"""The metrics of HPAs as the doctor's questions."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from adapter.doctor.evidence import AskedEvidence
from adapter.doctor.findings import Diagnosis
from adapter.stages import Stage
from hpa.decide.api.spec import MetricSpec
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.cli.doctor.object_lints import LintedHpa
from podscale.core.quantity import QuantityError
from podscale.core.selectors import selector
from podscale.core.selectors.labels import since_1_36
from podscale.kube.client.errors import NoMatch
from podscale.kube.client.wire import convert
from podscale.kube.discovery import Mapper
from podscale.kube.objects.autoscaler import Autoscaler

_OF_PODS = ("Pods", "Resource", "ContainerResource")


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
                change = (
                    "Correct object.describedObject of the HPA, or install what serves the kind."
                )
                asked = AskedEvidence("custom", metric.name, hpa.spec.namespace)
                yield hpa, asked, Diagnosis(Stage.OBJECT_MISMATCH, f"{error}.", change)
                continue
            except selector.SelectorError:
                continue  # the API server refuses it since 1.36, and the HPA says so itself
            if question is None or question.api not in exposed:
                continue
            name = question.metric
            if question.api == "custom":
                name = f"{question.resource}/{name}"
            if name not in exposed[question.api]:
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
