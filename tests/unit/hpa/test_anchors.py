"""Which anchor an autoscaler's target hangs on, and what is said where there is none."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

from hpa.cluster.stores import VpaAnchors, is_coordinated
from hpa.decide.api.options import read_options
from hpa.decide.api.spec import HPA, MetricSpec, Options
from hpa.decide.observation import HeldTarget
from hpa.decide.settings import Settings
from podscale.coordinate.anchor import ANNOTATION, Anchor, format_anchor
from podscale.core.settings import COMFORT, COORDINATE
from podscale.kube.client.errors import ApiUnreachable, KubeError, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.vpa import MOST_NAMES, StoredVpa
from tests.kit.stores import fill

CPU = MetricSpec("Resource", "cpu", average_utilization=60)
APP = MetricSpec("ContainerResource", "cpu", container="app", average_utilization=60)
ANCHOR = Anchor(1000, 700, "u-web")


def vpa(name: str = "web", anchor: Anchor | None = ANCHOR, **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": "web"}
    notes = {ANNOTATION: format_anchor(anchor)} if anchor is not None else {}
    meta = {"name": name, "namespace": "shop", "resourceVersion": "1", "annotations": notes}
    return {"metadata": meta, "spec": {"targetRef": target, **spec}}


def policies(*found: dict[str, Any]) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": list(found)}}


TOO_MANY = {f"example.com/{number}": 1 for number in range(MOST_NAMES + 1)}
LONG = policies({"containerName": "app", "maxAllowed": TOO_MANY})


def fed(*vpas: dict[str, Any]) -> VpaAnchors:
    anchors = VpaAnchors(("",))
    listed = [decode(msgspec.json.encode(each), StoredVpa) for each in vpas]
    fill(anchors.store, listed)
    return anchors


def held(anchors: VpaAnchors, *metrics: MetricSpec, uid: str = "u-web") -> HeldTarget:
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    return anchors.held(HPA("shop", "web", target, 9, metrics or (CPU,)), uid)


def test_the_anchor_of_the_vpa_with_the_same_target_holds():
    found = held(fed(vpa(), vpa("other") | {"spec": {"targetRef": {"kind": "Job", "name": "web"}}}))
    assert (found.reason, found.anchor, found.container) == ("AnchorHeld", ANCHOR, "")


@pytest.mark.parametrize(
    ("settings", "asked", "is_it"),
    [
        (Settings(), None, False),
        (Settings(), True, True),
        (Settings(coordinates=True), None, True),
        (Settings(coordinates=True), False, False),
        (Settings(mode="shadow"), True, False),
    ],
)
def test_who_does_not_ask_is_as_upstream_has_it(settings, asked, is_it):
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    hpa = HPA("shop", "web", target, 9, (CPU,), options=Options(coordinates=asked))
    assert is_coordinated(hpa, settings) is is_it


@pytest.mark.parametrize(
    ("vpas", "metrics", "reason"),
    [
        pytest.param((), (CPU,), "NoVpa", id="none"),
        pytest.param((vpa(), vpa("twin")), (CPU,), "TwoVpas", id="two"),
        pytest.param((vpa(), vpa("odd", **LONG)), (CPU,), "TwoVpas", id="one-is-not-readable"),
        pytest.param((vpa(updatePolicy={"updateMode": "Off"}),), (CPU,), "VpaOff", id="off"),
        pytest.param(
            (vpa(updatePolicy={"updateMode": "Initial"}),), (CPU,), "VpaOff", id="initial"
        ),
        pytest.param(
            (vpa(),), (MetricSpec("Resource", "cpu", average_value_milli=500),),
            "NoUtilizationTarget", id="average-value",
        ),
        pytest.param(
            (vpa(),), (MetricSpec("Resource", "memory", average_utilization=50),),
            "NoUtilizationTarget", id="memory-is-the-vpas",
        ),
        pytest.param(
            (vpa(**policies({"containerName": "app", "mode": "Off"})),), (APP,), "CpuNotSized",
            id="another-container",
        ),
        pytest.param(
            (vpa(**policies({"containerName": "*", "controlledResources": ["memory"]})),), (CPU,),
            "CpuNotSized", id="memory-only",
        ),
    ],
)  # fmt: skip
def test_without_a_pair_pods_count_as_they_request_and_may_shrink(vpas, metrics, reason):
    found = held(fed(*vpas), *metrics)
    assert (found.reason, found.anchor, found.may_shrink) == (reason, None, True)
    assert found.text


@pytest.mark.parametrize(
    "spec",
    [
        policies({"containerName": "sidecar", "mode": "Off"}),
        policies({"containerName": "*", "mode": "Off"}, {"containerName": "app"}),
        policies({"containerName": "app", "controlledResources": ["cpu"]}),
    ],
)
def test_a_vpa_that_sizes_the_container_holds_its_target(spec):
    of_app = structs.replace(ANCHOR, container="app")
    assert held(fed(vpa(anchor=of_app, **spec)), APP).reason == "AnchorHeld"
    assert held(fed(vpa(**spec))).reason == "AnchorHeld"


@pytest.mark.parametrize(
    ("anchors", "uid", "reason"),
    [
        pytest.param(fed(vpa(anchor=None)), "u-web", "NoAnchor", id="not-written-yet"),
        pytest.param(fed(vpa()), "u-made-anew", "NoAnchor", id="of-another-workload"),
        pytest.param(fed(vpa()), "", "NoAnchor", id="of-an-unknown-workload"),
        pytest.param(
            fed(vpa(anchor=structs.replace(ANCHOR, container="app"))),
            "u-web",
            "NoAnchor",
            id="of-one-container",
        ),
        pytest.param(VpaAnchors(("",)), "u-web", "VpasUnknown", id="not-listed"),
        pytest.param(fed(vpa(**LONG)), "u-web", "VpasUnknown", id="only-its-target-is-readable"),
    ],
)
def test_what_is_not_known_shrinks_nothing(anchors, uid, reason):
    found = held(anchors, uid=uid)
    assert (found.reason, found.anchor, found.may_shrink) == (reason, None, False)


def broken(error: KubeError) -> VpaAnchors:
    anchors = VpaAnchors(("",))
    anchors.store.apply(WatchBroken(str(error), error), scope="", now=0.0)
    return anchors


def test_a_cluster_without_vpas_has_none():
    assert held(broken(ObjectNotFound(404, "NotFound", "no such resource"))).reason == "NoVpa"
    assert held(broken(ApiUnreachable("away"))).reason == "VpasUnknown"


@pytest.mark.parametrize(
    ("anchors", "at_most_s"),
    [
        (fed(vpa()), 1.0),
        (broken(ObjectNotFound(404, "NotFound", "no such resource")), 1.0),
        (VpaAnchors(("",)), 61.0),
    ],
    ids=["listed", "no-crd", "hangs"],
)
@pytest.mark.looptime
async def test_the_first_decision_waits_for_the_vpas_and_not_for_ever(anchors, at_most_s):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await anchors.wait_listed()
    assert loop.time() - began <= at_most_s


def test_a_vpa_whose_target_cannot_be_read_is_none():
    assert held(fed(vpa() | {"spec": {"targetRef": 5}})).reason == "NoVpa"


def test_a_vpa_that_leaves_holds_nothing():
    anchors = fed(vpa())
    fill(anchors.store, (), "2")
    assert held(anchors).reason == "NoVpa"


@pytest.mark.parametrize(
    ("written", "coordinates", "problems"),
    [
        ({}, None, 0),
        ({COORDINATE: "on"}, True, 0),
        ({COORDINATE: "off", COMFORT: "3-30"}, False, 0),
        ({COORDINATE: "yes"}, None, 1),
        ({COORDINATE: "on", COMFORT: "30-3"}, True, 1),
        ({COORDINATE: "on", COMFORT: "0-3"}, True, 1),
        ({COORDINATE: "on", COMFORT: "many"}, True, 1),
    ],
)
def test_the_annotations_are_read(written, coordinates, problems):
    found = read_options(written)
    assert (found.coordinates, len(found.problems)) == (coordinates, problems)


def test_a_status_of_a_vpa_changes_nothing_for_autoscalers() -> None:
    anchors = fed(vpa())
    before = held(anchors)
    newer = vpa() | {"status": {"recommendation": {}}}
    newer["metadata"]["resourceVersion"] = "2"
    newer["metadata"]["annotations"]["somebody.else/note"] = "x"
    anchors.store.accept(decode(msgspec.json.encode(newer), StoredVpa))
    assert held(anchors) == before
    newer = vpa(anchor=None)
    newer["metadata"]["resourceVersion"] = "3"
    anchors.store.accept(decode(msgspec.json.encode(newer), StoredVpa))
    assert held(anchors).reason == "NoAnchor"
