"""KEDA's own operator and adapter behind us, on the real plane, and what both routes cost.

It is built from its own module without most of its scalers (``keda_build``), which takes a minute
beside what Kubernetes has been built from and seven without: of the long form only.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.external_adapters import (
    EXTERNAL,
    adopt_and_give_back,
    backends_file,
    external,
    hold,
    replicas,
    rights,
    said,
)
from tests.cluster.keda_stack import (
    KedaStack,
    cron_trigger,
    prometheus_trigger,
    scaled_object,
)
from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until
from tests.tools.programs import OLDER, release

pytestmark = [
    pytest.mark.timeout(1500),  # it is built first, once
    pytest.mark.skipif(
        bool(os.environ.get("PODSCALE_SHORT")) or release() == OLDER,
        reason="KEDA takes minutes to build: make test-full, beside the newest release",
    ),
]

AT_ONCE = "--horizontal-pod-autoscaler-downscale-stabilization=0s"
THEIRS = 'jobs_waiting{queue="theirs"}'


def jobs(theirs: float) -> tuple[str, Target]:
    return "theirs", Target({"queue": "theirs"}, (gauge("jobs_waiting", theirs),))


def messages(ours: float) -> tuple[str, Target]:
    return "ours", Target({"queue": "orders"}, (gauge("queue_messages", ours),))


@pytest.fixture
def keda(plane: Plane, tmp_path: Path) -> Iterator[KedaStack]:
    with KedaStack(plane, tmp_path) as running:
        yield running


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    with Exporter(tmp_path) as running:
        running.set(jobs(30.0), messages(30.0))
        yield running


@pytest.fixture
def prometheus(tmp_path: Path, exporter: Exporter) -> Iterator[PrometheusServer]:
    with PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as running:
        wait_until("there are jobs", lambda: running.query(THEIRS), 30.0, (running.program,))
        yield running


def test_keda_scales_behind_us_and_its_death_is_its_own(
    plane: Plane,
    tmp_path: Path,
    keda: KedaStack,
    exporter: Exporter,
    prometheus: PrometheusServer,
) -> None:
    plane.apply(*rights())
    arguments = [f"--external-backends={backends_file(tmp_path, keda)}"]
    with (
        MetricsStack(plane, prometheus, exporter, tmp_path, arguments=arguments) as stack,
        plane.namespace("keda") as namespace,
        plane.in_tree_hpa(1.0, AT_ONCE),
    ):
        often = {"pollingInterval": 2, "cooldownPeriod": 5}
        watched = (*keda.programs, *stack.replicas)
        plane.apply(
            *(deployment(name, namespace) for name in ("jobs", "day", "own")),
            scaled_object("jobs", namespace, prometheus_trigger(prometheus.url, THEIRS), **often),
            scaled_object("day", namespace, cron_trigger(4), minReplicaCount=1, **often),
            horizontal_pod_autoscaler("own", namespace, external("queue_messages")),
        )
        keda.wait_ready(namespace, 2)
        wait_until(
            "all three scale",
            lambda: replicas(plane, namespace) == {"jobs": 3, "day": 4, "own": 3},
            90,
            watched,
        )
        keda.adapter.kill()
        exporter.set(jobs(50.0), messages(40.0))
        wait_until("ours go on", lambda: replicas(plane, namespace)["own"] == 4, 60)
        wait_until(
            "theirs are told as theirs",
            lambda: "the external backend other failed" in said(plane, namespace, "keda-hpa-jobs"),
            60,
        )
        assert replicas(plane, namespace) == {"jobs": 3, "day": 4, "own": 4}
        keda.adapter.start()
        wait_until("it heals by itself", lambda: replicas(plane, namespace)["jobs"] == 5, 90)
        exporter.set(jobs(0.0))
        wait_until("KEDA puts to zero", lambda: replicas(plane, namespace)["jobs"] == 0, 60)
        exporter.set(jobs(20.0))
        wait_until(
            "and wakes",
            lambda: replicas(plane, namespace) == {"jobs": 2, "day": 4, "own": 4},
            60,
            watched,
        )


def test_adopting_from_keda_and_giving_back_fail_no_request(
    plane: Plane,
    tmp_path: Path,
    keda: KedaStack,
    exporter: Exporter,
    prometheus: PrometheusServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hold(plane, keda)
    with plane.namespace("adopted") as namespace:
        plane.apply(
            deployment("jobs", namespace),
            scaled_object("jobs", namespace, prometheus_trigger(prometheus.url, THEIRS)),
        )
        keda.wait_ready(namespace, 1)
        selector = "labelSelector=scaledobject.keda.sh%2Fname%3Djobs"
        path = f"{EXTERNAL}/namespaces/{namespace}/s0-prometheus?{selector}"
        wait_until("KEDA answers", lambda: plane.admin.request("GET", path).status == 200, 60.0)
        load = adopt_and_give_back(
            plane, tmp_path, keda, prometheus, exporter, path,
            unknown=(404, 500),  # 500: its word for what has no ScaledObject
        )  # fmt: skip
    with capsys.disabled():
        print(
            f"\nadopted from KEDA and given back twice: {load.answered} answered, "
            f"{len(load.failed)} failed"
        )
    assert not load.failed, load.failed[:3]
    assert load.answered > 100
