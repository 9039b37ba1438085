"""A cluster that runs prometheus-adapter, in the world of cases C.1 to C.3, on the real plane.

There is no kubelet on the plane, so one is played here for one Deployment: what its pod
template says is started as a process on the port of the Service. The original is not built
for this: its image answers what it answered when it was recorded (C.4 to C.6). Ours is the
program itself, started under the template's command with the template's arguments.
"""

import asyncio
import json
import os
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import trustme
import yaml
from aiohttp import web

from tests.cluster.plane import Plane
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.integration import launched
from tests.integration.launched import ACCOUNT, NAMESPACE, PROGRAM
from tests.integration.upstream_arguments import INSTALLATIONS
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

IMAGE = "prometheus-adapter:v0.12.0"
LABELS = {"app.kubernetes.io/name": "prometheus-adapter"}
GROUPS = (
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
)
# The script of C.3 answers queries letter by letter, so each request is sent as it is
# (DESIGN.md, conformance row).
AS_RECORDED = ("--coalescing=off", "--sample-timestamps=off")


def objects() -> list[dict[str, Any]]:
    """Return the objects of C.1 as a real API server takes them, and their kinds."""
    found = [_crd("brands", "Brand", "cheese.io", "v1alpha1"),
             _crd("kafkatopics", "KafkaTopic", "kafka.strimzi.io", "v1beta2")]  # fmt: skip
    specs: Mapping[str, Any] = {
        "Pod": {"containers": [{"name": "c1", "image": "web"}]},
        "Service": {"ports": [{"port": 80}]},
        "Deployment.apps": {
            "replicas": 0,
            "selector": {"matchLabels": {"deployment": "web"}},
            "template": {
                "metadata": {"labels": {"deployment": "web"}},
                "spec": {"containers": [{"name": "c1", "image": "web"}]},
            },
        },
        "Ingress.networking.k8s.io": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}
        },
        "PersistentVolume": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
        },
    }  # fmt: skip
    versions = {r.kind: r.api_version for r in world.part_c_resources()}
    for row in sorted(rows("C1"), key=lambda row: row["kind"] != "Namespace"):
        kind = row["kind"].partition(".")[0]
        for namespace, name, labels in row["objects"]:
            metadata = {"name": name, "labels": labels}
            if namespace:
                metadata["namespace"] = namespace
            made = {"apiVersion": versions[kind], "kind": kind, "metadata": metadata}
            if row["kind"] in specs:
                made["spec"] = specs[row["kind"]]
            found.append(made)
    return found


def _crd(plural: str, kind: str, group: str, version: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": version, "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def installation(port: int) -> list[dict[str, Any]]:
    """Return upstream's manifests: rights, rules, APIServices and the Deployment."""
    rights = [
        each for each in launched.manifests()
        if each["kind"] not in ("Pod", "APIService", "Namespace")
    ]  # fmt: skip
    about = {"name": ACCOUNT, "namespace": NAMESPACE, "labels": LABELS}
    services = [
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100,
                "versionPriority": 200 if version == "v1beta2" else 100,
                "insecureSkipTLSVerify": True,
                "service": {"name": ACCOUNT, "namespace": NAMESPACE, "port": port},
            },
        }
        for group, version in GROUPS
    ]  # fmt: skip
    container = {
        "name": "prometheus-adapter", "image": IMAGE, "args": list(INSTALLATIONS[0].arguments),
        "volumeMounts": [{"name": "config", "mountPath": "/etc/adapter/"}],
    }  # fmt: skip
    return [
        *rights,
        {
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "adapter-config", "namespace": NAMESPACE, "labels": LABELS},
            "data": {"config.yaml": yaml.safe_dump(world.part_c_config(), sort_keys=False)},
        },
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": about,
            "spec": {
                "replicas": 1, "selector": {"matchLabels": LABELS},
                "template": {
                    "metadata": {"labels": LABELS},
                    "spec": {
                        "serviceAccountName": ACCOUNT, "terminationGracePeriodSeconds": 0,
                        "containers": [container],
                        "volumes": [{"name": "config", "configMap": {"name": "adapter-config"}}],
                    },
                },
            },
        },
        *services,
    ]  # fmt: skip


