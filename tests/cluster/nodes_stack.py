"""The nodes part on the real plane: its manifests, its rights, real Prometheus, pretended usage."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import yaml

from podscale.core import quantity
from podscale.nodes.cluster.patches import TAINT_KEY
from tests.cluster.identity import Answer, Client, Identity
from tests.cluster.plane import Plane, wait_healthy
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, NotReadyError, Program, free_port, wait_until
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
NAMESPACE, BALLAST = "podscale", "podscale-ballast"
BY_LOAD = "by-load"
RULES = """\
resourceRules:
  cpu:
    containerQuery: 'sum(container_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(node_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  memory:
    containerQuery: 'sum(container_memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(node_memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  window: 1m
"""


class NodesStack:
    """Ballast's manifests applied, and the part beside ``plane``; a context manager."""

    def __init__(
        self,
        plane: Plane,
        exporter: Exporter,
        prometheus: PrometheusServer,
        directory: Path,
        module: str = "tests.cluster.short_times",
    ) -> None:
        self.plane, self.exporter, self.directory = plane, exporter, directory
        self.rules = directory / "rules.yaml"
        self.rules.write_text(RULES)
        self._prometheus, self._module = prometheus, module
        self.running: list[Program] = []
        self.port = 0  # of the part that was started last

    def __enter__(self) -> Self:
        overlay = ROOT / "deploy/kustomize/overlays/nodes-full"
        text = subprocess.run(
            [str(require("kubectl")), "kustomize", str(overlay)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        wanted = [
            each
            for each in yaml.safe_load_all(text)
            if each["kind"] not in ("Deployment", "APIService", "PodDisruptionBudget", "Service")
        ]
        # Namespaces first: kubectl applies in the order it is given.
        for each in sorted(wanted, key=lambda each: each["kind"] != "Namespace"):
            self.plane.apply(each)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running:
            program.stop(grace_s=10.0)

    def use(self, usage: Mapping[str, tuple[float, float]]) -> None:
        """Pretend that nodes use so many cores and bytes."""
        for name, (cores, bytes_) in usage.items():
            samples = (gauge("node_cpu", cores), gauge("node_memory", bytes_))
            self.exporter.set((f"node.{name}", Target({"node": name}, samples)))

    def ask(self, path: str, who: Identity) -> Answer:
        """Return what the part that was started last answers."""
        own = self.directory / "certificates" / "apiserver.crt"
        return Client(replace(who, port=self.port, ca_file=own)).request("GET", path)

    def stop(self, program: Program) -> None:
        """End one program."""
        self.running.remove(program)
        program.stop(grace_s=10.0)

    def start(self, *arguments: str) -> Program:
        """Start the part with its own account, in short rhythms."""
        self.port = free_port()
        return self._start(
            f"nodes-{len(self.running)}",
            "podscale-nodes",
            "--metrics-source=feed",
            f"--config={self.rules}",
            f"--prometheus-url={self._prometheus.url}",
            "--nodes-interval=500ms",
            "--leader-elect-lease-duration=6s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=1s",
            f"--secure-port={self.port}",
            f"--bind-address={LOOPBACK}",
            f"--cert-dir={self.directory}/certificates",
            *arguments,
        )

    def start_watchdog(self, *arguments: str) -> Program:
        """Start the watchdog with its own account."""
        return self._start("watchdog", "podscale-nodes-watchdog", "watchdog", *arguments)

    def start_scheduler(self) -> Program:
        """Start a scheduler of the name ``BY_LOAD``, which asks the part that was started last."""
        who = self.plane.user("system:kube-scheduler")
        assert who.cert is not None
        kubeconfig = str(who.write_kubeconfig(self.directory / f"{BY_LOAD}.kubeconfig"))
        extender = {
            "urlPrefix": f"https://{LOOPBACK}:{self.port}/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "nodeCacheCapable": True,
            "ignorable": True,
            "httpTimeout": "2s",
            "enableHTTPS": True,
            "tlsConfig": {
                "insecure": True,  # the part signs its own certificate
                "certFile": str(who.cert.cert_file),
                "keyFile": str(who.cert.key_file),
            },
        }
        config = self.directory / f"{BY_LOAD}.json"
        config.write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": BY_LOAD}],
            "extenders": [extender],
        }))  # fmt: skip
        port = free_port()
        program = Program(
            BY_LOAD,
            [
                require("kube-scheduler"),
                f"--config={config}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={port}",
            ],
            self.directory / f"{BY_LOAD}.log",
        )
        program.start()
        self.running.append(program)
        wait_healthy(program, port)
        return program

    def tainted(self) -> list[str]:
        """Return the nodes with the taint of mode taint."""
        nodes = self.plane.admin.get("/api/v1/nodes")["items"]
        return [
            node["metadata"]["name"]
            for node in nodes
            if any(each["key"] == TAINT_KEY for each in node["spec"].get("taints", ()))
        ]

    def wait_tainted(self, *wanted: str) -> None:
        """Return when these nodes have the taint, and no others."""
        what = f"tainted are {wanted}"
        wait_until(what, lambda: self.tainted() == list(wanted), 30.0, self.running)

    def held(self) -> dict[str, float]:
        """Return the cores that the ballast of each node requests, to a hundredth: the least of a
        second pod that is there for a while does not count."""
        found = Counter[str]()
        for pod in self.plane.pods(BALLAST):
            cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            found[pod["spec"].get("nodeName", "")] += quantity.from_wire(cpu).milli
        return {name: round(milli / 1000, 2) for name, milli in found.items() if name}

    def wait_held(self, wanted: Mapping[str, float], deadline_s: float = 30.0) -> None:
        """Return when ballast requests so many cores."""

        def are_there() -> bool:
            return self.held() == wanted

        try:
            wait_until(f"ballast is {wanted}", are_there, deadline_s, self.running)
        except NotReadyError as late:
            raise AssertionError(f"{late}\n{self.held()}") from None

    def _start(self, name: str, account: str, *arguments: str) -> Program:
        kubeconfig = self.plane.kubeconfig_for(NAMESPACE, account)
        words = [f"--kubeconfig={kubeconfig}", *arguments]
        if arguments[:1] == ("watchdog",):
            words = ["watchdog", f"--kubeconfig={kubeconfig}", *arguments[1:]]
        program = Program(
            name,
            [sys.executable, "-m", self._module, "nodes", *words],
            self.directory / f"{name}.log",
            {"POD_NAMESPACE": NAMESPACE},
        )
        program.start()
        self.running.append(program)
        return program
