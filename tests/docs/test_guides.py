"""Every command of the migration guides, on the sandbox."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscale.sandbox.http.extensions import URL_ANNOTATION
from tests.docs import guides
from tests.tools.process import LOOPBACK, Program, wait_until


class Sandbox:
    """The sandbox as a process, with a node that runs workloads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.program = Program(
            "sandbox",
            [sys.executable, "-m", "tests.kit.sandbox", "--tls", "--nodes=1",
             f"--kubeconfig={self.kubeconfig}"],
            directory / "sandbox.log",
        )  # fmt: skip

    def route(self, group: str, version: str, port: int) -> None:
        guides.apply(self, {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {
                "name": f"{version}.{group}",
                "annotations": {URL_ANNOTATION: f"https://{LOOPBACK}:{port}"},
            },
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": True,
                "service": {"name": "podscale", "namespace": "kube-system"},
            },
        })  # fmt: skip


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    running = Sandbox(tmp_path)
    with running.program:
        wait_until("the sandbox is ready", running.kubeconfig.exists, 30.0, (running.program,))
        wait_until("it answers", lambda: bool(guides.kubectl(running, "get", "ns")), 30.0)
        yield running


@pytest.mark.parametrize("guide", [
    guides.prometheus_adapter, guides.in_tree_hpa, guides.keda, guides.upstream_vpa,
])  # fmt: skip
@pytest.mark.needs("kubectl")
def test_the_commands_of_the_guide_do_what_it_says(guide, sandbox):
    guide(sandbox)


def test_each_guide_is_run():
    run = {"prometheus-adapter", "in-tree-hpa", "keda", "upstream-vpa"}
    assert {page.stem for page in guides.GUIDES.glob("*.md")} == run
