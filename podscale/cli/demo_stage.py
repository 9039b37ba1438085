"""What the demo runs: the sandbox in this process, the real parts as child processes.

Everything lives in one temporary directory and on the loopback; leaving the block ends
every process and removes every file.
"""

import asyncio
import contextlib
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import click
import yaml

from podscale.core import selector
from podscale.sandbox.cluster import SandboxCluster
from podscale.sandbox.load import Traffic
from podscale.sandbox.server import SandboxServer

NAMESPACE, WORKLOAD, METRIC = "shop", "web", "http_requests_per_second"
HOST = "127.0.0.1"
PERIOD_S = 150.0  # of the daily load, which here takes two and a half minutes
_DAWN_S = 20.0  # the night before the first pods are measured is not shown
_STOP_S = 10.0

_RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[10s])) by (<<.GroupBy>>)'
resourceRules:
  cpu:
    containerQuery: >-
      sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[10s])) by (<<.GroupBy>>)
    nodeQuery: >-
      sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[10s])) by (<<.GroupBy>>)
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  memory:
    containerQuery: sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  window: 10s
"""

_APIS = (
    ("custom.metrics.k8s.io", "v1beta2", "podscale-adapter"),
    ("metrics.k8s.io", "v1beta1", "podscale-adapter"),
    ("hpa.podscale.io", "v1alpha1", "podscale-hpa"),
)


class DemoError(click.ClickException):
    """The demo cannot run here; the text says what to do."""


class Stage:
    """The running demo, as the view needs it."""

    def __init__(self, cluster: SandboxCluster, kubeconfig: Path, directory: Path) -> None:
        self.cluster = cluster
        self.server = cluster.server
        self.kubeconfig = kubeconfig
        self.directory = directory
        self.children: dict[str, asyncio.subprocess.Process] = {}

    def ended(self) -> str:
        """Return what a child that ended by itself said last; empty while all run."""
        for name, child in self.children.items():
            if child.returncode is not None:
                log = self.directory / f"{name}.log"
                last = log.read_text(errors="replace").strip().splitlines()[-3:]
                return f"{name} ended with status {child.returncode}: {' | '.join(last)}"
        return ""

    async def get(self, session: aiohttp.ClientSession, path: str) -> object | None:
        """Return the JSON at ``path`` of the sandbox's API server, ``None`` if it has none yet."""
        headers = {"Authorization": f"Bearer {self.server.admin_token}"}
        try:
            async with session.get(
                self.server.url + path, headers=headers, timeout=aiohttp.ClientTimeout(total=5)
            ) as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            return None


def requests_per_s(elapsed_s: float) -> float:
    """Return the load of the shop: a day of it, from a quiet night to a busy noon."""
    day = (1 - math.cos(2 * math.pi * (elapsed_s + _DAWN_S) / PERIOD_S)) / 2
    return 12.0 + 108.0 * day**2


def find_prometheus() -> Path:
    """Return a Prometheus from PATH or from the tool cache; raises ``DemoError``."""
    on_path = shutil.which("prometheus")
    if on_path:
        return Path(on_path)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("PODSCALE_TOOLS") or home / "podscale" / "tools")
    built = sorted(cache.glob("prometheus-*/prometheus"), key=lambda p: p.stat().st_mtime)
    if not built:
        raise DemoError(
            "no Prometheus found: put one on PATH, or run `make tools` in a checkout "
            "(it builds one with Go, once)"
        )
    return built[-1]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Run the demo's cluster and parts while the block runs."""
    prometheus = find_prometheus()
    loop = asyncio.get_running_loop()
    began = loop.time()
    with tempfile.TemporaryDirectory(prefix="podscale-demo-") as scratch:
        directory = Path(scratch)
        cluster = SandboxCluster(SandboxServer())
        async with cluster:
            kubeconfig = cluster.server.kubeconfig(directory / "kubeconfig")
            ports = {"podscale-adapter": _free_port(), "podscale-hpa": _free_port()}
            for item in _objects(ports):
                cluster.server.objects.put(item)
            cluster.load.set(
                "shop",
                Traffic(
                    NAMESPACE,
                    selector.parse(f"app={WORKLOAD}"),
                    lambda _now: requests_per_s(loop.time() - began),
                ),
            )
            running = Stage(cluster, kubeconfig, directory)
            try:
                await _start(running, prometheus, ports)
                yield running
            finally:
                await _stop(running.children.values())


