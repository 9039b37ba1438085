"""An installation of upstream whose program is ours, on the sandbox and a stub Prometheus.

RBAC is enforced, the program is a ServiceAccount with upstream's rights. Only what cannot
be the same on a test machine is moved: directories, port, Prometheus's address.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from adapter.rules import config_gen
from podscale.serving.certificates.issuing import make_authority, make_leaf
from tests.integration.upstream_arguments import Installation
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

NAMESPACE, ACCOUNT = "monitoring", "prometheus-adapter"
PROGRAM = Path(sys.executable).parent / "podscale"
SERIES = {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-0", "job": "web"}


def manifests() -> list[dict[str, Any]]:
    """Return upstream's objects: its rights, and APIServices as somebody else wrote them."""
    about = {"name": ACCOUNT, "namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", **about}
    rbac = "rbac.authorization.k8s.io"

    def binding(kind: str, name: str, namespace: str, role_kind: str, role: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{rbac}/v1", "kind": kind,
            "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
            "roleRef": {"apiGroup": rbac, "kind": role_kind, "name": role},
            "subjects": [subject],
        }  # fmt: skip

    def role(kind: str, name: str, rules: list[Any], namespace: str = "") -> dict[str, Any]:
        about = {"name": name} | ({"namespace": namespace} if namespace else {})
        return {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": about, "rules": rules}

    reading = {
        "apiGroups": [""],
        "resources": ["nodes", "namespaces", "pods", "services"],
        "verbs": ["get", "list", "watch"],
    }
    reviews = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["create"]}
        for group, resource in (
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        )
    ]
    reader = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["extension-apiserver-authentication"],
        "verbs": ["get", "list", "watch"],
    }
    name = "extension-apiserver-authentication-reader"
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}}
          for n in (NAMESPACE, "shop", "kube-system")),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        role("ClusterRole", "prometheus-adapter-resource-reader", [reading]),
        role("ClusterRole", "system:auth-delegator", reviews),
        role("Role", name, [reader], "kube-system"),
        binding("ClusterRoleBinding", "reader", "", "ClusterRole",
                "prometheus-adapter-resource-reader"),
        binding("ClusterRoleBinding", "delegator", "", "ClusterRole", "system:auth-delegator"),
        binding("RoleBinding", name, "kube-system", "Role", name),
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        },
        *(
            {
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group, "version": version, "groupPriorityMinimum": 100,
                    "versionPriority": 100, "insecureSkipTLSVerify": True,
                    "service": {"name": ACCOUNT, "namespace": NAMESPACE},
                },
            }
            for group, version in (
                ("custom.metrics.k8s.io", "v1beta1"), ("metrics.k8s.io", "v1beta1"),
            )
        ),
    ]  # fmt: skip


class StubPrometheus(BaseHTTPRequestHandler):
    """One counter of one pod, whatever is asked."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        self._answer(url, urllib.parse.unquote_plus(url.query))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(urllib.parse.urlsplit(self.path), urllib.parse.unquote_plus(body.decode()))

    def _answer(self, url: urllib.parse.SplitResult, words: str) -> None:
        self.asked.append((url.path, self.headers.get("X-Scope-OrgID")))
        data: Any = [SERIES]
        if not url.path.endswith("/series"):
            labels = {key: SERIES[key] for key in ("namespace", "pod")}
            # When it was scraped is asked beside the value.
            value = [time.time(), str(time.time()) if "timestamp(" in words else "7"]
            data = {"resultType": "vector", "result": [{"metric": labels, "value": value}]}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def stub_prometheus() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    asked: list[tuple[str, str | None]] = []
    handler = type("Handler", (StubPrometheus,), {"asked": asked})
    with ThreadingHTTPServer((LOOPBACK, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"{LOOPBACK}:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


class Sandbox:
    """The embedded API server as a process, with RBAC."""

    def __init__(self, directory: Path) -> None:
        objects = directory / "objects.yaml"
        objects.write_text(yaml.safe_dump_all(manifests()))
        self.port = free_port()
        self.kubeconfig = directory / "admin.kubeconfig"
        self.program = Program(
            "sandbox",
            [
                sys.executable, "-m", "tests.kit.sandbox", "--rbac", f"--port={self.port}",
                f"--kubeconfig={self.kubeconfig}", objects,
            ],
            directory / "sandbox.log",
        )  # fmt: skip

    def start(self) -> None:
        self.program.start()
        wait_until("the sandbox is ready", self._is_ready, 30.0, (self.program,))
        user = yaml.safe_load(self.kubeconfig.read_text())["users"][0]["user"]
        self.token = user["token"]

    def _is_ready(self) -> bool:
        return self.kubeconfig.exists() and self._request("GET", "/readyz", {})[0] == 200

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        text = json.dumps(body) if body is not None else None
        status, raw = self._request(method, path, headers, text)
        assert status < 300, raw
        return json.loads(raw)

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: str | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def kubeconfig_of_the_account(self, path: Path) -> Path:
        token = self.ask(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", "POST",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )["status"]["token"]  # fmt: skip
        text = self.kubeconfig.read_text()
        path.write_text(text.replace(self.token, token))
        return path

    def written(self) -> Any:
        """Return APIServices and Secrets without what the sandbox's own checks write."""
        services = self.ask("/apis/apiregistration.k8s.io/v1/apiservices")["items"]
        return {each["metadata"]["name"]: each["spec"] for each in services}, self.ask(
            "/api/v1/secrets"
        )["items"]


