"""The VPA's three programs on the real plane, each with the rights of its own manifests."""

import subprocess
import sys
from pathlib import Path

from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program, free_port
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
NAMESPACE = "podscale"


class VpaStack:
    """Starts the parts one at a time; a context manager that ends them all."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self.plane, self.directory = plane, directory
        self.running: dict[str, Program] = {}

    def __enter__(self) -> "VpaStack":
        self.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self._apply("config/crds/vpa/vpa.yaml")
        self.plane.wait_established(
            "verticalpodautoscalers.autoscaling.k8s.io",
            "verticalpodautoscalercheckpoints.autoscaling.k8s.io",
        )
        for folder in ("vpa", "accounts"):
            text = subprocess.run(
                [str(require("kubectl")), "kustomize", str(ROOT / "config/rbac" / folder)],
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.stop(name)
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        self.plane.admin.request("DELETE", f"{path}/vpa-webhook-config")

    def start(self, part: str, *arguments: str, module: str = "podscale") -> Program:
        """Start ``recommender``, ``updater`` or ``admission``."""
        kubeconfig = self.directory / f"{part}.kubeconfig"
        account = self.plane.service_account(NAMESPACE, f"podscale-{part}")
        account.write_kubeconfig(kubeconfig)
        program = Program(
            part,
            [
                sys.executable, "-m", module, part,
                f"--kubeconfig={kubeconfig}", "--address=",
                f"--cert-dir={self.directory}/{part}", *arguments,
            ],
            self.directory / f"{part}.log",
        )  # fmt: skip
        program.start()
        self.running[part] = program
        return program

    def start_admission(self, *arguments: str, module: str = "podscale") -> Program:
        """Start the webhook, registered by URL: the plane has no pod network."""
        port = free_port()
        return self.start(
            "admission",
            f"--port={port}",
            f"--bind-address={LOOPBACK}",
            "--register-by-url=true",
            f"--webhook-address={LOOPBACK}",
            f"--webhook-port={port}",
            f"--client-ca-file={self.directory}/absent",
            "--status-lease-namespace=kube-system",
            "--status-lease-update-interval=1s",
            *arguments,
            module=module,
        )

    def stop(self, part: str) -> None:
        """End one part."""
        self.running.pop(part).stop(grace_s=10.0)

    @property
    def programs(self) -> tuple[Program, ...]:
        """What runs now."""
        return tuple(self.running.values())

    def _apply(self, manifest: str) -> None:
        self.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / manifest)
        )
