"""Somebody else's external adapter behind ours, on the real plane: one APIService for both.

It is a program on the library under KEDA's adapter (tests/cluster/go/external), with its own
authentication and authorization by the cluster; kube-controller-manager scales on both.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.external_adapters import (
    EXTERNAL,
    KEDA,
    KEDA_NAMESPACE,
    KEDA_SERVICE,
    adopt_and_give_back,
    backends_file,
    external,
    hold,
    replicas,
    rights,
    said,
)
from tests.cluster.golang import FLAGS, Go, built_once
from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

pytestmark = pytest.mark.timeout(900)  # its program is built first, once

OURS = Path(__file__).parent / "go" / "external"


def program() -> Path:
    """Build the adapter that is not ours, once for its sources."""
    sources = {file.name: file.read_bytes() for file in OURS.iterdir()}

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "executed", ".")
        return go.scratch / "executed"

    return built_once("external", sources, build)


class Backend:
    """The other adapter, and what it serves."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self.port = free_port()
        self.values = directory / "values.json"
        self.set(lag="30")
        authority = Authority(directory, "backend-ca")
        hosts = ["localhost", LOOPBACK, f"{KEDA_SERVICE}.{KEDA_NAMESPACE}.svc"]
        pair = authority.issue("localhost", hosts=hosts, file_stem="backend")
        self.ca_file = authority.cert_file
        self.program = Program(
            "external-adapter",
            [
                program(),
                f"--values={self.values}",
                f"--secure-port={self.port}",
                f"--bind-address={LOOPBACK}",
                f"--tls-cert-file={pair.cert_file}",
                f"--tls-private-key-file={pair.key_file}",
                f"--authentication-kubeconfig={plane.admin_kubeconfig}",
                f"--authorization-kubeconfig={plane.admin_kubeconfig}",
                f"--lister-kubeconfig={plane.admin_kubeconfig}",
            ],
            directory / "external-adapter.log",
        )

    def set(self, **values: str) -> None:
        """Serve these, and the KEDA-like one that is not listed."""
        found = {**values, **{f"s0-{name}": amount for name, amount in values.items()}}
        self.values.write_text(json.dumps(found))


@pytest.fixture
def backend(plane: Plane, tmp_path: Path) -> Iterator[Backend]:
    made = Backend(plane, tmp_path)
    with made.program:
        yield made


@pytest.fixture
def stack(plane: Plane, tmp_path: Path, backend: Backend) -> Iterator[MetricsStack]:
    plane.apply(*rights())
    file = backends_file(tmp_path, backend)
    with (
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(
            plane, prometheus, exporter, tmp_path, arguments=[f"--external-backends={file}"]
        ) as running,
    ):
        exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 30.0),))))
        yield running


def test_both_scale_through_one_apiservice_and_its_death_is_its_own(
    plane: Plane, stack: MetricsStack, backend: Backend
) -> None:
    cast = {
        "listed": external("lag"),
        "claimed": external("s0-lag", {KEDA: "web"}),
        "own": external("queue_messages"),
    }
    with plane.namespace("backends") as namespace, plane.in_tree_hpa(
        1.0, "--horizontal-pod-autoscaler-downscale-stabilization=0s"
    ):  # fmt: skip
        wait_until(
            "its list is among ours",
            lambda: (
                {"lag", "queue_messages"}
                <= {each["name"] for each in stack.raw(EXTERNAL)["resources"]}
            ),
            60,
            (backend.program, *stack.replicas),
        )
        for name, metric in cast.items():
            plane.apply(
                deployment(name, namespace), horizontal_pod_autoscaler(name, namespace, metric)
            )
        wait_until(
            "all three scale", lambda: replicas(plane, namespace) == dict.fromkeys(cast, 3), 90
        )
        backend.set(lag="50")
        wait_until(
            "theirs follow theirs",
            lambda: replicas(plane, namespace) == {"listed": 5, "claimed": 5, "own": 3},
            60,
        )
        backend.program.kill()
        stack.exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 40.0),))))
        wait_until("ours go on", lambda: replicas(plane, namespace)["own"] == 4, 60)
        wait_until(
            "theirs are told as theirs",
            lambda: "the external backend other failed" in said(plane, namespace, "listed"),
            60,
        )
        assert replicas(plane, namespace) == {"listed": 5, "claimed": 5, "own": 4}
        assert "could not find" not in said(plane, namespace, "listed")
        backend.set(lag="20")
        backend.program.start()
        wait_until(
            "it heals by itself",
            lambda: replicas(plane, namespace) == {"listed": 2, "claimed": 2, "own": 4},
            90,
            tuple(stack.replicas),
        )


def test_adopting_and_giving_back_fail_no_request(
    plane: Plane, tmp_path: Path, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(plane, backend)
    with (
        plane.namespace("adopted") as namespace,
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
    ):
        path = f"{EXTERNAL}/namespaces/{namespace}/lag"
        load = adopt_and_give_back(plane, tmp_path, backend, prometheus, exporter, path)
    with capsys.disabled():
        print(
            f"\nadopted and given back twice: {load.answered} answered, {len(load.failed)} failed"
        )
    assert not load.failed, load.failed[:3]
    assert load.answered > 100
