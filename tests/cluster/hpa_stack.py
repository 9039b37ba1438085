"""The HPA on the real plane: its deployed RBAC, its own ServiceAccount, one process or more."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, NotReadyError, Program, free_port, wait_until
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
NAMESPACE, ACCOUNT = "podscale", "podscale-hpa"
GROUP, VERSION = "hpa.podscale.io", "v1alpha1"
# Short, so that tests wait little; the proportions are client-go's.
LEASE_S, RENEW_S, RETRY_S = 6, 4, 1


def grant(plane: Plane) -> None:
    """Apply the account and the rights that the deployment has."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    text = subprocess.run(
        [str(require("kubectl")), "kustomize", str(ROOT / "config/rbac/control")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


class HpaStack:
    """HPA processes beside ``plane``; a context manager."""

    def __init__(
        self,
        plane: Plane,
        directory: Path,
        *arguments: str,
        replicas: int = 1,
        sync_period: str = "1s",
        source: Sequence[str] = ("--metrics-source=api",),
        module: str = "podscale",
    ) -> None:
        self.plane, self.directory = plane, directory
        self._arguments = (f"--horizontal-pod-autoscaler-sync-period={sync_period}", *arguments)
        self._source = source
        self.ports = [free_port() for _ in range(replicas)]
        self.replicas = [
            Program(
                f"hpa-{number}",
                [sys.executable, "-m", module, "hpa", *self._flags(number)],
                directory / f"hpa-{number}.log",
                {"POD_NAME": self.pod(number), "POD_NAMESPACE": NAMESPACE},
            )
            for number in range(replicas)
        ]

    def __enter__(self) -> Self:
        try:
            self.apply()
            self.plane.service_account(NAMESPACE, ACCOUNT).write_kubeconfig(
                self.directory / "hpa.kubeconfig"
            )
            self._reader = self.plane.service_account(NAMESPACE, "reader").token
            for replica in self.replicas:
                replica.start()
            for number in range(len(self.replicas)):
                self.wait_serving(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.resume()
            replica.stop(grace_s=15.0)
        base = f"/api/v1/namespaces/{NAMESPACE}"
        for number in range(len(self.replicas)):
            self.plane.admin.request("DELETE", f"{base}/pods/{self.pod(number)}")
        self.plane.admin.request(
            "DELETE", f"{base}/configmaps?labelSelector=podscale.io%2Fhistory%3Dhpa"
        )
        name = f"{VERSION}.{GROUP}"
        self.plane.admin.request("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/podscale-hpa"
        self.plane.admin.request("DELETE", lease)

    def apply(self) -> None:
        """Apply the manifests that the deployment would, and pods for the leader's label."""
        grant(self.plane)
        reader = {"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}
        role = {"kind": "ClusterRole", "name": "podscale:decisions-reader"}
        self.plane.apply(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "reader", "namespace": NAMESPACE},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "test-decisions-reader"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
                "subjects": [reader],
            },
        )
        for number in range(len(self.replicas)):
            self.plane.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": self.pod(number), "namespace": NAMESPACE},
                    "spec": {"containers": [{"name": "hpa", "image": "pretend"}]},
                }
            )

    def register(self, number: int = 0) -> None:
        """Route the group to one replica; in a cluster the Service selects the leader."""
        text = (ROOT / "config/apiservices/hpa/apiservices.yaml").read_text()
        self.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-",
            stdin=text.replace("port: 443", f"port: {self.ports[number]}"),
        )  # fmt: skip
        self.plane.expose(NAMESPACE, ACCOUNT, self.ports[number])
        self.plane.wait_available(GROUP, VERSION, 60.0)

    def pod(self, number: int) -> str:
        return f"podscale-hpa-{number}"

    def tails(self) -> str:
        return "\n".join(replica.tail() for replica in self.replicas)

    def wait_serving(self, number: int, deadline_s: float = 30.0) -> None:
        """Return when the replica's server is ready."""
        self._wait(f"hpa-{number} is ready", lambda: self._ready(number), deadline_s)

    def decision(self, namespace: str, name: str, number: int = 0, query: str = "") -> Any:
        """Return the decision that one replica tells, or its Status."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/scalingdecisions/{name}"
        return self.get(number, path + query)[1]

    def get(self, number: int, path: str) -> tuple[int, Any]:
        """Return status and body of a request to one replica's own port, as its account."""
        import http.client
        import ssl

        # What is tested is what the server says, not its certificate.
        tls = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.ports[number], timeout=5, context=tls
        )
        try:
            headers = {"Authorization": f"Bearer {self._reader}"}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode()

    def leader(self) -> str:
        """Return who holds the Lease now."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/podscale-hpa"
        answer = self.plane.admin.request("GET", path)
        if answer.status == 404:
            return ""
        return str(answer.body["spec"].get("holderIdentity") or "")

    def _wait(self, what: str, probe: Any, deadline_s: float) -> None:
        try:
            wait_until(what, probe, deadline_s, tuple(self.replicas))
        except NotReadyError as late:
            raise NotReadyError(f"{late}\n{self.tails()}") from None

    def _ready(self, number: int) -> bool:
        try:
            return self.get_plain(number, "/readyz") == 200
        except OSError:
            return False

    def get_plain(self, number: int, path: str) -> int:
        """Return the status of a request without credentials."""
        import http.client
        import ssl

        tls = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.ports[number], timeout=2, context=tls
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def _flags(self, number: int) -> list[str]:
        kubeconfig = self.directory / "hpa.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--secure-port={self.ports[number]}",
            f"--bind-address={LOOPBACK}",
            f"--cert-dir={self.directory}/hpa-{number}",
            "--shutdown-delay-duration=0s",
            f"--service={NAMESPACE}/{ACCOUNT}",
            f"--leader-elect-lease-duration={LEASE_S}s",
            f"--leader-elect-renew-deadline={RENEW_S}s",
            f"--leader-elect-retry-period={RETRY_S}s",
            *self._source,
            *self._arguments,
        ]
