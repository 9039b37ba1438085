"""The plane itself: without these, no other test of this ring means anything."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.extension import ExtensionServer
from tests.cluster.identity import Client
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings, audited
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.tools.process import LOOPBACK, NotReadyError, wait_until
from tests.tools.programs import release

CPU_AT_HALF = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_plane_is_up_within_a_minute_and_leaves_nothing_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    with Plane(tmp_path) as plane:
        took = time.monotonic() - began
        pids = [program.pid for program in plane.programs]
        assert plane.admin.get("/version")["gitVersion"].startswith(f"v{release()}.")
    print(f"plane ready in {took:.1f} s")
    assert took < 60
    assert len(pids) == 5
    assert not [pid for pid in pids if is_alive(pid)]
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect((LOOPBACK, plane.admin.identity.port))


def test_a_plane_that_cannot_start_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    plane = Plane(tmp_path, PlaneSettings(apiserver_args=("--no-such-flag",)))
    with pytest.raises(NotReadyError, match="unknown flag: --no-such-flag"), plane:
        pass
    assert not plane.etcd.is_running
    assert not plane.apiserver.is_running


def test_pods_of_a_deployment_become_ready(plane: Plane) -> None:
    with plane.namespace() as namespace:
        plane.apply(deployment("web", namespace, replicas=3))
        wait_until(
            "three pods are ready",
            lambda: len(plane.ready_pods(namespace, {"app": "web"})) == 3,
            deadline_s=30,
        )
        plane.kubectl("scale", "-n", namespace, "deployment/web", "--replicas=1")
        wait_until("one pod is left", lambda: len(plane.pods(namespace)) == 1, deadline_s=30)


def test_an_api_service_reaches_a_server_on_the_loopback(plane: Plane, tmp_path: Path) -> None:
    group, version = "smoke.podscale.io", "v1"
    with plane.namespace() as namespace:
        authority = Authority(tmp_path, "serving-ca")
        serving = authority.issue("smoke", hosts=(f"smoke.{namespace}.svc",))
        found = {"kind": "APIResourceList", "groupVersion": f"{group}/{version}", "resources": []}
        paths = {f"/apis/{group}/{version}": found, f"/apis/{group}/{version}/answer": {"is": 42}}
        with ExtensionServer(serving, plane.front_proxy_ca, paths) as server:
            plane.expose(namespace, "smoke", server.port)
            plane.register_api(
                group,
                version,
                namespace=namespace,
                service="smoke",
                port=server.port,
                ca_pem=authority.cert_pem,
            )
            try:
                plane.wait_available(group, version)
                answer = plane.kubectl("get", "--raw", f"/apis/{group}/{version}/answer")
            finally:
                plane.admin.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}")
        assert json.loads(answer) == {"is": 42}
        assert (f"/apis/{group}/{version}/answer", "admin") in server.seen
        assert (f"/apis/{group}/{version}", "system:kube-aggregator") in server.seen


def test_a_service_account_acts_under_its_own_name_with_no_rights(plane: Plane) -> None:
    with plane.namespace() as namespace:
        plane.apply(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "nobody", "namespace": namespace},
            }
        )
        kubeconfig = plane.kubeconfig_for(namespace, "nobody")
        who = plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
        user = json.loads(who)["status"]["userInfo"]["username"]
        assert user == f"system:serviceaccount:{namespace}:nobody"
        with pytest.raises(subprocess.CalledProcessError, match="Forbidden"):
            plane.kubectl("get", "pods", kubeconfig=kubeconfig)
        assert Client(plane.user("mallory", "web")).request("GET", "/api/v1/pods").status == 403
        assert Client(plane.anonymous()).request("GET", "/api/v1/pods").status == 403


def test_only_the_in_tree_controller_touches_an_hpa_and_only_while_it_runs(plane: Plane) -> None:
    with plane.namespace() as namespace:
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/web"
        plane.apply(
            deployment("web", namespace),
            horizontal_pod_autoscaler("web", namespace, CPU_AT_HALF, least=2),
        )
        wait_until("the pod is ready", lambda: plane.ready_pods(namespace), deadline_s=30)
        assert "conditions" not in plane.admin.get(path).get("status", {})
        with plane.in_tree_hpa(sync_period_s=1.0):
            # One replica is below minReplicas: a rescale that needs no metric.
            wait_until(
                "the HPA raised the Deployment to its minimum",
                lambda: len(plane.ready_pods(namespace)) == 2,
                deadline_s=30,
            )
        assert plane.admin.get(path)["status"]["conditions"]


def test_objects_and_audit_survive_a_restart_of_the_api_server(
    private_plane: Callable[[PlaneSettings], Plane],
) -> None:
    plane = private_plane(PlaneSettings(audit=(audited("configmaps", verbs=("create", "get")),)))
    first = plane.apiserver.pid
    path = "/api/v1/namespaces/default/configmaps"
    plane.admin.post(path, {"metadata": {"name": "kept"}, "data": {"answer": "42"}})
    plane.restart_apiserver()
    assert plane.apiserver.pid != first
    assert plane.admin.get(f"{path}/kept")["data"] == {"answer": "42"}
    mine = [entry for entry in plane.audit() if entry["user"]["username"] == "admin"]
    assert [(entry["verb"], entry["responseStatus"]["code"]) for entry in mine] == [
        ("create", 201),
        ("get", 200),
    ]
    assert mine[0]["requestObject"]["data"] == {"answer": "42"}


def test_a_frozen_api_server_answers_nothing_until_it_is_resumed(
    private_plane: Callable[[PlaneSettings], Plane],
) -> None:
    plane = private_plane(PlaneSettings(nodes=1))
    with contextlib.ExitStack() as thaw:
        plane.apiserver.pause()
        thaw.callback(plane.apiserver.resume)
        with pytest.raises(TimeoutError):
            plane.admin.request("GET", "/readyz", timeout_s=0.5)
    assert plane.admin.request("GET", "/readyz").status == 200
