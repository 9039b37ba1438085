"""Random passes, decided here and by kube-controller-manager's own code, 1.36.3 and 1.37.1."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hpa.decide import conclude, decide
from hpa.decide.observation import Past
from tests.cluster import executed
from tests.cluster.executed import Case
from tests.cluster.hpa_situations import situation
from tests.conformance import hpa_inputs as given
from tests.conformance.hpa_checks import shown_conditions, shown_messages, shown_metric
from tests.conformance.hpa_inputs import NOW

SHORT, LONG = 2_000, 40_000
AGAIN = 12  # times that passes are executed whose result may hang on the order of a map
CONDITION = {"type": "", "status": "", "reason": "", "message": ""}


@pytest.mark.timeout(1200)  # the first time, Go builds what executes
@pytest.mark.parametrize("release", list(executed.LOCKED))
def test_decides_as_the_original_does(release: str) -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    built = executed.program(release)
    drawn = [_on(release, situation(seed)) for seed in range(start, start + count)]
    passes, differing = 0, {}
    for number, told in enumerate(executed.execute(built, drawn)):
        theirs = told if release == "1.36" else _as_in_cases(told)
        ours = list(decided(drawn[number], theirs, release))
        passes += len(theirs)
        if ours != theirs:
            differing[number] = ours, theirs
    undecided = {number for number in differing if _varies(built, drawn[number])}
    for number in undecided:
        del differing[number]
    print(
        f"executed by {release}: {passes} passes of {count} HPAs from seed {start},"
        f" {len(differing)} HPAs differ; left out {len(undecided)}, which hang on a map's order"
    )
    assert len(undecided) <= count / 50
    shown = [
        f"seed {start + number}, pass {place}: {key}\n  ours   {mine[key]}\n  theirs {told[key]}"
        for number, (ours, theirs) in list(differing.items())[:5]
        for place, (mine, told) in enumerate(zip(ours, theirs, strict=True))
        for key in told
        if mine[key] != told[key]
    ]
    assert not differing, "\n".join(shown)


def decided(inputs: Case, like: list[Case], release: str) -> Iterator[Case]:
    """Yield what podscale makes of each pass, in the form of what the original told."""
    settings = given.settings({"release": release, "inputs": inputs})
    past, status, size = given.past(inputs), None, inputs["target"]["spec_replicas"]
    for place, told in enumerate(like):
        if place:
            later = inputs["then"][place - 1]
            past = _earlier(past, later["after_s"])
            target = inputs["target"] | {"spec_replicas": size, "status_replicas": size}
            inputs = inputs | {"target": target} | _only_of(later)
        seen = given.observation(inputs)
        if status is not None:
            seen = replace(seen, hpa=replace(seen.hpa, status=status))
        decision = decide(seen, past, settings, NOW)
        outcome = given.outcome(inputs)
        done = conclude(decision, replace(outcome, status_error=None), NOW)
        if done.is_status_changed:
            done = conclude(decision, outcome, NOW)  # what is not sent does not fail
        is_sent = decision.replicas is not None and outcome.scale == "written"
        past = done.past
        yield {
            "desired_replicas": done.status.desired_replicas,
            "scale_updated": is_sent,
            "conditions": shown_conditions(done.status.conditions, [CONDITION]),
            "reconciliation": {"action": done.labels.action, "error": done.labels.error},
            "metric_computations": {m.type: [m.action, m.error] for m in done.labels.metrics},
            "events": shown_messages(done.events, told["events"]),
            "current_metrics": [shown_metric(each) for each in done.status.metrics],
            "stored_recommendations": [each.replicas for each in past.recommendations or ()],
            "scale_ups": _events(past.scale_ups),
            "scale_downs": _events(past.scale_downs),
            "status_written": done.is_status_changed,
        }
        if is_sent and decision.replicas is not None:
            size = decision.replicas
        is_kept = done.is_status_changed and "status_update" not in inputs["faults"]
        status = done.status if is_kept else seen.hpa.status


_OF_A_PASS = (
    "pods", "faults", "resource_metrics", "custom_pod_metrics", "object_metric", "external_metric",
)  # fmt: skip


def _only_of(later: Case) -> Case:
    return {name: later.get(name) for name in _OF_A_PASS}


def _earlier(past: Past, by_s: float) -> Past:
    """Return the past as it is so much later: the clock of a pass always shows ``NOW``."""
    return Past(
        None
        if past.recommendations is None
        else tuple(replace(each, at=each.at - by_s) for each in past.recommendations),
        tuple(replace(each, at=each.at - by_s) for each in past.scale_ups),
        tuple(replace(each, at=each.at - by_s) for each in past.scale_downs),
    )


def _on(release: str, inputs: Case) -> Case:
    if release != "1.36":
        inputs["gates"]["HPAConfigurableTolerance"] = True  # it can no longer be switched off
    return inputs


def _as_in_cases(told: list[Case]) -> list[Case]:
    """Return what 1.37.1 told as the case files tell it of 1.37.

    The quotient of status.replicas 0, which is -2^63 on amd64, is 0 there; and the text of an
    object without its metric, which 1.37.1 has put right, stands as it was.
    """
    text = json.dumps(told).replace(f'"averageValue": {-(2**63)}', '"averageValue": 0')
    corrected = r"get metric (\w+) on (\w+) ([\w-]+)/([\w-]+): "
    found: list[Case] = json.loads(re.sub(corrected, r"get metric \1: \2 on \3 \4/", text))
    return found


def _events(listed: Any) -> list[Case]:
    return [
        {"change": each.change, "age_s": NOW - each.at, "outdated": each.is_outdated}
        for each in listed
    ]


def _varies(built: Path, inputs: Case) -> bool:
    first, *others = executed.execute(built, [inputs] * AGAIN)
    return any(each != first for each in others)
