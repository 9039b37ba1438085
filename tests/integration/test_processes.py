"""Every command against everything that the composition of a process promises."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpa.loop.controller import Controller
from hpa.part import HpaPart
from podscale.cli.page import composed_with_page
from podscale.cli.parts import KINDS
from podscale.core.metrics import ExternalSample, ExternalSamples, NotFound, Sample
from podscale.process import compose
from podscale.process.compose import Composed
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.server import SandboxServer
from podscale.serving import flags as serving_flags
from podscale.serving.monitoring.logs import Verbosity
from tests.cluster.frozen import inject
from tests.integration.launched import stub_prometheus
from tests.integration.test_joined import HPA, RULES
from tests.tools.process import LOOPBACK, free_port
from vpa.recommender.loop import Recommender
from vpa.recommender.part import RecommenderPart

COMMANDS = {
    "serve": ("adapter", "admission"),
    "control": ("hpa", "recommender", "updater"),
    "run": ("adapter", "hpa", "recommender", "updater", "admission"),
    **{name: (name,) for name in KINDS},
}
READ_DISCOVERY_INTERVAL = ("adapter", "hpa", "recommender", "serve", "control", "run")
LOOPS = {
    "hpa": {"hpa-loop", "hpa-passes"},
    "recommender": {"recommender-loop"},
    "updater": {"updater-loop"},
    "nodes": {"nodes-rounds", "nodes-room", "nodes-headroom"},
}
CRDS = Path(__file__).parent.parent.parent / "config/crds/vpa/vpa.yaml"


class Ground:
    """A sandbox's API server, a Prometheus that knows nothing, and the flags of each part."""

    def __init__(self, directory: Path, prometheus: str, port: int = 0) -> None:
        self.directory = directory
        self.prometheus = prometheus
        self.server = SandboxServer(port=port)
        (directory / "rules.yaml").write_text(RULES)

    def prepare(self) -> None:
        self.server.kubeconfig(self.directory / "kubeconfig")
        for crd in yaml.safe_load_all(CRDS.read_text(encoding="utf-8")):
            self.server.objects.create("customresourcedefinitions", "", crd)

    def words(self, part: str) -> Sequence[str]:
        kubeconfig = self.directory / "kubeconfig"
        cluster = [f"--kubeconfig={kubeconfig}"]
        reads = [f"--config={self.directory / 'rules.yaml'}",
                 f"--prometheus-url=http://{self.prometheus}"]  # fmt: skip
        served = [f"--cert-dir={self.directory}", f"--bind-address={LOOPBACK}",
                  "--shutdown-delay-duration=0s"]  # fmt: skip
        alone = ["--leader-elect=false"]
        return {
            "adapter": [f"--lister-kubeconfig={kubeconfig}", *reads, *served],
            "hpa": [*cluster, *reads, *served, *alone,
                    "--horizontal-pod-autoscaler-sync-period=1s"],
            "recommender": [*cluster, *reads, *served, *alone, "--metrics-source=feed",
                            "--address=", "--recommender-interval=100ms"],
            "updater": [*cluster, *served, *alone, "--address=", "--updater-interval=1s",
                        "--use-admission-controller-status=false"],
            "nodes": [*cluster, *reads, *served, *alone, "--nodes-interval=1s", "--make-room",
                      "--headroom-max=cpu=1,memory=1Gi"],
            "admission": [*cluster, *served[:2], "--address=", "--port=0",
                          "--register-webhook=false"],
        }[part]  # fmt: skip

    @asynccontextmanager
    async def running(self, command: str, **more: Sequence[str]) -> AsyncIterator[Composed]:
        given = {
            part: serving_flags.parse([*self.words(part), *more.get(part, ())], KINDS[part].table)
            for part in COMMANDS[command]
        }
        async with composed_with_page(given, Verbosity(0), port=0) as composed:
            yield composed


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    with stub_prometheus() as (address, _):
        made = Ground(tmp_path, address)
        async with made.server:
            made.prepare()
            yield made


