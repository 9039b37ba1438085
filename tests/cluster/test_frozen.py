"""Loops that freeze inside their process: the manifests' probe has them started again."""

import http.client
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from hpa.loop.controller import _LEAST_ALLOWED_S
from tests.cluster.hpa_stack import ROOT, HpaStack
from tests.cluster.plane import Plane
from tests.cluster.test_vpa import vpa
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from vpa.recommender.loop import _HEALTHY_PASSES

SLACK_S = 5.0
INTERVAL_S = 1


class Probe(Struct, frozen=True):
    """A probe as a kubelet reads it."""

    path: str
    period_s: float
    timeout_s: float
    delay_s: float
    failures: int

    @classmethod
    def shipped(cls, manifest: str) -> "Probe":
        """Return the liveness probe of the Deployment in a file of ``deploy/kustomize``."""
        text = (ROOT / "deploy/kustomize" / manifest).read_text()
        [found] = [each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"]
        [container] = found["spec"]["template"]["spec"]["containers"]
        probe = container["livenessProbe"]
        return cls(
            probe["httpGet"]["path"],
            probe.get("periodSeconds", 10), probe.get("timeoutSeconds", 1),
            probe.get("initialDelaySeconds", 0), probe.get("failureThreshold", 3),
        )  # fmt: skip

    @property
    def restarts_within_s(self) -> float:
        """How long a process may fail before it is restarted."""
        return self.failures * (self.period_s + self.timeout_s)

    def is_alive(self, port: int) -> bool:
        """Return what one attempt finds."""
        tls = ssl._create_unverified_context()  # noqa: S323 - a kubelet verifies none either
        connection = http.client.HTTPSConnection(
            LOOPBACK, port, timeout=self.timeout_s, context=tls
        )
        try:
            connection.request("GET", self.path)
            return HTTPStatus.OK <= connection.getresponse().status < HTTPStatus.BAD_REQUEST
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def restart_when_dead(
        self, program: Program, port: int, deadline_s: float, cure: Callable[[], object]
    ) -> None:
        """Probe as a kubelet does; restart the program as soon as it would, ``cure`` before."""
        began = time.monotonic()
        failed = 0
        time.sleep(self.delay_s)
        while failed < self.failures:
            assert time.monotonic() - began < deadline_s, f"never restarted\n{program.tail()}"
            failed = 0 if self.is_alive(port) else failed + 1
            time.sleep(self.period_s)
        cure()
        program.stop()
        program.start()


def defective(program: Program, file: Path) -> Program:
    """Give a program that is not started yet the defect of ``frozen.py``."""
    [at] = [number for number, word in enumerate(program.command) if word == "podscale"]
    program.command[at : at + 1] = ["tests.cluster.frozen", str(file)]
    return program


def replicas(plane: Plane, namespace: str, name: str) -> Any:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    return plane.admin.get(path)["spec"]["replicas"]


def conditions(plane: Plane, namespace: str, name: str) -> Any:
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/{name}"
    return (plane.admin.get(path).get("status") or {}).get("conditions")


def bounded(plane: Plane, namespace: str, name: str) -> None:
    """Create a Deployment that is larger than its HPA allows: no metric is needed to see it."""
    metric = {"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}  # fmt: skip
    plane.apply(
        deployment(name, namespace, replicas=3),
        horizontal_pod_autoscaler(name, namespace, metric, most=2),
    )


@pytest.mark.timeout(240)
def test_an_hpa_loop_that_freezes_is_restarted_and_works_again(
    plane: Plane, tmp_path: Path
) -> None:
    file, probe = tmp_path / "freeze", Probe.shipped("components/hpa/hpa.yaml")
    stack = HpaStack(plane, tmp_path)
    program = defective(stack.replicas[0], file)
    with plane.namespace("frozen") as namespace, stack:
        bounded(plane, namespace, "before")
        wait_until("it works", lambda: replicas(plane, namespace, "before") == 2, 60, (program,))
        assert probe.is_alive(stack.ports[0])
        file.touch()
        allowed_s = _LEAST_ALLOWED_S + probe.restarts_within_s + SLACK_S
        time.sleep(1.0)
        bounded(plane, namespace, "after")
        pid = program.pid
        probe.restart_when_dead(program, stack.ports[0], allowed_s, file.unlink)
        assert program.pid != pid
        wait_until("it works", lambda: replicas(plane, namespace, "after") == 2, 60, (program,))


@pytest.mark.timeout(240)
def test_a_recommender_that_freezes_is_restarted_and_works_again(
    plane: Plane, tmp_path: Path
) -> None:
    file, probe = tmp_path / "freeze", Probe.shipped("components/vpa/recommender.yaml")
    port = free_port()
    with plane.namespace("frozen") as namespace, VpaStack(plane, tmp_path) as stack:
        program = stack.start(
            "recommender", f"--secure-port={port}", f"--bind-address={LOOPBACK}",
            f"--recommender-interval={INTERVAL_S}s",
        )  # fmt: skip
        program.stop()
        defective(program, file).start()
        plane.apply(vpa(namespace, "Off", "before"))
        wait_until("it works", lambda: conditions(plane, namespace, "before"), 60, (program,))
        assert probe.is_alive(port)
        file.touch()
        time.sleep(2 * INTERVAL_S)
        plane.apply(vpa(namespace, "Off", "after"))
        pid = program.pid
        allowed_s = _HEALTHY_PASSES * INTERVAL_S + probe.restarts_within_s + SLACK_S
        probe.restart_when_dead(program, port, allowed_s, file.unlink)
        assert program.pid != pid
        wait_until("it works", lambda: conditions(plane, namespace, "after"), 60, (program,))