class Launched:
    """An installation whose program is ours."""

    def __init__(self, installation: Installation, directory: Path, extra: tuple[str, ...] = ()):
        self.directory = directory
        self.installation = installation
        self.port = free_port()
        self.sandbox = Sandbox(directory)
        self._extra = extra
        self.moved = {path: directory / path.strip("/").replace("/", "-") for path in
                       ("/etc/adapter", "/var/run/serving-cert", "/tmp/cert")}  # fmt: skip

    def arguments(self, prometheus: str) -> list[str]:
        """Return upstream's arguments with directories, port and Prometheus's address moved."""
        return [
            self._placed(argument, prometheus)
            for argument in (*self.installation.arguments, *self._extra)
        ]

    def _placed(self, argument: str, prometheus: str) -> str:
        name, _, value = argument.partition("=")
        if name == "--secure-port":
            return f"{name}={self.port}"
        if name == "--prometheus-url":
            return f"{name}=http://{prometheus}{urllib.parse.urlsplit(value).path}"
        for path, moved in self.moved.items():
            if value.startswith(path):
                return f"{name}={moved}{value.removeprefix(path)}"
        return argument

    @contextmanager
    def running(self) -> Iterator[list[tuple[str, str | None]]]:
        """Run it; yields what Prometheus was asked."""
        for folder in self.moved.values():
            folder.mkdir(exist_ok=True)
        rules = self.installation.rules or yaml.safe_dump(
            {"rules": yaml.safe_load(config_gen.default_yaml())["rules"]}
        )
        (self.moved["/etc/adapter"] / "config.yaml").write_text(rules)
        if self.installation.has_certificate:
            self._certify(self.moved["/var/run/serving-cert"])
        program = self.directory / "adapter"
        program.symlink_to(PROGRAM)
        with stub_prometheus() as (address, asked):
            try:
                self.sandbox.start()
                kubeconfig = self.sandbox.kubeconfig_of_the_account(self.directory / "kubeconfig")
                self.program = Program(
                    "adapter",
                    [program, *self.arguments(address)],
                    self.directory / "adapter.log",
                    # Stands for the in-cluster configuration, which has fixed absolute paths.
                    {**os.environ, "KUBECONFIG": str(kubeconfig)},
                )
                self.program.start()
                wait_until("it is ready", lambda: self.ask("/readyz")[0] == 200, 30.0,
                           (self.program,))  # fmt: skip
                yield asked
            finally:
                if getattr(self, "program", None):
                    self.program.stop()
                self.sandbox.program.stop()

    def _certify(self, folder: Path) -> None:
        now = 1.7e9
        authority = make_authority("theirs", now=now, life_s=4e9)
        leaf = make_leaf(authority, (f"{ACCOUNT}.{NAMESPACE}.svc",), now=now, life_s=4e9)
        (folder / "tls.crt").write_bytes(leaf.certificate)
        (folder / "tls.key").write_bytes(leaf.key)

    def ask(self, path: str) -> tuple[int, Any]:
        # What is tested is that it serves; certificates have tests of their own.
        tls = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=10, context=tls)
        try:
            headers = {"Authorization": f"Bearer {self.sandbox.token}"}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(raw) if raw[:1] == b"{" else raw