async def until(claim: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not claim():  # noqa: ASYNC110 - facts of several parts
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("command", COMMANDS)
async def test_an_api_server_that_restarts_is_waited_for(command: str, tmp_path: Path) -> None:
    port = free_port()
    with stub_prometheus() as (address, _):
        ground = Ground(tmp_path, address, port)
        async with ground.server:  # it has run before, and is away now
            ground.prepare()
        back = Ground(tmp_path, address, port)
        async with AsyncExitStack() as stack:
            starting = asyncio.create_task(stack.enter_async_context(ground.running(command)))
            await asyncio.sleep(1.0)
            assert not starting.done()
            await stack.enter_async_context(back.server)
            back.prepare()
            async with asyncio.timeout(30):
                await starting


@pytest.mark.parametrize("command", READ_DISCOVERY_INTERVAL)
async def test_the_discovery_interval_is_read(command: str, ground: Ground) -> None:
    more = {
        part: ["--discovery-interval=7s"]
        for part in COMMANDS[command]
        if any(flag.name == "discovery-interval" for flag in KINDS[part].table)
    }
    async with ground.running(command, **more) as composed:
        assert composed.shared is not None
        assert composed.shared.discovery.period_s == 7.0


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "admission"])
async def test_liveness_watches_the_loops_of_every_part(command: str, ground: Ground) -> None:
    async with ground.running(command) as composed:
        assert composed.health is not None
        text = composed.health.report("livez", is_verbose=True).text
        watched = set(re.findall(r"\[\+\](\S+) ok", text)) - {"ping"}
        expected = {loop for part in COMMANDS[command] for loop in LOOPS.get(part, ())}
        assert expected <= watched
        assert text.endswith("livez check passed\n")


async def never(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("command", ["recommender", "control", "run"])
async def test_a_recommender_that_hangs_fails_liveness_and_says_since_when(
    command: str, ground: Ground
) -> None:
    async with ground.running(command) as composed:
        part, health = composed.parts["recommender"], composed.health
        assert isinstance(part, RecommenderPart)
        assert health is not None
        await until(lambda: part.recommender.loop.heartbeat.is_expected)
        part.recommender.loop.once = never  # type: ignore[method-assign]
        await until(lambda: health.report("livez").status == 500)
        assert re.search(r"\[-\]recommender-loop failed: stuck since \d{4}-.*Z",
                         health.report("livez").text)  # fmt: skip


@pytest.mark.parametrize("command", ["hpa", "control", "run"])
async def test_a_tick_of_the_hpa_that_hangs_fails_liveness(
    command: str, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for defective, method in ((Controller, "_tick"), (Recommender, "once")):
        monkeypatch.setattr(defective, method, getattr(defective, method))  # put back at the end
    inject(tmp_path / "freeze")
    async with ground.running(command) as composed:
        part, health = composed.parts["hpa"], composed.health
        assert isinstance(part, HpaPart)
        assert health is not None
        await until(lambda: part.controller.heartbeat.is_expected)
        assert health.report("livez").status == 200
        part.controller.heartbeat._allowed_s = 0.5  # fifteen seconds at least, as it is
        (tmp_path / "freeze").touch()
        await until(lambda: "[-]hpa-loop failed: stuck since" in health.report("livez").text)
        assert health.report("livez").status == 500


@pytest.mark.parametrize("command", ["hpa", "control", "run"])
async def test_a_pass_of_the_hpa_that_hangs_fails_liveness(command: str, ground: Ground) -> None:
    ground.server.objects.create("horizontalpodautoscalers", "default", HPA)
    async with ground.running(command) as composed:
        part, health = composed.parts["hpa"], composed.health
        assert isinstance(part, HpaPart)
        assert health is not None
        controller = part.controller
        await until(lambda: controller.heartbeat.is_expected and len(controller.catalog))
        controller.rounds._allowed_s = 0.5  # two minutes at least, as it is
        assert controller._changes.reconciler is not None
        controller._changes.reconciler.run = never  # type: ignore[method-assign]
        await until(lambda: health.report("livez").status == 500)
        assert re.search(r"\[-\]hpa-passes failed: stuck since \d{4}-.*Z",
                         health.report("livez").text)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "more", "scopes"),
    [
        ("hpa", {"hpa": ["--namespaces=shop"]}, ("shop",)),
        ("run", {"hpa": ["--namespaces=shop"]}, ("",)),
        ("control", {"hpa": ["--namespaces=shop"]}, ("",)),
        (
            "control",
            {
                "hpa": ["--namespaces=shop,till"],
                "recommender": ["--vpa-object-namespace=shop"],
                "updater": ["--vpa-object-namespace=shop"],
            },
            ("shop", "till"),
        ),
        ("recommender", {"recommender": ["--vpa-object-namespace=shop"]}, ("shop",)),
        ("adapter", {}, ("",)),
    ],
)
async def test_pods_are_watched_where_some_part_looks_at_them(
    command: str, more: dict[str, list[str]], scopes: tuple[str, ...], ground: Ground
) -> None:
    for namespace in ("shop", "till"):
        ground.server.objects.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
    async with ground.running(command, **more) as composed:
        assert composed.shared is not None
        shared = composed.shared
        assert tuple(shared.scopes) == scopes
        await until(lambda: shared.pods.is_synced)


