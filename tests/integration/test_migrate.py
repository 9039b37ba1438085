"""``podscale migrate`` as people run it, with a day of history in a real Prometheus."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.prometheus import PrometheusServer

INPUTS = Path(__file__).parents[1] / "unit" / "migrate" / "inputs"
SCALED = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {name: web}
  minReplicaCount: 2
  maxReplicaCount: 20
  triggers:
  - type: prometheus
    metadata: {serverAddress: "http://prometheus:9090", query: sum(jobs_waiting), threshold: "10"}
"""
HOUR_S = 3600


async def migrate(*arguments: str | Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "migrate", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A day of 50 waiting jobs, of which the samples of six hours are missing."""
    now = time.time()
    samples = "".join(
        f"jobs_waiting 50 {at:.0f}\n"
        for at in range(int(now - 25 * HOUR_S), int(now), 120)
        if not 9 * HOUR_S < now - at < 15 * HOUR_S
    )
    # A ratio that was NaN in the same hours, per pod and 30 else.
    ratios = "".join(
        f'jobs_rate{{namespace="shop",pod="web-7d9f8c5b6-x2x4z"}} {value} {at:.0f}\n'
        for at in range(int(now - 25 * HOUR_S), int(now), 120)
        for value in ["NaN" if 9 * HOUR_S < now - at < 15 * HOUR_S else "30"]
    )
    text = f"# TYPE jobs_rate gauge\n{ratios}# TYPE jobs_waiting gauge\n{samples}# EOF\n"
    with PrometheusServer(tmp_path_factory.mktemp("history"), openmetrics=text) as running:
        yield running


async def test_old_and_new_stand_side_by_side(prometheus, tmp_path):
    file = tmp_path / "keda.yaml"
    file.write_text(SCALED)
    code, out, _ = await migrate(file, "--prometheus-url", prometheus.url, "--moments", "24")
    assert code == 0
    lines = [line for line in out.splitlines() if " old " in line and " new " in line]
    moments = [line for line in lines if "replicas asked for" not in line]
    assert len(moments) == 24
    same = [line for line in moments if "old     5  new     5" in line]
    silent = [line for line in moments if "old     2  new  held  differs" in line]
    assert len(same) + len(silent) == 24
    assert 5 <= len(silent) <= 7
    # With the comparison at its end the whole is still one stream of YAML.
    assert [each["kind"] for each in yaml.safe_load_all(out) if each and "kind" in each] == [
        "HorizontalPodAutoscaler"
    ]


async def test_everything_is_data_with_json():
    code, out, err = await migrate(INPUTS / "keda-fallback-static.yaml", "-o", "json")
    told = json.loads(out)
    assert code == 0
    assert told["rules"]["externalRules"][0]["name"]["as"] == "shop-checkout-0"
    assert "cannot be carried over: 0" in err


async def test_what_is_nothing_we_know_exits_with_1_and_no_file_with_2(tmp_path):
    other = tmp_path / "service.yaml"
    other.write_text("{apiVersion: v1, kind: Service, metadata: {name: web}}")
    assert (await migrate(other))[0] == 1
    assert (await migrate(tmp_path / "absent"))[0] == 2
    other.write_text("a: [")
    code, _, err = await migrate(other)
    assert code == 2
    assert "not YAML" in err