async def _start(running: Stage, prometheus: Path, ports: Mapping[str, int]) -> None:
    directory = running.directory
    port = _free_port()
    (directory / "prometheus.yaml").write_text(_scrape(running.cluster.metrics_url))
    (directory / "rules.yaml").write_text(_RULES)
    await _spawn(
        running, "prometheus",
        [
            str(prometheus), f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={HOST}:{port}",
        ],
    )  # fmt: skip
    common = [
        f"--config={directory / 'rules.yaml'}",
        f"--prometheus-url=http://{HOST}:{port}",
        f"--bind-address={HOST}",
        f"--authentication-kubeconfig={running.kubeconfig}",
        f"--authorization-kubeconfig={running.kubeconfig}",
        f"--cert-dir={directory}",
        "--metrics-relist-interval=5s",
        "--metrics-max-age=2m",
        "--feed-max-age=1s",
    ]
    podscale = [sys.executable, "-m", "podscale"]
    await _spawn(
        running, "adapter",
        [
            *podscale, "adapter", *common, f"--lister-kubeconfig={running.kubeconfig}",
            f"--secure-port={ports['podscale-adapter']}", "--service=podscale/podscale-adapter",
        ],
    )  # fmt: skip
    await _spawn(
        running, "hpa",
        [
            *podscale, "hpa", *common, f"--kubeconfig={running.kubeconfig}",
            f"--secure-port={ports['podscale-hpa']}", "--service=podscale/podscale-hpa",
            "--leader-elect-resource-namespace=podscale",
            "--horizontal-pod-autoscaler-sync-period=5s",
        ],
    )  # fmt: skip


async def _spawn(running: Stage, name: str, command: Sequence[str]) -> None:
    with (running.directory / f"{name}.log").open("ab") as log:
        running.children[name] = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is ours to hand on, in order.
            start_new_session=True,
            env={**os.environ, "POD_NAMESPACE": "podscale"},
        )


async def _stop(children: Iterable[asyncio.subprocess.Process]) -> None:
    alive = [child for child in children if child.returncode is None]
    for child in alive:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_S):
            await asyncio.gather(*(child.wait() for child in alive))
    except TimeoutError:
        for child in alive:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        await asyncio.gather(*(child.wait() for child in alive))


def _scrape(url: str) -> str:
    target = url.removeprefix("http://").removesuffix("/metrics")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "sandbox",
                "honor_labels": True,
                "static_configs": [{"targets": [target]}],
            }
        ],
    }
    return yaml.safe_dump(config)


def _objects(ports: Mapping[str, int]) -> list[dict[str, object]]:
    items: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (NAMESPACE, "podscale")
    ]
    for service, port in ports.items():
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service, "namespace": "podscale"},
                "spec": {
                    "type": "ExternalName",
                    "externalName": "localhost",
                    "ports": [{"port": port}],
                },
            }
        )
    for group, version, service in _APIS:
        items.append(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"namespace": "podscale", "name": service, "port": ports[service]},
                },
            }
        )
    return [*items, _deployment()]


def _deployment() -> dict[str, object]:
    container = {
        "name": "app",
        "image": "registry.invalid/shop",
        "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": WORKLOAD, "namespace": NAMESPACE},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": WORKLOAD}},
            "template": {
                "metadata": {"labels": {"app": WORKLOAD}},
                "spec": {"containers": [container]},
            },
        },
    }


def autoscaler() -> dict[str, object]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": WORKLOAD, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKLOAD},
            "minReplicas": 2,
            "maxReplicas": 10,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": METRIC},
                        "target": {"type": "AverageValue", "averageValue": "12"},
                    },
                }
            ],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 15}]},
                "scaleDown": {
                    "stabilizationWindowSeconds": 20,
                    "policies": [{"type": "Percent", "value": 50, "periodSeconds": 15}],
                },
            },
        },
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        number: int = probe.getsockname()[1]
        return number
