"""Amounts in the sentences of a SizingDecision are for people, those of its facts for programs."""

import msgspec
import pytest

from vpa import sizing
from vpa.explain.recommendation import TargetState
from vpa.model.objects import Vpa
from vpa.sizing import Known, PodDecision
from vpa.updater.decide import UpdateDecision


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("memory", "865936536", "825.82Mi"),
        ("memory", "100", "100"),
        ("memory", "512Mi", "512Mi"),
        ("cpu", "1000", "1000"),
        ("memory", None, ""),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(
    resource: str, amount: str | None, shown: str
) -> None:
    assert sizing._readable(resource, amount) == shown


def known(*policies: dict[str, object], target: TargetState, **more: object) -> Known:
    written = {
        "metadata": {"name": "worker", "namespace": "jobs"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "resourcePolicy": {"containerPolicies": policies},
        },
    }
    vpa = msgspec.convert(written, Vpa)
    measured = Known(vpa, 1_795_000_000.0, target, "default", True, ("agent", "app"), None, {})
    return msgspec.structs.replace(measured, **more)


MEMORY_ONLY = {"containerName": "*", "controlledResources": ["memory"]}
NO_AGENT = {"containerName": "agent", "mode": "Off"}


@pytest.mark.parametrize(
    ("policies", "found", "reason"),
    [
        pytest.param([MEMORY_ONLY], False, "TargetNotFound", id="no-target-comes-first"),
        pytest.param([MEMORY_ONLY], True, "NoSamples", id="of-what-is-controlled"),
        pytest.param([NO_AGENT, MEMORY_ONLY], True, "NoSamples", id="of-what-is-not-off"),
        pytest.param([], True, "NoSamples", id="no-policy"),
        pytest.param(
            [{"containerName": "*", "mode": "Off"}], True, "ContainerModeOff", id="all-is-off"
        ),
    ],
)
def test_the_first_reason_is_not_what_the_user_switched_off(
    policies: list[dict[str, object]], found: bool, reason: str
) -> None:
    told = known(*policies, target=TargetState(found))
    assert sizing.body(told)["status"]["first_reason"] == reason
    assert sizing.table([told])["rows"][0]["cells"][-1] == reason


def test_what_becomes_of_a_pod_is_told_in_words() -> None:
    decision = UpdateDecision("none", ("NothingToChange",), {})
    told = known(target=TargetState(True), pods=(PodDecision("worker-1", 1.0, decision),))
    sentences = sizing.body(told)["status"]["sentences"]
    assert "pod worker-1: stays as it is. A new pod would get what this one has." in sentences
    assert sizing._samples(1.0) == "1 sample"
