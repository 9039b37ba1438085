"""Somebody else scales: then that object is watched, and nothing of it is written."""

import asyncio

import pytest

from hpa.decide.settings import Settings
from hpa.decisions import DecisionsApi
from podscale.kube.client.resource import PODAUTOSCALERS
from podscale.kube.leadership.lease import Term
from tests.kit.nested import managed
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object, writer
from tests.unit.serving.kit import answered

pytestmark = pytest.mark.looptime

SETTINGS = Settings(sync_period_s=15.0)


def rescaled(cluster: Cluster, name: str, size: int, manager: str, subresource: str) -> None:
    found = cluster.world.workloads[(NS, name)]
    cluster.world.workloads[(NS, name)] = {
        **found,
        "metadata": {
            **found["metadata"],
            "resourceVersion": cluster.world.next_version(),
            "managedFields": [writer(manager, "2026-11-21T10:00:00Z", subresource)],
        },
        "spec": {**found["spec"], "replicas": size},
    }
    cluster.sync()


@pytest.mark.parametrize("resource", ["replace", "own"])
async def test_a_target_that_another_controller_scales_is_left_to_it(resource: str) -> None:
    more = {"resource": PODAUTOSCALERS} if resource == "own" else {}
    cluster = Cluster(settings=SETTINGS, **more)  # type: ignore[arg-type]
    for name in ("web", "other"):
        cluster.put(hpa_object(name), deployment_object(name, 2))
    cluster.put_pods(*(pod_object(n, row) for n in ("web", "other") for row in range(2)))
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(2.0)
    rescaled(cluster, "web", 3, "kube-controller-manager", "scale")
    cluster.world.writes.clear()
    cluster.provider.usage = lambda _question, _pod: 3000
    await asyncio.sleep(20.0)
    assert {name for name, _ in cluster.scales()} == {"other"}
    assert {name for name, _ in cluster.statuses()} == {"other"}
    assert cluster.controller.foreign_controller((NS, "web")) == "kube-controller-manager"
    assert cluster.metrics.counts.foreign == 1
    await asyncio.sleep(620.0)
    assert "web" in {name for name, _ in cluster.scales()}  # it has been quiet for long
    leading.cancel()
    await asyncio.wait({leading})


@pytest.mark.parametrize("part", ["hpa", "target"])
async def test_whoever_cannot_be_read_counts_as_another_controller(part: str) -> None:
    cluster = Cluster(settings=SETTINGS)
    for name in ("web", "other"):
        objects = {"hpa": hpa_object(name), "target": deployment_object(name, 2)}
        if name == "web":
            objects[part]["metadata"]["managedFields"] = managed(100_000)  # no Python follows
        cluster.put(*objects.values())
    cluster.put_pods(*(pod_object(n, row) for n in ("web", "other") for row in range(2)))
    cluster.provider.usage = lambda _question, _pod: 3000
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(1000.0)
    assert {name for name, _ in cluster.scales()} == {"other"}
    assert {name for name, _ in cluster.statuses()} == {"other"}
    assert cluster.controller.traces.reason((NS, "web")) == "ShadowMode"
    assert cluster.metrics.counts.foreign == 1
    api = DecisionsApi(cluster.controller, lambda: True, wall=cluster.wall)
    path = f"/apis/hpa.podscale.io/v1alpha1/namespaces/{NS}/scalingdecisions/web"
    found = await answered(api, path, {})
    (condition,) = found["status"]["conditions"]
    assert condition["type"] == "ForeignController"
    assert "managedFields nest too deep" in condition["message"]
    stored = cluster.world.hpas if part == "hpa" else cluster.world.workloads
    stored[(NS, "web")]["metadata"] |= {
        "managedFields": [], "resourceVersion": cluster.world.next_version(),
    }  # fmt: skip
    cluster.sync()
    await asyncio.sleep(60.0)
    assert "web" in {name for name, _ in cluster.scales()}
    leading.cancel()
    await asyncio.wait({leading})


@pytest.mark.parametrize(
    ("manager", "subresource"),
    [("kubectl-scale", "scale"), ("kubectl-client-side-apply", ""), ("podscale-hpa", "scale")],
)
async def test_a_person_who_scales_is_no_controller(manager: str, subresource: str) -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(2.0)
    rescaled(cluster, "web", 3, manager, subresource)
    cluster.provider.usage = lambda _question, _pod: 3000
    await asyncio.sleep(20.0)
    assert cluster.controller.foreign_controller((NS, "web")) is None
    assert cluster.scales()
    leading.cancel()
    await asyncio.wait({leading})


async def test_our_object_stands_still_beside_an_in_tree_hpa_on_its_target() -> None:
    cluster = Cluster(settings=SETTINGS, resource=PODAUTOSCALERS)
    cluster.world.claims[(NS, "theirs")] = hpa_object("web")
    cluster.world.claims[(NS, "theirs")]["metadata"]["name"] = "theirs"
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    cluster.provider.usage = lambda _question, _pod: 3000
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(20.0)
    assert cluster.scales() == []
    assert cluster.controller.traces.reason((NS, "web")) == "SameTargetAsOtherHPA"
    text = cluster.recorder.events[0][3]
    assert "HorizontalPodAutoscaler/theirs" in text
    cluster.world.claims.clear()
    cluster.sync()
    await asyncio.sleep(20.0)
    assert cluster.scales()[0] == ("web", 4)
    leading.cancel()
    await asyncio.wait({leading})
