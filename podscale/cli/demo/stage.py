"""What the demo runs: the sandbox, measurements and all parts, in one directory and process.

Leaving the block ends everything and removes every file.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import click
import yaml

from adapter.apis.rules_api import RESOURCE
from podscale.cli import page
from podscale.cli.demo import scenes
from podscale.cli.demo.measurements import Measurements, measuring, scratch_directory, sweep
from podscale.cli.demo.scenes import Clock
from podscale.cli.page import composed_with_page
from podscale.cli.parts import KINDS, with_feed
from podscale.core.unfailing import unfailing_file
from podscale.explain.decision_history import ChangeRing
from podscale.nodes import part as nodes_part
from podscale.nodes.decide.ballast import BallastSettings
from podscale.process.part import Flagged, Kinds
from podscale.sandbox.controllers.kubelet import NodeTiming
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.server import SandboxCluster, SandboxServer
from podscale.serving import flags as serving_flags
from podscale.serving.monitoring import logs
from podscale.serving.monitoring.logs import Verbosity

# The nodes part averages over a window of the demo's own.
_BALLAST = BallastSettings(window_s=15.0, write_interval_s=10.0)
DEMO_KINDS: Kinds = {**KINDS, "nodes": with_feed(nodes_part.kind(_BALLAST))}
NAMESPACE, SERVICE = "podscale", "podscale"
_HOST = "127.0.0.1"


def flags(clock: Clock, scrape_s: float, directory: Path, prometheus_url: str) -> Flagged:
    """Return every part's flags. ``directory`` holds kubeconfig and rules, takes certificates."""
    words = _words(clock, scrape_s, directory, prometheus_url)
    return {part: serving_flags.parse(own, KINDS[part].table) for part, own in words.items()}


def _words(
    clock: Clock, scrape_s: float, directory: Path, prometheus_url: str
) -> Mapping[str, list[str]]:
    kubeconfig = directory / "kubeconfig"
    behind, alone = f"--service={NAMESPACE}/{SERVICE}", "--leader-elect=false"
    cluster = f"--kubeconfig={kubeconfig}"
    return {
        "adapter": [
            f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus_url}",
            f"--cert-dir={directory}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={_HOST}",
            behind,
            f"--metrics-relist-interval={max(clock.real_s(5.0), 0.5):.3f}s",
            "--metrics-max-age=2m",
            f"--feed-max-age={scrape_s:g}s",
        ],
        "hpa": [
            cluster,
            behind,
            alone,
            f"--leader-elect-resource-namespace={NAMESPACE}",
            f"--horizontal-pod-autoscaler-sync-period={clock.flag(5.0)}",
        ],
        "recommender": [
            cluster,
            behind,
            alone,
            "--metrics-source=feed",
            "--address=",
            f"--recommender-interval={clock.flag(10.0)}",
        ],
        "updater": [
            cluster,
            alone,
            "--address=",
            f"--updater-interval={clock.flag(10.0)}",
            # Admission lives in this process: its sign of life, of the machine's time, says
            # nothing.
            "--use-admission-controller-status=false",
        ],
        "nodes": [
            cluster,
            "--mode=ballast",
            f"--leader-elect-resource-namespace={NAMESPACE}",
            f"--nodes-interval={clock.flag(5.0)}",
        ],
        "admission": [
            cluster,
            f"--cert-dir={directory}",
            f"--tls-cert-file={directory / 'none'}",
            "--register-by-url=true",
            f"--webhook-address={_HOST}",
            "--port=0",
            "--address=",
            f"--bind-address={_HOST}",
        ],
    }


_RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[WINDOW])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_messages{namespace!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: &cpu >-
      sum by (<<.GroupBy>>)
      (rate(container_cpu_usage_seconds_total{container!="",<<.LabelMatchers>>}[WINDOW]))
    nodeQuery: *cpu
    resources:
      overrides:
        namespace: {resource: namespace}
        pod: {resource: pod}
        node: {resource: node}
    containerLabel: container
  memory:
    containerQuery: &memory >-
      sum(container_memory_working_set_bytes{container!="",<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: *memory
    resources:
      overrides:
        namespace: {resource: namespace}
        pod: {resource: pod}
        node: {resource: node}
    containerLabel: container
  window: WINDOW
"""


def rules(scrape_s: float) -> str:
    """Return the rules for a scrape every ``scrape_s`` of the demo's seconds."""
    return _RULES.replace("WINDOW", f"{round(10 * scrape_s)}s")


_LEAST_SCRAPE_S = 0.1  # real seconds between two scrapes, however fast the clock
_LOOK_S, _LEAST_LOOK_S = 2.0, 0.4  # of the page; the demo's seconds, and real ones at least
_APISERVICES = "apiservices.apiregistration.k8s.io"
_APIS: tuple[tuple[str, str], ...] = (
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
    ("hpa.podscale.io", "v1alpha1"),
    ("vpa.podscale.io", "v1alpha1"),
)


class DemoError(click.ClickException):
    """The demo cannot run here; the text says what to do."""

    ctx: click.Context | None = None  # of the command, whose name is told


@dataclass(eq=False)
class DemoStage:
    """The running demo, as the view needs it."""

    cluster: SandboxCluster
    clock: Clock
    measurements: Measurements
    rules: Path
    page_url: str
    began_s: float
    session: aiohttp.ClientSession
    say: Callable[[str], None]
    _outage: str = ""
    _problem: str = ""  # of the rules file
    _config: str | None = None  # the rules in force

    @property
    def objects(self) -> SandboxObjects:
        return self.cluster.server.objects

    async def get(self, path: str) -> Any:
        """Return the JSON at ``path`` of the sandbox's API server (``/...``) or of the page,
        ``None`` if it has none yet."""
        server = self.cluster.server
        headers = {"Authorization": f"Bearer {server.admin_token}"}
        try:
            async with self.session.get(
                urljoin(server.url if path.startswith("/") else self.page_url, path),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=5),
            ) as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def warnings(self) -> list[str]:
        """Return what the running adapter says is wrong; say what is well again."""
        told: Any = await self.get(f"/apis/custom.metrics.k8s.io/v1beta1/{RESOURCE}")
        if told is None:
            return []
        problem = " ".join(str(told.get("problem") or "").split())
        found = [f"rules file refused, the old rules stay: {problem}"] if problem else []
        outage = str(told.get("prometheusProblem") or "")
        if self._outage and not outage:
            self.say("Prometheus answers again")
        if self._problem and not problem:
            new = "mended, the new rules are in force"
            old = "is again what it was, nothing has changed"
            self.say(f"rules file {old if told.get('config') == self._config else new}")
        self._outage, self._problem, self._config = outage, problem, told.get("config")
        return [*filter(None, [outage]), *found]


@asynccontextmanager
async def stage(speed: float, say: Callable[[str], None]) -> AsyncIterator[DemoStage]:
    """Run the demo's cluster and parts while the block runs; raises ``DemoError``."""
    await asyncio.to_thread(sweep)
    clock = Clock(speed)
    try:
        with scratch_directory() as directory:
            async with _on(directory, clock, say) as running:
                yield running
    except OSError as error:
        raise DemoError(f"cannot run here: {error}") from error
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        said = f"a part failed: {first or type(first).__name__} (--debug shows where)"
        raise DemoError(said) from errors


@asynccontextmanager
async def _on(
    directory: Path, clock: Clock, say: Callable[[str], None]
) -> AsyncIterator[DemoStage]:
    scrape_s = max(1.0, _LEAST_SCRAPE_S * clock.speed)
    (directory / "rules.yaml").write_text(rules(scrape_s))
    remember_ten_minutes()
    with unfailing_file(directory / "podscale.log") as log:
        logs.configure("console", Verbosity(0), log)
        os.environ["POD_NAMESPACE"] = NAMESPACE
        cluster = SandboxCluster(SandboxServer(wall=clock), timing=_timing(clock))
        async with cluster, aiohttp.ClientSession() as session:
            _prepare(cluster)
            began_s = clock()
            scenes.deploy(cluster, began_s)
            cluster.server.kubeconfig(directory / "kubeconfig")
            async with measuring(cluster, directory, clock, scrape_s, say) as measurements:
                chosen = flags(clock, scrape_s, directory, measurements.url)
                # A second demo beside this one has the first free port.
                period_s = max(clock.real_s(_LOOK_S), _LEAST_LOOK_S)
                shows = page.PageChoice(or_any=True, period_s=period_s)
                urls: list[str] = []
                async with composed_with_page(
                    chosen,
                    Verbosity(0),
                    kinds=DEMO_KINDS,
                    port=0,
                    shows=shows,
                    wall=clock,
                    opened=urls.append,
                ) as running:
                    if running.server is None:
                        raise DemoError("cannot run here: nothing is served")
                    _open(cluster, running.server.port)
                    rules_file = directory / "rules.yaml"
                    yield DemoStage(cluster, clock, measurements, rules_file, urls[0], began_s,
                                    session, say)  # fmt: skip


def remember_ten_minutes() -> None:
    """Keep the decisions of this process that long, where each may be another one."""
    ChangeRing.most, ChangeRing.most_bytes = 128, 64 * 1024


def _timing(clock: Clock) -> NodeTiming:
    usual = NodeTiming()
    return NodeTiming(
        start_s=clock.real_s(usual.start_s),
        ready_s=clock.real_s(usual.ready_s),
        stop_s=clock.real_s(usual.stop_s),
        resize_s=clock.real_s(usual.resize_s),
    )


def _prepare(cluster: SandboxCluster) -> None:
    objects = cluster.server.objects
    crds = files("config") / "crds" / "vpa" / "vpa.yaml"
    for definition in yaml.safe_load_all(crds.read_text(encoding="utf-8")):
        objects.create("customresourcedefinitions", "", definition)
    objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for group, version in _APIS:
        objects.put(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"namespace": NAMESPACE, "name": SERVICE},
                },
            }
        )


def _open(cluster: SandboxCluster, port: int) -> None:
    """Let the API server reach what it has been told of: our server listens only now."""
    objects = cluster.server.objects
    for group, version in _APIS:
        name = f"{version}.{group}"
        # Our CA stands there already, or comes into what is there.
        found = objects.get(_APISERVICES, "", name)
        service = {**found["spec"]["service"], "port": port}
        spec = {**found["spec"], "service": service}
        objects.update(_APISERVICES, "", name, {**found, "spec": spec})
    objects.put(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{"port": port}],
            },
        }
    )