class Servers:
    """Loopback servers on a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def settle() -> None:
            # What connections left behind: they end with their tasks, one turn later.
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(settle(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(
        self, app: web.Application, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> tuple[int, Callable[[], None]]:
        """Serve ``app``; return its port and what ends it."""
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)

        async def up() -> int:
            await runner.setup()
            await web.TCPSite(runner, LOOPBACK, port, ssl_context=tls, reuse_address=True).start()
            found = runner.addresses[0][1]
            assert isinstance(found, int)
            return found

        def wait(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

        async def down() -> None:
            # A polite close waits for the aggregator's, which keeps its connections.
            assert runner.server is not None
            for connection in runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)
            await runner.cleanup()

        return wait(up()), lambda: wait(down())


class Recorded:
    """The original as it was recorded: path and query to status and body."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers = {
            _key(row[0]): (row[1], row[3]) for name in ("C4", "C5", "C6") for row in rows(name)
        }

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        # The aggregator looks at v1beta1 to see whether anybody is there; only v1beta2 is
        # on record.
        path = request.raw_path.removesuffix("?timeout=32s")
        if path.partition("?")[0].endswith("custom.metrics.k8s.io/v1beta1"):
            path = path.replace("v1beta1", "v1beta2")
        status, body = self._answers.get(_key(path), (404, {"kind": "Status", "code": 404}))
        self.asked += "/namespaces/" in path
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)


def _key(path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    url = urllib.parse.urlsplit(path)
    query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
    return urllib.parse.unquote(url.path), tuple(sorted(query))


class Kubelet:
    """Runs what the one pod of the Deployment says, in place of a node."""

    def __init__(self, plane: Plane, servers: Servers, directory: Path, prometheus: str) -> None:
        self._plane, self._servers, self._directory = plane, servers, directory
        self._prometheus = prometheus
        self.port = free_port()
        self.recorded = Recorded()
        self.image = ""
        self._end: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def follow(self) -> None:
        """Run the image of the pod there is now, in the place of the one before."""
        container = self._container()
        self._end()
        self._end = lambda: None
        self.image = container["image"]
        if "prometheus-adapter" in self.image:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trustme.CA().issue_cert(f"{ACCOUNT}.{NAMESPACE}.svc").configure_cert(tls)
            _, self._end = self._servers.start(self.recorded.app(), self.port, tls)
        else:
            self._end = self._launch(container)

    def _container(self) -> Mapping[str, Any]:
        pods = [
            pod for pod in self._plane.pods(NAMESPACE, LABELS)
            if "deletionTimestamp" not in pod["metadata"]
        ]  # fmt: skip
        assert len(pods) == 1, [pod["metadata"]["name"] for pod in pods]
        (container,) = pods[0]["spec"]["containers"]
        assert isinstance(container, dict)
        return container

    def _launch(self, container: Mapping[str, Any]) -> Callable[[], None]:
        (command,) = container["command"]
        program = self._directory / Path(command).name
        program.unlink(missing_ok=True)
        program.symlink_to(PROGRAM)
        moved = {
            path: self._directory / path.strip("/").replace("/", "-")
            for path in ("/etc/adapter", "/tmp/cert")
        }
        for folder in moved.values():
            folder.mkdir(exist_ok=True)
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/adapter-config"
        rules = self._plane.admin.get(path)["data"]["config.yaml"]
        (moved["/etc/adapter"] / "config.yaml").write_text(rules)
        arguments = []
        for argument in container["args"]:
            name, _, value = argument.partition("=")
            if name == "--secure-port":
                value = str(self.port)
            elif name == "--prometheus-url":
                value = self._prometheus
            for prefix, folder in moved.items():
                value = value.replace(prefix, str(folder))
            arguments.append(f"{name}={value}" if value else name)
        kubeconfig = self._plane.kubeconfig_for(NAMESPACE, ACCOUNT)
        running = Program(
            "adapter",
            [program, *arguments, f"--bind-address={LOOPBACK}", *AS_RECORDED],
            self._directory / "adapter.log",
            # Stands for the in-cluster configuration, which has fixed absolute paths.
            {**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
        running.start()
        self.log = running
        ready = f"https://{LOOPBACK}:{self.port}/readyz"
        wait_until("the launcher is ready", lambda: _answers(ready), 30.0, (running,))

        def end() -> None:
            running.stop()
            assert running.exit_code == 0, running.tail()

        return end


def _answers(url: str) -> bool:
    # What is tested is that it serves; certificates have tests of their own.
    tls = ssl._create_unverified_context()  # noqa: S323
    with urllib.request.urlopen(url, timeout=2.0, context=tls) as answer:  # noqa: S310
        return bool(answer.status == 200)


def written(plane: Plane) -> str:
    """Return what a migration must leave as it was: APIServices, Service, rights, rules."""
    found = []
    for path in (
        "/apis/apiregistration.k8s.io/v1/apiservices",
        f"/api/v1/namespaces/{NAMESPACE}/services",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ):
        items = plane.admin.get(path)["items"]
        found += [
            {**{k: v for k, v in each.items() if k != "status"},
             "metadata": {"name": each["metadata"]["name"]}}
            for each in items
        ]  # fmt: skip
    return json.dumps(found, sort_keys=True)
