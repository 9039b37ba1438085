"""A sandbox API server full of pods, as a process of its own, for the benches.

``python -m tests.bench.cluster --namespaces 100 --apps 10 --pods 10 --kubeconfig FILE``
prints its URL and, on the next line, the token of a user without any special group.
"""

import argparse
import asyncio
import gc
import signal
from pathlib import Path

from tests.kit.apiserver.server import FaultySandbox

BACKEND_ACCOUNT = "ns-0/external-reader"  # who the adapter is to a backend


def seed(server: FaultySandbox, namespaces: int, apps: int, pods: int) -> None:
    """Store running, ready pods ``app-A-P`` labelled ``app=app-A`` in ``ns-N``."""
    account, _, name = BACKEND_ACCOUNT.partition("/")
    server.objects.put(
        {"apiVersion": "v1", "kind": "ServiceAccount",
         "metadata": {"namespace": account, "name": name}}
    )  # fmt: skip
    for n in range(namespaces):
        namespace = f"ns-{n}"
        server.objects.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        for a in range(apps):
            for p in range(pods):
                server.objects.put(pod(namespace, f"app-{a}", p))


def permit(server: FaultySandbox) -> None:
    """Let ``reader`` read all metrics."""
    group = "rbac.authorization.k8s.io"
    groups = [f"{name}.metrics.k8s.io" for name in ("custom", "external")]
    rule = {"apiGroups": [*groups, "metrics.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    about = {"metadata": {"name": "reader"}, "apiVersion": f"{group}/v1"}
    server.objects.put({**about, "kind": "ClusterRole", "rules": [rule]})
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "reader"}
    subject = {"apiGroup": group, "kind": "User", "name": "reader"}
    binding = {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    server.objects.put({**about, **binding})


def pod(namespace: str, app: str, number: int) -> dict[str, object]:
    """Return one pod as a kubelet would report it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-{number}",
            "namespace": namespace,
            "labels": {"app": app},
        },
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "pretend",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                }
            ]
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:10Z",
                }
            ],
        },
    }


async def _serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("namespaces", "apps", "pods"):
        parser.add_argument(f"--{name}", type=int, default=10)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--rbac", action="store_true", help="who is not the reader may nothing")
    given = parser.parse_args()
    server = FaultySandbox(enforce_rbac=given.rbac)
    seed(server, given.namespaces, given.apps, given.pods)
    permit(server)
    gc.freeze()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        server.kubeconfig(given.kubeconfig)
        print(server.url, server.tokens.issue("reader"), flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
