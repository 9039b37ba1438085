"""What is asked for each kind of metric."""

from msgspec import structs

from hpa.decide.api.spec import MetricSpec
from hpa.loop.observe import questions
from podscale.core.metrics import (
    ExternalMetric,
    NotFound,
    ObjectMetric,
    PodMetric,
    PodResource,
    Refused,
)
from podscale.kube.client.resource import SERVICES
from podscale.kube.client.wire import LabelSelector, LabelSelectorRequirement
from podscale.kube.discovery import Mapper
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from tests.unit.hpa.hpas import PLAIN_HPA

MAPPER = Mapper([SERVICES])


def asked(*metrics: MetricSpec) -> tuple[object, ...]:
    return questions(structs.replace(PLAIN_HPA, metrics=metrics), "app=web", MAPPER)


def test_each_type_asks_its_own_question() -> None:
    selector = LabelSelector(
        {"queue": "a"}, (LabelSelectorRequirement("zone", "In", ("z2", "z1")),)
    )
    service = CrossVersionObjectReference("Service", "shop", "v1")
    assert asked(
        MetricSpec("Resource", "cpu"),
        MetricSpec("ContainerResource", "memory", container="app"),
        MetricSpec("Pods", "load", selector=selector),
        MetricSpec("Object", "load", described=service),
        MetricSpec("External", "queue", selector=LabelSelector()),
        MetricSpec("Strange"),
    ) == (
        PodResource("shop", "app=web", "cpu"),
        PodResource("shop", "app=web", "memory", "app"),
        PodMetric("shop", "load", "app=web", "queue=a,zone in (z1,z2)"),
        ObjectMetric("shop", "services", "shop", "load"),
        ExternalMetric("shop", "queue"),
        None,
    )


def test_a_namespace_is_always_the_hpas_own() -> None:
    other = CrossVersionObjectReference("Namespace", "elsewhere", "v1")
    (question,) = asked(MetricSpec("Object", "load", described=other))
    assert question == ObjectMetric("shop", "namespaces", "shop", "load")


def test_what_cannot_be_asked_is_a_failure_of_that_metric() -> None:
    nobody = CrossVersionObjectReference("Gadget", "g", "example.com/v1")
    bad = LabelSelector(None, (LabelSelectorRequirement("a", "Near", ()),))
    found = asked(
        MetricSpec("Object", "load", described=nobody), MetricSpec("Pods", "load", selector=bad)
    )
    assert isinstance(found[0], NotFound)
    assert "no matches for kind" in found[0].message
    assert isinstance(found[1], Refused)
