"""The command lines of the control plane's programs, as reference/control-plane.md has them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.identity import Identity
from tests.cluster.pki import Authority, service_account_keys
from tests.cluster.settings import PlaneSettings
from tests.tools.process import LOOPBACK, Program, free_port
from tests.tools.required import require

Words = list[str | Path]


@dataclass(frozen=True)
class Ports:
    apiserver: int
    etcd_clients: int
    etcd_peers: int


class Commands:
    """Makes the programs of one plane in one directory; starts nothing."""

    def __init__(self, directory: Path, settings: PlaneSettings) -> None:
        self.directory = directory
        self.settings = settings
        self.ports = Ports(free_port(), free_port(), free_port())
        self.pki = directory / "pki"
        self.pki.mkdir()
        self.cluster_ca = Authority(self.pki, "cluster-ca")
        # A CA of its own: a certificate of the cluster CA must never pass as the front proxy.
        self.front_proxy_ca = Authority(self.pki, "front-proxy-ca")
        self._front_proxy = self.front_proxy_ca.issue("front-proxy-client")
        self._token_keys = service_account_keys(self.pki)
        self._serving = self.cluster_ca.issue(
            "kube-apiserver",
            hosts=("localhost", LOOPBACK, "10.0.0.1", "kubernetes.default.svc"),
        )

    def identity(self, name: str, *groups: str) -> Identity:
        """Return a user with a client certificate of the cluster CA."""
        cert = self.cluster_ca.issue(name, organizations=groups)
        return Identity(name, self.ports.apiserver, self.cluster_ca.cert_file, cert=cert)

    def etcd(self) -> Program:
        clients = f"http://{LOOPBACK}:{self.ports.etcd_clients}"
        peers = f"http://{LOOPBACK}:{self.ports.etcd_peers}"
        return self._program(
            "etcd",
            [
                "--unsafe-no-fsync",
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--log-level=warn",
                *self.settings.etcd_args,
            ],
        )

    def apiserver(self) -> Program:
        port = self.ports.apiserver
        words: Words = [
            f"--etcd-servers=http://{LOOPBACK}:{self.ports.etcd_clients}",
            f"--cert-dir={self.pki}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={self._serving.cert_file}",
            f"--tls-private-key-file={self._serving.key_file}",
            f"--client-ca-file={self.cluster_ca.cert_file}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            f"--service-account-issuer=https://{LOOPBACK}:{port}/",
            f"--service-account-key-file={self._token_keys.cert_file}",
            f"--service-account-signing-key-file={self._token_keys.key_file}",
            "--endpoint-reconciler-type=none",
            # Without it a stop waits a minute for the watches of clients that stay.
            "--shutdown-watch-termination-grace-period=1s",
            f"--requestheader-client-ca-file={self.front_proxy_ca.cert_file}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._front_proxy.cert_file}",
            f"--proxy-client-key-file={self._front_proxy.key_file}",
            *self._gates(),
        ]
        if self.settings.audit:
            policy = self.directory / "audit-policy.json"
            policy.write_text(json.dumps(self.settings.audit_policy()))
            # blocking: an entry is on disk before its answer is sent.
            words += [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
            words += ["--audit-log-mode=blocking"]
        return self._program("kube-apiserver", [*words, *self.settings.apiserver_args])

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def controller_manager(
        self, name: str, controllers: str, port: int, args: Sequence[str] = ()
    ) -> Program:
        """Return a controller manager that runs ``controllers`` (as in its flag)."""
        words: Words = [
            f"--controllers={controllers}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._token_keys.key_file}",
            f"--root-ca-file={self.cluster_ca.cert_file}",
            *self._component("system:kube-controller-manager", port),
            # kwok's heartbeats come just after the grace of 50 s, and no pod is ready meanwhile.
            "--node-monitor-grace-period=1h",
            *args,
        ]
        return self._program(name, words, executable="kube-controller-manager")

    def scheduler(self, port: int) -> Program:
        words = self._component("system:kube-scheduler", port)
        return self._program("kube-scheduler", [*words, *self.settings.scheduler_args])

    def kwok(self, kubeconfig: Path, port: int) -> Program:
        stages = self.directory / "kwok.yaml"
        stages.write_text(self.settings.kwok_stages)
        return self._program(
            "kwok",
            [
                f"--kubeconfig={kubeconfig}",
                f"--config={stages}",
                "--manage-all-nodes=true",
                # The default is 0.0.0.0:10247, which a second plane could not take.
                f"--server-address={LOOPBACK}:{port}",
            ],
        )

    def _component(self, user: str, port: int) -> Words:
        kubeconfig = self.identity(user).write_kubeconfig(
            self.directory / f"{user.removeprefix('system:')}.kubeconfig"
        )
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--leader-elect=false",
            *self._gates(),
        ]

    def _gates(self) -> Words:
        gates = [f"{name}={str(on).lower()}" for name, on in self.settings.feature_gates.items()]
        return [f"--feature-gates={','.join(gates)}"] if gates else []

    def _program(self, name: str, words: Words, executable: str | None = None) -> Program:
        return Program(name, [require(executable or name), *words], self.directory / f"{name}.log")
