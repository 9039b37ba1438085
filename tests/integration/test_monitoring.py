"""Alerts and dashboards: what they name is exposed by running parts, and alerts fire."""

import http.client
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.launched import Launched
from tests.integration.upstream_arguments import INSTALLATIONS
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

MONITORING = Path(__file__).parent.parent.parent / "config" / "monitoring"
PARTS = ("adapter", "hpa", "vpa", "nodes")
_NAME = re.compile(
    r"\b(?:podscale|horizontal_pod_autoscaler_controller|apiserver|process|prometheus_adapter)"
    r"_[a-z_]+"
)


def expressions(path: Path) -> list[str]:
    """Return every query of an alert file or of a dashboard."""
    if path.suffix == ".yaml":
        groups = yaml.safe_load(path.read_text())["groups"]
        return [rule["expr"] for group in groups for rule in group["rules"]]
    board: Any = json.loads(path.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return queries + [each["query"] for each in board["templating"]["list"]]


def names(part: str) -> set[str]:
    return {
        name
        for kind in ("alerts.yaml", "dashboard.json")
        for text in expressions(MONITORING / f"{part}-{kind}")
        for name in _NAME.findall(text)
    }


def exposed(port: int, token: str) -> set[str]:
    """Return what /metrics has: families and their suffixes, with samples or without yet."""
    tls = ssl._create_unverified_context()  # noqa: S323
    connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=10, context=tls)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + suffix for suffix in suffixes}
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """What the adapter and the HPA expose."""
    directory = tmp_path_factory.mktemp("monitoring")
    launched = Launched(INSTALLATIONS[0], directory)
    with launched.running():
        port = free_port()
        hpa = Program(
            "hpa",
            [
                sys.executable, "-m", "podscale", "hpa", "--metrics-source=api",
                f"--kubeconfig={launched.sandbox.kubeconfig}", f"--secure-port={port}",
                f"--bind-address={LOOPBACK}", f"--cert-dir={directory}",
                "--leader-elect-resource-namespace=monitoring",
            ],
            directory / "hpa.log",
        )  # fmt: skip
        with hpa:
            token = launched.sandbox.token
            wait_until("the HPA serves", lambda: exposed(port, token), 30.0, (hpa,))
            yield {"adapter": exposed(launched.port, token), "hpa": exposed(port, token)}


@pytest.mark.parametrize("part", ["adapter", "hpa"])
def test_every_metric_of_alerts_and_dashboards_is_exposed(
    running: dict[str, set[str]], part: str
) -> None:
    named = names(part)
    assert len(named) >= 8
    assert named - running[part] == set()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.needs("promtool")
def test_promtool_accepts_the_alerts(part: str) -> None:
    file = MONITORING / f"{part}-alerts.yaml"
    subprocess.run([require("promtool"), "check", "rules", file], check=True, capture_output=True)


@pytest.mark.needs("promtool")
def test_each_alert_fires_in_its_weather_and_is_silent_in_good_weather(tmp_path: Path) -> None:
    source = (Path(__file__).parent / "alerts.test.yaml").read_text()
    told = yaml.safe_load(source)
    told["rule_files"] = [str(MONITORING / f"{part}-alerts.yaml") for part in PARTS]
    file = tmp_path / "alerts.yaml"
    file.write_text(yaml.safe_dump(told))
    done = subprocess.run(
        [require("promtool"), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in PARTS:
        groups = yaml.safe_load((MONITORING / f"{part}-alerts.yaml").read_text())["groups"]
        for rule in (rule for group in groups for rule in group["rules"]):
            assert source.count(rule["alert"]) >= 2, f"{rule['alert']} has no test of both kinds"