@pytest.mark.parametrize("command", COMMANDS)
async def test_what_is_loaded_leaves_the_collectors_sight(
    command: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(command))
    given = {
        part: serving_flags.parse(ground.words(part), KINDS[part].table)
        for part in COMMANDS[command]
    }
    async with compose.settling(composed_with_page(given, Verbosity(0), port=0)):
        await until(lambda: frozen)


@pytest.mark.parametrize("command", ["adapter", "hpa", "recommender", "serve", "control", "run"])
async def test_a_changed_rules_file_makes_an_event(
    command: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "podscale-0")
    monkeypatch.setenv("POD_NAMESPACE", "podscale")
    ground.server.objects.put(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podscale"}}
    )
    async with ground.running(command) as composed:
        assert composed.shared is not None
        (ground.directory / "rules.yaml").write_text(f"{RULES}# changed\n")

        def reasons() -> set[str]:
            return {each["reason"] for each in ground.server.objects.list("events", "podscale")}

        await until(lambda: "RulesReloaded" in reasons())


def put_web(objects: SandboxObjects, metric: dict[str, Any], **annotations: str) -> None:
    labels = {"app": "web"}
    objects.create("deployments", "default", {
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "x"}]}}},
    })  # fmt: skip
    objects.create("horizontalpodautoscalers", "default", {
        "metadata": {
            "name": "web",
            "annotations": {f"podscale.io/{key}": text for key, text in annotations.items()},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 5, "metrics": [metric],
        },
    })  # fmt: skip


@pytest.mark.parametrize("command", ["hpa", "control", "run"])
async def test_a_forecast_is_judged_by_what_this_process_reads(
    command: str, ground: Ground
) -> None:
    metric = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}
    put_web(ground.server.objects, {"type": "External", "external": metric}, forecast="auto")
    async with ground.running(command) as composed:
        assert composed.shared is not None
        part = composed.shared.parts["hpa"]
        assert isinstance(part, HpaPart)

        def is_judged() -> bool:
            record = part.controller.catalog.get(("default", "web"))
            found = None if record is None else record.history.forecast
            return found is not None and found.again_at > 0  # nobody has a past of this queue

        await until(is_judged, 60.0)


class Elsewhere:
    """A provider of another package: one external metric."""

    async def answer(self, questions: Sequence[Any]) -> Sequence[Any]:
        return [
            ExternalSamples([ExternalSample({}, Sample(30_000, None))], 1.0)
            if getattr(question, "metric", "") == "queue_elsewhere"
            else NotFound("MetricNotFound", "unknown here")
            for question in questions
        ]


@pytest.mark.parametrize("command", ["hpa", "control", "run"])
async def test_a_plugins_metric_scales_an_hpa_of_the_same_process(
    command: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapter.apis.metric_providers.load", lambda: [Elsewhere()])
    objects = ground.server.objects
    target = {"type": "AverageValue", "averageValue": "10"}
    put_web(objects, {"type": "External", "external": {
        "metric": {"name": "queue_elsewhere"}, "target": target}})  # fmt: skip
    async with ground.running(command):
        await until(lambda: objects.get("deployments", "default", "web")["spec"]["replicas"] == 3)
