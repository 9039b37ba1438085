"""A real control plane on the loopback: etcd, API server, controllers, scheduler, kwok.

``with Plane(directory) as plane`` starts it in a few seconds and leaves no process
behind. There is no kubelet and no pod network: kwok makes pods Running and Ready.
"""

import base64
import contextlib
import json
import ssl
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.identity import Client, Identity
from tests.cluster.programs import Commands
from tests.cluster.settings import PlaneSettings
from tests.tools.process import LOOPBACK, NotReadyError, Program, free_port, wait_until
from tests.tools.required import require

START_DEADLINE_S = 60.0
HPA_CONTROLLER = "horizontal-pod-autoscaler-controller"


class Plane:
    """One control plane, its administrator's client, and the identities it gives out."""

    def __init__(self, directory: Path, settings: PlaneSettings | None = None) -> None:
        self.directory = directory
        self.settings = settings or PlaneSettings()
        self._commands = Commands(directory, self.settings)
        self.cluster_ca = self._commands.cluster_ca
        self.front_proxy_ca = self._commands.front_proxy_ca
        admin = self._commands.identity("admin", "system:masters")
        self.url = admin.url
        self.admin = Client(admin)
        self.admin_kubeconfig = admin.write_kubeconfig(directory / "admin.kubeconfig")
        self.etcd = self._commands.etcd()
        self.apiserver = self._commands.apiserver()
        self._ports = {name: free_port() for name in ("controllers", "scheduler", "kwok")}
        self.controller_manager = self._commands.controller_manager(
            "kube-controller-manager",
            f"*,-{HPA_CONTROLLER}",
            self._ports["controllers"],
            self.settings.controller_manager_args,
        )
        self.scheduler = self._commands.scheduler(self._ports["scheduler"])
        self.kwok = self._commands.kwok(self.admin_kubeconfig, self._ports["kwok"])

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs, those that others depend on first."""
        return (self.etcd, self.apiserver, self.controller_manager, self.scheduler, self.kwok)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self.etcd.start()
        self.start_apiserver()
        for program in (self.controller_manager, self.scheduler, self.kwok):
            program.start()
        for number in range(self.settings.nodes):
            self.add_node(f"node-{number}")
        for name, program in (
            ("controllers", self.controller_manager),
            ("scheduler", self.scheduler),
        ):
            wait_healthy(program, self._ports[name])
        wait_until("every node is Ready", self._nodes_ready, START_DEADLINE_S, self.programs)

    def stop(self) -> None:
        """End every program; clients first, since an API server with watchers drains slowly."""
        clients = (self.kwok, self.scheduler, self.controller_manager)
        for program in clients:
            program.resume()
            program.ask_to_stop()
        for program in (*clients, self.apiserver, self.etcd):
            program.stop(grace_s=5.0)

    def tails(self) -> str:
        """Return the ends of all logs, for the report of a failed test."""
        return "\n".join(program.tail() for program in self.programs)

    def start_apiserver(self) -> None:
        self.apiserver.start()
        wait_until(
            "kube-apiserver is ready", self._is_ready, START_DEADLINE_S, (self.etcd, self.apiserver)
        )

    def restart_apiserver(self) -> None:
        """Stop it, wait until it is gone (it drains for seconds), start it on the same port."""
        self.apiserver.stop()
        self.start_apiserver()

    @contextlib.contextmanager
    def in_tree_hpa(self, sync_period_s: float = 15.0, *args: str) -> Iterator[Program]:
        """Run Kubernetes' own HPA controller meanwhile, in a controller manager of its own."""
        port = free_port()
        program = self._commands.controller_manager(
            f"in-tree-hpa-{port}",
            HPA_CONTROLLER,
            port,
            [f"--horizontal-pod-autoscaler-sync-period={sync_period_s:g}s", *args],
        )
        with program:
            wait_healthy(program, port)
            yield program

    def user(self, name: str, *groups: str) -> Identity:
        """Return a user with a client certificate; RBAC gives it nothing."""
        return self._commands.identity(name, *groups)

    def anonymous(self) -> Identity:
        return Identity("anonymous", self._commands.ports.apiserver, self.cluster_ca.cert_file)

    def service_account(self, namespace: str, name: str) -> Identity:
        """Return the ServiceAccount with a fresh token (TokenRequest, one day)."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        answer = self.admin.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
        )
        return Identity(
            f"system:serviceaccount:{namespace}:{name}",
            self._commands.ports.apiserver,
            self.cluster_ca.cert_file,
            token=answer["status"]["token"],
        )

    def kubeconfig_for(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig that acts as this ServiceAccount, in its own namespace."""
        path = self.directory / f"{namespace}-{name}.kubeconfig"
        return self.service_account(namespace, name).write_kubeconfig(path, namespace=namespace)

    def kubectl(self, *words: str, kubeconfig: Path | None = None, stdin: str = "") -> str:
        """Run the real kubectl and return its output; CalledProcessError carries stderr."""
        command = [str(require("kubectl")), f"--kubeconfig={kubeconfig or self.admin_kubeconfig}"]
        # Its discovery cache, which would outlive a changed APIService by ten minutes.
        cache = self.directory / "kubectl" / uuid.uuid4().hex
        done = subprocess.run(
            [*command, f"--cache-dir={cache}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(
                done.returncode, f"kubectl {' '.join(words)}: {done.stderr.strip()}", done.stdout
            )
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects server-side as the administrator."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(items))

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """Return a new namespace; its deletion is asked for at the end, not awaited."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            yield name
        finally:
            self.admin.request("DELETE", f"/api/v1/namespaces/{name}")

    def pods(self, namespace: str, selector: Mapping[str, str] | None = None) -> list[Any]:
        query = ",".join(f"{key}%3D{value}" for key, value in (selector or {}).items())
        path = f"/api/v1/namespaces/{namespace}/pods"
        items = self.admin.get(f"{path}?labelSelector={query}")["items"]
        assert isinstance(items, list)
        return items

    def ready_pods(self, namespace: str, selector: Mapping[str, str] | None = None) -> list[str]:
        """Return the names of Running and Ready pods that are not being deleted."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(namespace, selector)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            and _has(pod, "Ready")
        ]

    def expose(self, namespace: str, service: str, port: int) -> None:
        """Give a server on this machine's loopback a Service the aggregator can reach."""
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service, "namespace": namespace},
                "spec": {
                    "type": "ExternalName",
                    "externalName": "localhost",
                    "ports": [{"name": "https", "port": port}],
                },
            }
        )

    def register_api(
        self, group: str, version: str, *, namespace: str, service: str, port: int, ca_pem: bytes
    ) -> None:
        """Register an APIService that names a Service made by ``expose``."""
        self.apply(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"namespace": namespace, "name": service, "port": port},
                    "caBundle": base64.b64encode(ca_pem).decode(),
                },
            }
        )

    def wait_available(self, group: str, version: str, deadline_s: float = 30.0) -> None:
        """Return when the aggregator calls the APIService Available."""
        name = f"{version}.{group}"
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        try:
            wait_until(
                f"{name} is Available", lambda: _has(self.admin.get(path), "Available"), deadline_s
            )
        except NotReadyError as late:
            conditions = self.admin.get(path).get("status", {}).get("conditions")
            raise NotReadyError(f"{late}\n{json.dumps(conditions, indent=1)}") from None

    def wait_established(self, *names: str, deadline_s: float = 30.0) -> None:
        """Return when the API server serves these CRDs.

        ``kubectl wait`` fails at once on one so new that its status has no conditions yet.
        """
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        wait_until(
            f"{', '.join(names)}: Established",
            lambda: all(_has(self.admin.get(f"{crds}/{name}"), "Established") for name in names),
            deadline_s,
        )

    def audit(self) -> list[Any]:
        """Return the audit log so far, oldest entry first."""
        with self._commands.audit_log.open() as log:
            return [json.loads(line) for line in log if line.endswith("\n")]

    def _is_ready(self) -> bool:
        return self.admin.request("GET", "/readyz", timeout_s=2.0).status == 200

    def _nodes_ready(self) -> bool:
        nodes = self.admin.get("/api/v1/nodes")["items"]
        return len(nodes) == self.settings.nodes and all(_has(node, "Ready") for node in nodes)

    def add_node(self, name: str) -> None:
        """Add a node of the size that the settings say; kwok makes it Ready."""
        amounts = {
            "cpu": self.settings.node_cpu,
            "memory": self.settings.node_memory,
            "pods": str(self.settings.node_pods),
        }
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self.admin.post("/api/v1/nodes", node)


def wait_healthy(program: Program, port: int) -> None:
    """Return when /healthz of a component, which needs no rights, says ok."""
    # It signs its own certificate at start; nothing secret is sent.
    tls = ssl._create_unverified_context()  # noqa: S323

    def probe() -> bool:
        url = f"https://{LOOPBACK}:{port}/healthz"
        with urllib.request.urlopen(url, timeout=2.0, context=tls) as answer:
            return bool(answer.status == 200)

    wait_until(f"{program.name} is healthy", probe, START_DEADLINE_S, (program,))


def _has(described: Mapping[str, Any], condition: str) -> bool:
    # A CRD that is new has null there.
    conditions: Sequence[Mapping[str, str]] = described.get("status", {}).get("conditions") or ()
    return any(seen["type"] == condition and seen["status"] == "True" for seen in conditions)
