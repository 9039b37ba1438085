"""Our client and the real API server: what the little and the embedded one only imitate."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.selectors import selector
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.errors import (
    ApiUnreachable,
    Forbidden,
    ObjectNotFound,
    Unprocessable,
    WriteConflict,
)
from podscale.kube.client.resource import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NODES,
    PODS,
)
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.metadata import OnDemandMetadata
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.events import Recorder
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.leadership.lease import Elector, LeaseTimes, Term
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import WireScale, Workload
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment

QUICK = WatchTiming(page_size=2, backoff_s=0.05, backoff_max_s=0.5)


async def until(what: str, claim: Callable[[], bool], timeout_s: float = 40.0) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not claim():  # noqa: ASYNC110 - claims are about anything
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not within {timeout_s:g} s: {what}")


@asynccontextmanager
async def beside(*work: object) -> AsyncIterator[None]:
    """Run coroutines while the context is open."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def connected(kubeconfig: Path | str) -> AsyncIterator[Api]:
    async with connect(
        ApiServerTarget(kubeconfig=str(kubeconfig)), user_agent="podscale-test/1"
    ) as api:
        yield api


async def test_the_pod_store_follows_a_real_deployment(plane: Plane) -> None:
    with plane.namespace() as namespace:
        store = PodStore()
        async with connected(plane.admin_kubeconfig) as api:
            source = WatchSource(PODS, Pod, rhythm=QUICK)
            async with beside(Reflector(api, source, store).run()):
                plane.apply(deployment("web", namespace, replicas=5))
                web = selector.parse("app=web")
                await until(
                    "five pods are ready",
                    lambda: store.select(namespace, web).ready.tolist() == [PodReadiness.TRUE] * 5,
                )
                chosen = store.select(namespace, web)
                assert set(chosen.phase.tolist()) == {PodPhase.RUNNING}
                (owner,) = chosen.owners.values()
                assert owner.kind == "ReplicaSet"
                assert len(store.owned_by(owner.uid)) == 5
                (template,) = chosen.templates.values()
                assert template.containers[0].name
                shown = plane.pods(namespace)
                assert {view.uid for view in chosen.views()} == {
                    item["metadata"]["uid"] for item in shown
                }
                assert {view.resource_version for view in chosen.views()} == {
                    item["metadata"]["resourceVersion"] for item in shown
                }
                plane.kubectl("scale", "-n", namespace, "deployment/web", "--replicas=1")
                await until("one pod is left", lambda: len(store.select(namespace, web)) == 1)
                assert store.is_current()


async def test_metadata_only_watches_describe_what_is_asked_for(plane: Plane) -> None:
    with plane.namespace() as namespace:
        async with connected(plane.admin_kubeconfig) as api:
            ondemand = OnDemandMetadata(api)
            async with beside(ondemand.run()):
                await asyncio.sleep(0)
                deployments = await ondemand.describe(DEPLOYMENTS)
                plane.apply(deployment("web", namespace, replicas=0))
                await until("it is described", lambda: deployments.exists(namespace, "web"))
                nodes = await ondemand.describe(NODES)
                assert nodes.names("", selector.EVERYTHING)


async def test_own_writes_are_visible_at_once_and_conflicts_are_told(plane: Plane) -> None:
    with plane.namespace() as namespace:
        plane.apply(deployment("web", namespace, replicas=1))
        store = Store[Workload]()
        async with connected(plane.admin_kubeconfig) as api:
            source = WatchSource(DEPLOYMENTS, Workload, rhythm=QUICK)
            async with beside(Reflector(api, source, store).run()):
                await until("it is listed", lambda: store.get(namespace, "web") is not None)
                path = DEPLOYMENTS.path(namespace, "web")
                patch = encode({"metadata": {"labels": {"round": "1"}}})
                answer = await api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
                store.accept(decode(answer.body, Workload))
                known = store.get(namespace, "web")
                assert known is not None
                assert (known.metadata.labels or {})["round"] == "1"
            target = DEPLOYMENTS.path(namespace, "web", "scale")

            async def scaled() -> bytes:
                answer = await api.request("GET", target)
                body = encode(
                    {
                        "apiVersion": "autoscaling/v1",
                        "kind": "Scale",
                        "metadata": {
                            "name": "web",
                            "namespace": namespace,
                            "resourceVersion": decode(
                                answer.body, WireScale
                            ).metadata.resource_version,
                        },
                        "spec": {"replicas": 2},
                    }
                )
                await api.request("PUT", target, body=body)
                return body

            for _ in range(5):  # the Deployment's controller writes beside us
                with suppress(WriteConflict):
                    body = await scaled()
                    break
            with pytest.raises(WriteConflict):
                await api.request("PUT", target, body=body)
            with pytest.raises(ObjectNotFound):
                await api.request("GET", DEPLOYMENTS.path(namespace, "nope"))
            bad = encode({"spec": {"replicas": -1}})
            with pytest.raises(Unprocessable) as refused:
                await api.request("PATCH", path, body=bad, content_type=MERGE_PATCH)
            assert refused.value.causes[0].field == "spec.replicas"


