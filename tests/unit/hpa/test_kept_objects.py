"""What is kept of watched objects is equal to what came, but for what nobody reads."""

import msgspec

from hpa.cluster.stores import (
    HpaStores,
    TargetWorkload,
    kept_autoscaler,
    kept_workload,
)
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.objects.autoscaler import Autoscaler, AutoscalerSpec
from podscale.kube.objects.scale import Workload
from tests.kit.stores import fill
from tests.unit.hpa.world import NS, deployment_object, hpa_object, writer

STATUS = {
    "currentReplicas": 2,
    "desiredReplicas": 3,
    "lastScaleTime": "2026-11-21T10:00:00Z",
    "observedGeneration": 4,
    "currentMetrics": [
        {"type": "Pods",
         "pods": {"metric": {"name": "load", "selector": {"matchLabels": {"a": "b"}}},
                  "current": {"averageValue": "987m"}}},
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}},
        {"type": "ContainerResource",
         "containerResource": {"name": "cpu", "container": "app", "current": {}}},
        {"type": "Object", "object": {"metric": {"name": "rate"}, "current": {"value": "3"},
                                      "describedObject": {"kind": "Ingress", "name": "web"}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"value": 4}}},
        {"type": "Strange"},
    ],
    "conditions": [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "as is",
         "lastTransitionTime": "2026-11-21T10:00:00Z"},
        {"type": "ScalingActive", "status": "False"},
    ],
}  # fmt: skip


def autoscaler(name: str) -> Autoscaler:
    made = hpa_object(name)
    made["metadata"] |= {
        "annotations": {"podscale.io/paused": "true", "other": "x"},
        "labels": {"team": "a"},
        "managedFields": [writer("podscale-hpa", "2026-11-21T10:00:00Z")],
        "ownerReferences": [
            {"kind": "ScaledObject", "name": name, "uid": "u", "apiVersion": "k/v1"}
        ],
    }
    made["spec"]["behavior"] = {"scaleDown": {"policies": [
        {"type": "Pods", "value": 1, "periodSeconds": 60}
    ]}}  # fmt: skip
    made["status"] = STATUS
    return decode(msgspec.json.encode(made), Autoscaler)


def workload(kind: type[Workload], labels: dict[str, str], **meta: object) -> Workload:
    made = deployment_object("web", 3)
    made["metadata"] |= {"labels": labels, "annotations": {"large": "x" * 1000}, **meta}
    return decode(msgspec.json.encode(made), kind)


def test_an_autoscaler_stays_equal_but_for_its_owners_and_annotations_of_others() -> None:
    came = autoscaler("web")
    ours = {"podscale.io/paused": "true"}
    meta = msgspec.structs.replace(came.metadata, annotations=ours, owner_references=())
    assert kept_autoscaler(came) == msgspec.structs.replace(came, metadata=meta)


def test_of_an_in_tree_autoscaler_beside_ours_only_whose_target_it_scales_is_kept() -> None:
    whole = kept_autoscaler(autoscaler("web"))
    spec = AutoscalerSpec(whole.spec.scale_target_ref)
    stores = HpaStores((), PodStore())
    fill(stores.claims, [autoscaler("web")])
    assert stores.claims.get(NS, "web") == Autoscaler(whole.metadata, spec)


def test_a_bare_autoscaler_stays_bare() -> None:
    came = decode(b'{"metadata":{"name":"web","namespace":"shop"}}', Autoscaler)
    assert kept_autoscaler(came) == came


def test_a_text_that_two_have_is_one_object() -> None:
    one, other = kept_autoscaler(autoscaler("web")), kept_autoscaler(autoscaler("api"))
    assert one.spec.metrics is not None
    assert other.spec.metrics is not None
    assert one.spec.metrics[0].pods is not None
    assert other.spec.metrics[0].pods is not None
    assert one.spec.metrics[0].pods.metric.name is other.spec.metrics[0].pods.metric.name
    assert one.status.conditions is not None
    assert other.status.conditions is not None
    assert one.status.conditions[0].message is other.status.conditions[0].message
    assert one.spec.scale_target_ref.name is one.metadata.name


def test_a_target_stays_equal_but_for_what_nobody_reads() -> None:
    owner = {"kind": "Rollout", "name": "web", "uid": "d", "controller": True}
    came = workload(
        TargetWorkload, {"app": "web", "more": "1"}, ownerReferences=[owner],
        managedFields=[writer("kubectl", "2026-11-21T10:00:00Z", "scale")],
    )  # fmt: skip
    kept = kept_workload(came)
    bare = msgspec.structs.replace(came.metadata, annotations=None, labels=None)
    assert kept == msgspec.structs.replace(came, metadata=bare)
    assert type(kept) is TargetWorkload


def test_a_deployments_replica_set_has_no_selector_and_its_owners_name_is_kept_once() -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": "d",
        "controller": True,
    }
    one, other = (
        kept_workload(workload(Workload, {"hash": text}, ownerReferences=[owner])) for text in "ab"
    )
    assert one.spec.selector is None
    assert one.spec.replicas == 3
    (owned,), (also,) = one.metadata.owner_references, other.metadata.owner_references
    assert owned.name is also.name
    alone = kept_workload(workload(Workload, {"app": "web"}))
    assert alone.spec.selector is not None


def test_a_number_beyond_64_bits_is_kept_as_it_came() -> None:
    made = hpa_object("web")
    made["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 7}}
    text = msgspec.json.encode(made).replace(b'Seconds":7', b'Seconds":' + b"9" * 30)
    came = decode(text, Autoscaler)  # only a CRD lets it through
    assert str(came.spec).count("9" * 30) == 1
    assert kept_autoscaler(came).spec == came.spec


def test_amounts_are_not_interned() -> None:
    # CPython 3.12.0 to 3.12.6 would keep each of them until the process ends.
    amounts = []
    for found in (kept_autoscaler(autoscaler("web")), kept_autoscaler(autoscaler("api"))):
        assert found.spec.metrics is not None
        assert found.spec.metrics[0].pods is not None
        amounts.append(found.spec.metrics[0].pods.target.average_value)
    assert amounts[0] == amounts[1]
    assert amounts[0] is not amounts[1]


def test_of_a_large_autoscaler_only_so_much_is_gone_through() -> None:
    # Whoever writes 300 metrics would have the loop share their texts for 10 ms and more.
    def last_name(name: str) -> str:
        made = hpa_object(name)
        made["spec"]["metrics"] = [
            {"type": "External", "external": {"metric": {"name": f"of-many-{number}"}}}
            for number in range(370)
        ]
        found = kept_autoscaler(decode(msgspec.json.encode(made), Autoscaler)).spec.metrics
        assert found is not None
        assert len(found) == 370
        assert found[-1].external is not None
        return found[-1].external.metric.name

    one, other = last_name("web"), last_name("api")
    assert one == other
    assert one is not other
