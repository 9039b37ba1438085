"""KEDA's operator and metrics adapter beside a plane, and ScaledObjects for them."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tests.cluster.external_adapters import KEDA_NAMESPACE, KEDA_SERVICE
from tests.cluster.keda_build import programs
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects"
CRDS = ("scaledobjects", "scaledjobs", "triggerauthentications", "clustertriggerauthentications")


class KedaStack:
    """Both programs, as the administrator; a context manager. Nothing is routed to them yet."""

    def __init__(self, plane: Plane, directory: Path, *operator_flags: str) -> None:
        self._plane = plane
        built = programs()
        self._crds = built / "crds"
        self.port = free_port()
        service = f"{KEDA_SERVICE}.{KEDA_NAMESPACE}.svc"
        authority = Authority(directory, "keda-ca")
        self.ca_file = authority.cert_file
        # Operator and adapter show each other one certificate, both as server and as client.
        pair = authority.issue(
            "localhost", hosts=["localhost", LOOPBACK, service], file_stem="tls", is_both=True
        )
        shutil.copy(self.ca_file, directory / "ca.crt")
        internal, unused = free_port(), [f"{LOOPBACK}:{free_port()}" for _ in range(2)]
        kubeconfig = plane.admin_kubeconfig
        environment = {
            "KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": KEDA_NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA_NAMESPACE, "WATCH_NAMESPACE": "",  # every one
        }  # fmt: skip
        self.operator = Program(
            "keda-operator",
            [
                built / "operator",
                f"--metrics-bind-address={unused[0]}",
                f"--health-probe-bind-address={unused[1]}",
                f"--metrics-service-bind-address={LOOPBACK}:{internal}",
                f"--cert-dir={directory}",
                *operator_flags,
            ],
            directory / "keda-operator.log",
            environment,
        )
        self.adapter = Program(
            "keda-adapter",
            [
                built / "adapter",
                f"--port={free_port()}",
                f"--secure-port={self.port}",
                f"--bind-address={LOOPBACK}",
                f"--metrics-service-address={LOOPBACK}:{internal}",
                "--metrics-service-grpc-authority=localhost",
                f"--client-ca-file={self.ca_file}",
                f"--tls-cert-file={pair.cert_file}",
                f"--tls-private-key-file={pair.key_file}",
                f"--cert-dir={directory}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                f"--lister-kubeconfig={kubeconfig}",
            ],
            directory / "keda-adapter.log",
            environment,
        )
        self.programs = (self.operator, self.adapter)

    def __enter__(self) -> Self:
        self._plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEDA_NAMESPACE}}
        )
        self._plane.kubectl("apply", "--server-side", "-f", str(self._crds))
        self._plane.wait_established(*(f"{name}.keda.sh" for name in CRDS))
        try:
            for program in self.programs:
                program.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.stop(grace_s=5.0)

    def wait_ready(self, namespace: str, count: int, deadline_s: float = 90.0) -> None:
        """Return when this many ScaledObjects of the namespace are Ready."""
        path = SCALED_OBJECTS.format(namespace)
        wait_until(
            f"{count} ScaledObjects are Ready",
            lambda: sum(map(_is_ready, self._plane.admin.get(path)["items"])) == count,
            deadline_s,
            self.programs,
        )


def prometheus_trigger(url: str, query: str) -> dict[str, Any]:
    metadata = {"serverAddress": url, "query": query, "threshold": "10"}
    return {"type": "prometheus", "metadata": metadata}


def cron_trigger(replicas: int) -> dict[str, Any]:
    """Return a trigger that began ten minutes ago and ends in two hours."""
    now = datetime.now(UTC)
    begin, end = now - timedelta(minutes=10), now + timedelta(hours=2)
    metadata = {"timezone": "Etc/UTC", "start": f"{begin:%-M %-H} * * *",
                "end": f"{end:%-M %-H} * * *", "desiredReplicas": str(replicas)}  # fmt: skip
    return {"type": "cron", "metadata": metadata}


def scaled_object(
    name: str, namespace: str, trigger: Mapping[str, Any], **spec: object
) -> dict[str, Any]:
    """Return a ScaledObject for the Deployment of the same name."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": name},
            "maxReplicaCount": 10,
            "triggers": [dict(trigger)],
            **spec,
        },
    }


def _is_ready(scaled: Mapping[str, Any]) -> bool:
    conditions = scaled.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
