"""Every field that our structs of Kubernetes' objects have stands in the API server's OpenAPI."""

import pkgutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct, structs

from podscale.kube import objects
from podscale.kube.client.wire import WireStatusDetails
from podscale.kube.objects.autoscaler import Autoscaler, AutoscalerSpec, _Whole
from podscale.kube.objects.cluster import (
    ApiService,
    ConfigMap,
    Lease,
    Node,
    ObjectReference,
    PodDisruptionBudget,
)
from podscale.kube.objects.pod import ContainerState, Pod, TemplateContainer, WirePodTemplate
from podscale.kube.objects.scale import CronJob, ReplicationController, WireScale, Workload
from podscale.kube.objects.vpa import LimitRangeItem, Resources, StoredVpa, Vpa
from tests.cluster.plane import Plane
from tests.tools.process import wait_until

ROOT = Path(__file__).parent.parent.parent
VPA = "io.k8s.autoscaling.v1.VerticalPodAutoscaler"
ROOTS: Mapping[type[Struct], tuple[str, ...]] = {
    Autoscaler: ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",),
    AutoscalerSpec: ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec",),
    WireScale: ("io.k8s.api.autoscaling.v1.Scale",),
    Pod: ("io.k8s.api.core.v1.Pod",),
    Node: ("io.k8s.api.core.v1.Node",),
    LimitRangeItem: ("io.k8s.api.core.v1.LimitRangeItem",),
    Resources: ("io.k8s.api.core.v1.ResourceRequirements",),
    StoredVpa: (VPA,),
    Vpa: (VPA,),
    ConfigMap: ("io.k8s.api.core.v1.ConfigMap",),
    ObjectReference: ("io.k8s.api.core.v1.ObjectReference",),
    ReplicationController: ("io.k8s.api.core.v1.ReplicationController",),
    Workload: tuple(
        f"io.k8s.api.apps.v1.{kind}"
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    ),
    CronJob: ("io.k8s.api.batch.v1.CronJob",),
    PodDisruptionBudget: ("io.k8s.api.policy.v1.PodDisruptionBudget",),
    Lease: ("io.k8s.api.coordination.v1.Lease",),
    ApiService: ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",),
    WireStatusDetails: ("io.k8s.apimachinery.pkg.apis.meta.v1.Status",),
}
# Made of what was decoded, in units of ours.
DERIVED = {ContainerState, TemplateContainer, WirePodTemplate, _Whole}
TO_COME = {(AutoscalerSpec, "syncPeriodSeconds"), (AutoscalerSpec, "")}  # KEP-6003, and ours


@pytest.fixture(scope="module")
def definitions(plane: Plane) -> Mapping[str, Any]:
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config/crds/vpa/vpa.yaml"))
    found: Mapping[str, Any] = {}

    def is_published() -> bool:
        nonlocal found
        found = plane.admin.get("/openapi/v2")["definitions"]
        return VPA in found

    wait_until("the CRD of VPAs is published", is_published, 60.0)
    return found


class Walk:
    """The structs that are reached from the roots, and the schemas at which each of them stands."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = dict(definitions)
        self.schemas: dict[type[Struct], set[str]] = defaultdict(set)
        for root, names in ROOTS.items():
            for name in names:
                self._visit(root, name)

    def fields(self, name: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self._definitions[name].get("properties", {})
        return properties

    def _visit(self, struct: type[Struct], name: str) -> None:
        if name in self.schemas[struct]:
            return
        self.schemas[struct].add(name)
        properties = self.fields(name)
        for field in structs.fields(struct):
            for below in structs_in(field.type):
                place = f"{name}.{field.encode_name}"
                for reference in self._references(place, properties.get(field.encode_name, {})):
                    self._visit(below, reference)

    def _references(self, place: str, schema: Mapping[str, Any]) -> Iterator[str]:
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        if "properties" in schema:  # of a CRD, which refers to nothing
            self._definitions[place] = schema
            yield place
        for below in (schema.get("items"), schema.get("additionalProperties")):
            if isinstance(below, Mapping):
                yield from self._references(place, below)


def structs_in(kind: Any) -> Iterator[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for each in get_args(kind):
        yield from structs_in(each)


def test_every_field_of_our_structs_is_one_of_the_api_servers(
    definitions: Mapping[str, Any],
) -> None:
    walk = Walk(definitions)
    unknown = [
        f"{struct.__name__}.{field.encode_name} is in none of {sorted(names)}"
        for struct, names in walk.schemas.items()
        for field in structs.fields(struct)
        # One struct may stand for several kinds, and have a field that only one of them has.
        if (struct, field.encode_name) not in TO_COME
        if not any(field.encode_name in walk.fields(name) for name in names)
    ]
    assert not unknown


def test_no_struct_of_an_object_is_left_out(definitions: Mapping[str, Any]) -> None:
    modules = [
        import_module(f"{objects.__name__}.{found.name}")
        for found in pkgutil.iter_modules(objects.__path__)
    ]
    ours = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Struct)
        and each.__module__ == module.__name__
    }
    assert ours - DERIVED - Walk(definitions).schemas.keys() == set()


def test_a_field_that_is_misspelt_is_seen(definitions: Mapping[str, Any]) -> None:
    # What the walk compares is there: the names of the structs are not the server's by chance.
    walk = Walk(definitions)
    assert "maxReplicas" in walk.fields("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec")
    assert "max_replicas" not in walk.fields(
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec"
    )
    assert len(walk.schemas) > 60
