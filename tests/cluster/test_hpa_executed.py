"""Random passes, decided here and by kube-controller-manager's own code, 1.36.3 and 1.37.1."""

import json
import os
import re
from typing import Any

import pytest

from tests.cluster import executed
from tests.cluster.executed import Case
from tests.cluster.hpa_situations import situation
from tests.conformance import hpa_inputs as given
from tests.conformance.hpa_checks import concluded, shown_conditions, shown_messages, shown_metric

SHORT, LONG = 4_000, 60_000
AGAIN = 12  # times that a pass is executed whose answer may hang on the order of a map
CONDITION = {"type": "", "status": "", "reason": "", "message": ""}


@pytest.mark.timeout(1200)  # the first time, Go builds what executes
@pytest.mark.parametrize("release", list(executed.LOCKED))
def test_decides_as_the_original_does(release: str) -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    built = executed.program(release)
    passes = [_on(release, situation(seed)) for seed in range(start, start + count)]
    differing: dict[int, tuple[Case, Case]] = {}
    for number, theirs in enumerate(executed.execute(built, passes)):
        told = theirs if release == "1.36" else _as_in_cases(passes[number], theirs)
        ours = decided(passes[number], told, release)
        if ours != told:
            differing[number] = ours, told
    undecided = {number for number in differing if _varies(built, passes[number])}
    for number in undecided:
        del differing[number]
    print(
        f"executed by {release}: {count} passes from seed {start}, {len(differing)} differ;"
        f" left out {len(undecided)}, whose answer hangs on the order of a map"
    )
    assert len(undecided) <= count / 50
    shown = [
        f"seed {start + number}: {key}\n  ours   {ours[key]}\n  theirs {theirs[key]}"
        for number, (ours, theirs) in list(differing.items())[:5]
        for key in theirs
        if ours[key] != theirs[key]
    ]
    assert not differing, "\n".join(shown)


def decided(inputs: Case, like: Case, release: str) -> Case:
    """Return what podscale makes of a pass, in the form of what the original told."""
    decision, done = concluded({"release": release, "inputs": inputs}, inputs)
    status, past = done.status, done.past
    found: dict[str, Any] = {
        "desired_replicas": status.desired_replicas,
        "scale_updated": decision.replicas is not None and given.outcome(inputs).scale == "written",
        "conditions": shown_conditions(status.conditions, [CONDITION]),
        "reconciliation": {"action": done.labels.action, "error": done.labels.error},
        "metric_computations": {m.type: [m.action, m.error] for m in done.labels.metrics},
        "events": shown_messages(done.events, like["events"]),
        "current_metrics": [shown_metric(each) for each in status.metrics],
        "stored_recommendations": [each.replicas for each in past.recommendations or ()],
        "scale_ups": _events(past.scale_ups),
        "scale_downs": _events(past.scale_downs),
        "status_written": done.is_status_changed,
    }
    return found


def _on(release: str, inputs: Case) -> Case:
    if release != "1.36":
        inputs["gates"]["HPAConfigurableTolerance"] = True  # it can no longer be switched off
    return inputs


def _as_in_cases(inputs: Case, theirs: Case) -> Case:
    """Return what 1.37.1 told as the case files tell it of 1.37.

    The quotient of status.replicas 0, which is -2^63 on amd64, is 0 there; and the text of an
    object without its metric, which 1.37.1 has put right, stands as it was.
    """
    text = json.dumps(theirs)
    if inputs["target"]["status_replicas"] == 0:
        text = text.replace(f'"averageValue": {-(2**63)}', '"averageValue": 0')
    told = re.sub(
        r"get metric (\w+) on (\w+) ([\w-]+)/([\w-]+): ", r"get metric \1: \2 on \3 \4/", text
    )
    found: Case = json.loads(told)
    return found


def _events(listed: Any) -> list[Case]:
    return [
        {"change": each.change, "age_s": given.NOW - each.at, "outdated": each.is_outdated}
        for each in listed
    ]


def _varies(built: Any, inputs: Case) -> bool:
    first, *others = executed.execute(built, [inputs] * AGAIN)
    return any(each != first for each in others)