async def test_discovery_knows_the_real_server_and_a_crd_that_comes_later(plane: Plane) -> None:
    async with connected(plane.admin_kubeconfig) as api:
        discovery = ApiDiscovery(api, min_gap_s=0.0)
        mapper = await discovery.refresh()
        assert mapper.parse("deployment").group_resource == "deployments.apps"
        assert mapper.parse("ingress.networking").group == "networking.k8s.io"
        assert mapper.parse("Node").namespaced is False
        assert mapper.for_kind("HorizontalPodAutoscaler", "autoscaling")[0].version == "v2"
        assert mapper.versions("autoscaling")[0] == "v2"
        plane.apply(_BRANDS)
        for _ in range(100):
            try:
                brand = await discovery.resource_for("brand", "cheese")
                break
            except Exception:  # noqa: BLE001 - served a moment after it is established
                await asyncio.sleep(0.1)
        assert (
            brand.path("shop", "gouda") == "/apis/cheese.io/v1alpha1/namespaces/shop/brands/gouda"
        )
        plane.kubectl("delete", "crd", "brands.cheese.io")


async def test_two_electors_agree_on_a_real_lease(plane: Plane) -> None:
    # As short as two seconds of a starved machine allow.
    times = LeaseTimes(duration_s=6, renew_deadline_s=4, retry_s=0.5)
    terms: list[tuple[str, Term]] = []
    with plane.namespace() as namespace:
        async with connected(plane.admin_kubeconfig) as api:

            def elector(identity: str) -> Elector:
                return Elector(api, namespace=namespace, name="hpa", identity=identity, times=times)

            async def lead(one: Elector, identity: str) -> None:
                async def work(term: Term) -> None:
                    terms.append((identity, term))
                    await asyncio.Event().wait()

                await one.run(work)

            first, second = elector("first"), elector("second")
            async with beside(lead(second, "second")):
                await until("one leads", second.may_write)
                async with beside(lead(first, "first")):
                    await asyncio.sleep(times.duration_s + 2)
                    assert second.may_write()
                    assert not first.may_write()
                    lease = plane.admin.get(LEASES.path(namespace, "hpa"))
                    assert lease["spec"]["holderIdentity"] == "second"
                    assert len(lease["spec"]["renewTime"].split(".")[1]) == 7
            assert [identity for identity, _ in terms] == ["second"]
            lease = plane.admin.get(LEASES.path(namespace, "hpa"))
            assert lease["spec"].get("holderIdentity", "") == ""
            async with beside(lead(first, "first")):
                await until("the other leads", first.may_write)
            lease = plane.admin.get(LEASES.path(namespace, "hpa"))
            assert lease["spec"]["leaseTransitions"] == 1


async def test_events_are_counted_where_kubectl_shows_them(plane: Plane) -> None:
    with plane.namespace() as namespace:
        plane.apply(deployment("web", namespace, replicas=0))
        meta = plane.admin.get(DEPLOYMENTS.path(namespace, "web"))["metadata"]
        about = ObjectReference(
            kind="Deployment", namespace=namespace, name="web", uid=meta["uid"],
            api_version="apps/v1",
        )  # fmt: skip
        async with connected(plane.admin_kubeconfig) as api:
            recorder = Recorder(api, "horizontal-pod-autoscaler")
            async with beside(recorder.run()):
                for _ in range(3):
                    recorder.event(about, "Normal", "SuccessfulRescale", "New size: 3; reason: x")
                await recorder.flush(20)
            assert recorder.dropped == 0
        described = plane.kubectl("describe", "-n", namespace, "deployment/web")
        assert "(x3 over" in described
        assert "horizontal-pod-autoscaler" in described
        assert "New size: 3; reason: x" in described


