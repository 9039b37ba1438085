"""Boosted pods: who is left alone until the boost has ended."""

from typing import Any

import pytest

from tests.unit.vpa.updater.worlds import NOW, pod, vpa
from vpa.admission.patches.boost import expired
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.decide.resize import awaits_unboost

BOOST = {"startupBoost": {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": 3600}}}
MARK = {"vpaCpuStartupBoost/app": "{}"}
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-09T11:59:00Z"}]


@pytest.mark.parametrize(
    ("subject", "given", "is_enabled", "waits"),
    [
        pytest.param({"annotations": MARK}, BOOST, True, True, id="the-boost-goes-on"),
        pytest.param({"annotations": MARK, "conditions": READY}, {}, True, True, id="it-is-over"),
        pytest.param({"annotations": MARK}, {}, True, False, id="who-never-gets-ready-does-not"),
        pytest.param({}, BOOST, True, False, id="who-has-none-does-not"),
        pytest.param({"annotations": MARK}, BOOST, False, False, id="without-the-gate-none-does"),
    ],
)
def test_a_boosted_pod_waits_for_the_end_of_its_boost(
    subject: dict[str, Any], given: dict[str, Any], is_enabled: bool, waits: bool
) -> None:
    one, of_vpa = pod(**subject), vpa(**given)
    settings = UpdaterSettings(cpu_startup_boost=is_enabled)
    assert awaits_unboost(one, of_vpa, expired(one, of_vpa, NOW), settings) == waits
