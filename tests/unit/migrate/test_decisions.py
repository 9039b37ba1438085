"""A migrated ScaledObject decides as KEDA documents, within invariant 1: an error or silence
lowers nothing, except where the user's ``static`` fallback says so.

The load is a script of answers; decisions are those of ``hpa.decide``.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hpa.offline.evaluation import decide_files
from podscale.migrate.reader import migrate

INPUTS = Path(__file__).parent / "inputs"


def migrated(name: str) -> dict[str, Any]:
    (hpa,) = migrate((INPUTS / f"keda-{name}.yaml").read_text()).manifests
    return dict(hpa)


def wanted(hpa: dict[str, Any], current: int, answer: dict[str, Any]) -> int:
    observation = {
        "scale": {"replicas": current, "statusReplicas": current, "selector": "app=x"},
        "recommendations": [],  # no downscale window: what is asked for is done at once
        "metrics": [answer] * len(hpa["spec"]["metrics"]),
    }
    body = decide_files(
        yaml.safe_dump(hpa), yaml.safe_dump(observation), release="1.37", now=1_700_000_000.0
    )
    return int(body["status"]["replicas"])


FAILED = {"error": "Unavailable"}
EMPTY = {"error": "NoData"}


@pytest.mark.parametrize(("name", "current", "answer", "expected"), [
    # 2..20, target 12.5 on average, fallback static 6
    pytest.param("fallback-static", 4, {"values": ["100"]}, 8, id="load-is-shared"),
    pytest.param("fallback-static", 4, FAILED, 6, id="static-raises"),
    pytest.param("fallback-static", 9, FAILED, 6, id="static-lowers-as-keda-does"),
    pytest.param("fallback-static", 9, EMPTY, 6, id="static-stands-in-for-silence"),
    # 3..30, fallback currentReplicasIfHigher 10
    pytest.param("fallback-current-if-higher", 5, FAILED, 10, id="if-higher-raises"),
    pytest.param("fallback-current-if-higher", 15, FAILED, 15, id="if-higher-never-lowers"),
    # 1..100, currentReplicasIfLower: becomes hold
    pytest.param("fallback-if-lower", 9, FAILED, 9, id="hold-keeps"),
    # 1..100, no fallback, KEDA counted silence as 0
    pytest.param("minimal", 7, EMPTY, 7, id="silence-is-not-zero"),
    pytest.param("minimal", 7, FAILED, 7, id="an-error-lowers-nothing"),
    pytest.param("minimal", 3, {"values": ["450"]}, 5, id="rounded-up"),
    pytest.param("paused", 3, {"values": ["900"]}, 3, id="paused"),
    # the schedule says 6 inside its hours and 1 outside
    pytest.param("cron", 3, {"values": ["6"]}, 6, id="cron-inside"),
])  # fmt: skip
def test_decisions(name, current, answer, expected):
    assert wanted(migrated(name), current, answer) == expected
