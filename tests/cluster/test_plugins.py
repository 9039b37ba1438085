"""A metric of a plug-in provider scales an HPA through the aggregator: the in-tree one and ours."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from adapter.apis.metric_providers import GROUP
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until

METRIC = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_elsewhere"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
PACKAGE = """\
from podscale.core.metrics import ExternalSample, ExternalSamples, NotFound, Sample


class Elsewhere:
    def listed(self):
        return [("", "queue_elsewhere")]

    async def answer(self, questions):
        return [
            ExternalSamples([ExternalSample({}, Sample(30_000, None))], 1.0)
            if getattr(question, "metric", "") == "queue_elsewhere"
            else NotFound("MetricNotFound", "unknown here")
            for question in questions
        ]
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder of packages with one that registers a provider."""
    info = tmp_path / "packages/elsewhere-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nqueue = elsewhere:Elsewhere\n")
    (info.parent / "elsewhere.py").write_text(PACKAGE)
    return info.parent


@pytest.fixture
def stack(plane: Plane, tmp_path: Path, installed: Path) -> Iterator[MetricsStack]:
    with Exporter(tmp_path) as exporter, PrometheusServer(tmp_path) as prometheus:
        made = MetricsStack(plane, prometheus, exporter, tmp_path)
        for replica in made.replicas:
            replica.command[:0] = ["env", f"PYTHONPATH={installed}"]
        with made as running:
            yield running


@pytest.mark.parametrize("controller", ["in-tree", "ours"])
def test_a_plugins_metric_scales_an_hpa_through_the_api(
    plane: Plane, stack: MetricsStack, tmp_path: Path, controller: str
) -> None:
    with plane.namespace("plugin") as namespace:
        listed = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/queue_elsewhere"
        assert stack.wait_for_metric(listed)["items"][0]["value"] == "30"
        shown = stack.raw("/apis/external.metrics.k8s.io/v1beta1")["resources"]
        assert "queue_elsewhere" in {each["name"] for each in shown}
        acting: AbstractContextManager[Any] = (
            plane.in_tree_hpa(1.0) if controller == "in-tree" else HpaStack(plane, tmp_path)
        )
        plane.apply(
            deployment("web", namespace, replicas=1),
            horizontal_pod_autoscaler("web", namespace, METRIC, least=1, most=5),
        )
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
        with acting:
            wait_until(
                "30 over 10 asks for three",
                lambda: plane.admin.get(path)["spec"]["replicas"] == 3,
                90,
                tuple(stack.replicas),
            )
