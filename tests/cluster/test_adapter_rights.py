"""The deployed RBAC: enough for everything, and nothing in it that is not needed."""

import copy
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.identity import RefusedError
from tests.cluster.metrics_stack import (
    GROUPS,
    NAMESPACE,
    ROOT,
    SERVICE,
    MetricsStack,
    busy_pod,
    manifests,
    node,
)
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import NotReadyError, wait_until

OURS = (
    "podscale-adapter",
    "podscale-adapter:system:auth-delegator",
    "podscale-adapter-auth-reader",
)
Edit = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
RATE = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/http_requests_per_second"


def removals() -> list[Any]:
    """Return one ``Edit`` per rule of our roles and per binding, with a name.

    The files are read as they are: tests are collected where there is no kubectl, too.
    """
    found = []
    text = (ROOT / "config/rbac/adapter/adapter.yaml").read_text(encoding="utf-8")
    for each in yaml.safe_load_all(text):
        name = each["metadata"]["name"]
        if name not in OURS:
            continue
        if each["kind"] in ("ClusterRole", "Role"):
            for index, rule in enumerate(each["rules"]):
                label = f"{each['kind']}-{'.'.join(rule['resources'])}-{'.'.join(rule['verbs'])}"
                found.append(pytest.param(without_rule(each["kind"], name, index), id=label))
        elif each["kind"].endswith("Binding"):
            found.append(pytest.param(without(each["kind"], name), id=f"{each['kind']}-{name}"))
    return found


def without(kind: str, name: str) -> Edit:
    def edit(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return None if (found["kind"], found["metadata"]["name"]) == (kind, name) else found

    return edit


def without_rule(kind: str, name: str, index: int) -> Edit:
    def edit(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if (found["kind"], found["metadata"]["name"]) != (kind, name):
            return found
        changed = copy.deepcopy(dict(found))
        del changed["rules"][index]
        return changed

    return edit


@pytest.fixture(scope="module")
def ground(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Plane, PrometheusServer, Exporter]]:
    directory = tmp_path_factory.mktemp("rights")
    with (
        Plane(tmp_path_factory.mktemp("rights-plane"), PlaneSettings(nodes=1)) as plane,
        Exporter(directory) as exporter,
        PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as prometheus,
    ):
        plane.admin.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        plane.apply(deployment("web", "shop", replicas=1))
        wait_until("a pod", lambda: plane.ready_pods("shop"), deadline_s=30)
        exporter.set(busy_pod("shop", plane.ready_pods("shop")[0], requests=10), node("node-0"))
        yield plane, prometheus, exporter


def what_fails(stack: MetricsStack) -> list[str]:
    """Use everything the adapter offers; return the first thing that does not work."""
    for group, version in GROUPS:
        try:
            stack.plane.wait_available(group, version, 15.0)
        except NotReadyError:
            return [f"{version}.{group} is not available"]
    try:
        stack.wait_for_metric(RATE, 1, 20.0)
        stack.wait_for_metric("/apis/metrics.k8s.io/v1beta1/nodes", 1, 20.0)
    except NotReadyError as late:
        return [str(late)]
    token = stack.plane.service_account("default", "default").token
    status, _ = stack.direct(RATE, {"Authorization": f"Bearer {token}"})
    if status != 403:
        return [f"a valid token without rights is answered {status}"]
    bundle = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
    spec = stack.plane.admin.get(bundle)["spec"]
    if "caBundle" not in spec or spec.get("insecureSkipTLSVerify"):
        return ["no caBundle in the APIService"]
    stack.rules.write_text(stack.rules.read_text() + "nonsense: true\n")
    events = f"/api/v1/namespaces/{NAMESPACE}/events"
    try:
        wait_until(
            "an event tells of the bad rules",
            lambda: any("Rules" in e["reason"] for e in stack.plane.admin.get(events)["items"]),
            deadline_s=10,
        )
    except NotReadyError as late:
        return [str(late)]
    return []


def attempt(ground: tuple[Plane, PrometheusServer, Exporter], directory: Path, edit: Edit) -> Any:
    """Start from nothing with the edited manifests; return the failures."""
    plane, prometheus, exporter = ground
    forget(plane)
    stack = MetricsStack(
        plane,
        prometheus,
        exporter,
        directory,
        edit=edit,
    )
    try:
        stack.apply()
        plane.service_account(NAMESPACE, SERVICE).write_kubeconfig(directory / "adapter.kubeconfig")
        stack.replicas[0].start()
        return what_fails(stack)
    finally:
        stack.__exit__()


def forget(plane: Plane) -> None:
    text = yaml.safe_dump_all(each for each in manifests() if each["kind"] != "ServiceAccount")
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", stdin=text)
    for kind in ("secrets/podscale-adapter-ca", "leases/podscale-adapter", "events"):
        words = ["--all"] if kind == "events" else []
        plane.kubectl("delete", "--ignore-not-found", "-n", NAMESPACE, kind, *words)


def test_the_deployed_rights_are_enough(
    ground: tuple[Plane, PrometheusServer, Exporter], tmp_path: Path
) -> None:
    assert attempt(ground, tmp_path, lambda found: found) == []


@pytest.mark.parametrize("edit", removals())
def test_every_rule_is_needed(
    ground: tuple[Plane, PrometheusServer, Exporter], tmp_path: Path, edit: Edit
) -> None:
    try:
        failures = attempt(ground, tmp_path, edit)
    except (NotReadyError, RefusedError, subprocess.CalledProcessError, OSError) as broken:
        failures = [str(broken)]
    assert failures, "nothing fails without it: the rule should go"
