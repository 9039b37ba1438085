"""A migrated ScaledObject decides as KEDA documents, within invariant 1: an error or silence
lowers nothing, except where the user's ``static`` fallback says so.

The load is a script of answers; decisions are those of ``hpa.decide``.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from podscale.cli.evaluation.observation import decide_files
from tests.kit.migrating import migrate

INPUTS = Path(__file__).parent / "inputs"


def migrated(name: str) -> dict[str, Any]:
    (hpa,) = migrate((INPUTS / f"keda-{name}.yaml").read_text()).manifests
    return dict(hpa)


def wanted(
    hpa: dict[str, Any], current: int, answer: dict[str, Any], now: float = 1_700_000_000.0
) -> int:
    observation = {
        "scale": {"replicas": current, "statusReplicas": current, "selector": "app=x"},
        "recommendations": [],  # no downscale window: what is asked for is done at once
        "metrics": [answer] * len(hpa["spec"]["metrics"]),
    }
    body = decide_files(yaml.safe_dump(hpa), yaml.safe_dump(observation), release="1.37", now=now)
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
])  # fmt: skip
def test_decisions(name, current, answer, expected):
    assert wanted(migrated(name), current, answer) == expected


@pytest.mark.parametrize(("when", "replicas"), [
    # 6 from 07:30 to 18:00 UTC from Monday to Friday; 4 from 08:00 to 18:00 in Berlin, every day
    ("2026-11-24T07:00:00Z", 4),
    ("2026-11-24T07:29:59Z", 4),
    ("2026-11-24T07:30:00Z", 6),
    ("2026-11-24T18:00:00Z", 1),
    ("2026-11-28T12:00:00Z", 4),
    ("2026-11-28T17:00:00Z", 1),
    ("2026-07-11T16:00:00Z", 1),
])  # fmt: skip
def test_cron_triggers_ask_for_what_they_did(when: str, replicas: int) -> None:
    now = datetime.fromisoformat(when).timestamp()
    asked = wanted(migrated("cron"), 1, {"values": ["1"]}, now)
    assert asked == replicas


def test_a_cron_trigger_that_cannot_be_is_told() -> None:
    text = (INPUTS / "keda-cron.yaml").read_text().replace("0 8 * * *", "0 8 * *")
    (lost,) = [each.text for each in migrate(text).lost if "cron" in each.text]
    assert "five fields" in lost


def test_more_cron_triggers_than_an_hpa_may_have_entries_are_told() -> None:
    document = yaml.safe_load((INPUTS / "keda-cron.yaml").read_text())
    triggers = document["spec"]["triggers"]
    document["spec"]["triggers"] = [each for each in triggers if each["type"] == "cron"][:1] * 25
    outcome = migrate(yaml.safe_dump(document))
    assert [each.text for each in outcome.lost] == [
        "25 cron triggers: only the first 20 are carried over"
    ]
    (written,) = outcome.manifests
    annotations = written["metadata"]["annotations"]
    assert len(json.loads(annotations["podscale.io/schedule"])) == 20
