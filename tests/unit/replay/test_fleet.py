"""Workloads of pods, and classes of usage."""

import numpy as np
import pytest

from podscale.replay.fleet.sizing import UsageShape, shape_of
from podscale.replay.fleet.usage import FleetWorkload, workload_of

HOUR = 12  # steps
DAYS = 8
STEPS = np.arange(DAYS * 24 * HOUR)
OF_DAY = STEPS % (24 * HOUR) / (24 * HOUR)
NOISE = np.random.default_rng(1).normal(1.0, 0.02, STEPS.size)


def shaped(resource: str, steps: np.ndarray, values: np.ndarray) -> UsageShape:
    return shape_of(resource, steps, values, np.sort(values), HOUR)


@pytest.mark.parametrize(("pod", "kind", "name"), [
    ("web-6d4f9c5b7d-x2x4v", "Deployment", "web"),
    ("a-b-c-6d4f9c5b7d-x2x4v", "Deployment", "a-b-c"),
    ("db-0", "StatefulSet", "db"),
    ("agent-x2x4v", "DaemonSet", "agent"),
    ("nightly-28861500-x2x4v", "CronJob", "nightly"),
    ("by-hand", "Pod", "by-hand"),
])  # fmt: skip
def test_a_pod_is_known_by_its_name_where_nobody_told(pod, kind, name):
    assert workload_of("shop", pod, {}, {}) == FleetWorkload("shop", kind, name)


def test_owners_count_before_names():
    pods = {("shop", "db-0"): ("ReplicaSet", "db-6d4f9c5b7d"), ("shop", "x"): ("<none>", ""),
            ("shop", "w-1"): ("CloneSet", "w")}  # fmt: skip
    parents = {"ReplicaSet": {("shop", "db-6d4f9c5b7d"): ("Rollout", "db")}}
    assert workload_of("shop", "db-0", pods, parents) == FleetWorkload("shop", "Rollout", "db")
    assert workload_of("shop", "x", pods, parents) == FleetWorkload("shop", "Pod", "x")
    assert workload_of("shop", "w-1", pods, parents) == FleetWorkload("shop", "CloneSet", "w")
    assert workload_of("shop", "db-0", pods, {}) == FleetWorkload("shop", "Deployment", "db")


@pytest.mark.parametrize(("values", "found"), [
    (0.3 * NOISE, "steady"),
    (0.004 * NOISE, "idle"),
    (np.where(OF_DAY < 0.4, 1.0, 0.2) * NOISE, "daily"),
    (NOISE * (1.0 + STEPS / STEPS.size), "growing"),
    (np.where(STEPS % 700 < 20, 5.0, 0.2) * NOISE, "bursty"),
    (np.where(STEPS % (24 * HOUR) < 24, 2.0, 0.0) * NOISE, "batch"),
])  # fmt: skip
def test_usage_has_a_class(values, found):
    assert shaped("cpu", STEPS, values).usage_class == found


def test_what_runs_for_an_hour_a_day_is_batch():
    kept = STEPS % (24 * HOUR) < HOUR
    shape = shaped("cpu", STEPS[kept], NOISE[kept])
    assert (shape.usage_class, shape.seen < 0.1) == ("batch", True)


def test_memory_is_never_idle():
    assert shaped("memory", STEPS, 0.004 * NOISE).usage_class == "steady"