async def test_rights_that_lack_are_forbidden_and_lists_replace_watches(plane: Plane) -> None:
    with plane.namespace() as namespace:
        plane.kubectl("create", "serviceaccount", "-n", namespace, "reader")
        plane.kubectl(
            "create", "role", "-n", namespace, "lists", "--verb=list", "--resource=configmaps"
        )
        plane.kubectl(
            "create", "rolebinding", "-n", namespace, "lists", "--role=lists",
            f"--serviceaccount={namespace}:reader",
        )  # fmt: skip
        async with connected(plane.kubeconfig_for(namespace, "reader")) as api:
            with pytest.raises(Forbidden, match="pods is forbidden"):
                await api.request("GET", PODS.path(namespace))
            rhythm = WatchTiming(backoff_s=0.05, poll_s=0.3)
            store = Store[Workload]((namespace,))
            source = WatchSource(CONFIG_MAPS, Workload, rhythm=rhythm)
            async with beside(Reflector(api, source, store).run()):
                await until("it polls", lambda: store.freshness().is_polling)
                plane.kubectl("create", "configmap", "-n", namespace, "late")
                await until("the list shows it", lambda: store.get(namespace, "late") is not None)


async def test_the_store_survives_a_restart_of_the_api_server(
    private_plane: Callable[[PlaneSettings], Plane],
) -> None:
    plane = private_plane(PlaneSettings())
    with plane.namespace() as namespace:
        plane.apply(deployment("web", namespace, replicas=3))
        store = PodStore()
        async with connected(plane.admin_kubeconfig) as api:
            source = WatchSource(PODS, Pod, rhythm=QUICK)
            async with beside(Reflector(api, source, store).run()):
                await until("three pods", lambda: len(store.select_all(namespace)) == 3)
                await asyncio.to_thread(plane.apiserver.stop)
                await until("it knows", lambda: not store.is_current())
                assert len(store.select_all(namespace)) == 3
                with pytest.raises(ApiUnreachable):
                    await api.request("GET", PODS.path(namespace), timeout_s=2)
                await asyncio.to_thread(plane.restart_apiserver)
                await until("it follows again", store.is_current, 90)
                plane.kubectl("scale", "-n", namespace, "deployment/web", "--replicas=1")
                await until("one pod", lambda: len(store.select_all(namespace)) == 1, 60)


async def test_quiet_watches_are_never_in_doubt(
    private_plane: Callable[[PlaneSettings], Plane],
) -> None:
    """etcd's default says nothing of what nobody changes, and nothing of what has no cache."""
    compacting = ("--etcd-compaction-interval=4s",)
    plane = private_plane(PlaneSettings(nodes=1, apiserver_args=compacting))
    rhythm = WatchTiming(silence_s=5.0, watch_timeout_s=60.0)
    quiet = (LIMIT_RANGES, ""), (EVENTS, "reason=Evicted")
    async with connected(plane.admin_kubeconfig) as api, contextlib.AsyncExitStack() as watching:
        stores = []
        for resource, selected in quiet:
            stores.append(Store[Workload]())
            source = WatchSource(resource, Workload, field_selector=selected, rhythm=rhythm)
            await watching.enter_async_context(beside(Reflector(api, source, stores[-1]).run()))
        await until("they are watched", lambda: all(store.is_current() for store in stores))
        began = time.monotonic()
        with capture_logs() as logs:
            while time.monotonic() < began + 40.0:
                for store in stores:
                    assert store.is_current(since=began), store.freshness()
                await asyncio.sleep(0.02)
        assert not logs


_BRANDS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "brands.cheese.io"},
    "spec": {
        "group": "cheese.io",
        "scope": "Namespaced",
        "names": {"plural": "brands", "singular": "brand", "kind": "Brand"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
                "subresources": {
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    }
                },
            }
        ],
    },
}
