"""What is done to a pod that is due, beside what the original's own gates say about it.

``can_in_place`` of vpa.yaml asks for the gate alone; here the decision that passes it is asked.
"""

import os
from collections import Counter
from random import Random

from podscale.core.disruptions import DisruptionPace
from podscale.kube.objects.vpa import Vpa, VpaRecommendation, decode
from tests.cluster.vpa_drawn_objects import Json, likely
from tests.cluster.vpa_executed import execute, program
from tests.cluster.vpa_updater_draws import can_in_place
from tests.conformance.vpa_shared import decoded, seconds
from tests.pods import pod_of
from vpa.updater.decide import resize
from vpa.updater.decide.decision import LoopView, UpdateDecision, UpdatedPod, decide_update
from vpa.updater.decide.disruption_budget import Owner, OwnerSize, PodGroup, budget_for
from vpa.updater.decide.priority import UpdaterSettings

SHORT, LONG = 400, 5_000

WANTED = {"cpu": "200m", "memory": "200Mi"}


def _due(random: Random) -> dict[str, Json]:
    # The pod runs with other requests than are wanted; its spec may ask for them already.
    inputs = can_in_place(random)
    pod = inputs["pods"][inputs["selected_pod"]]
    asked = random.choice((WANTED, {"cpu": "50m", "memory": "100Mi"}))
    container: Json = {"name": "app", "resources": {"requests": asked}}
    if likely(random, 0.3):
        container["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    runs = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    pod["spec"]["containers"] = [container]
    pod["status"]["containerStatuses"] = [{"name": "app", "restartCount": 0, "resources": runs}]
    pod["metadata"].get("annotations", {}).pop("vpaObservedContainers", None)
    mode = random.choice(("Recreate", "InPlaceOrRecreate", "InPlace"))
    inputs["vpa"]["spec"]["updatePolicy"]["updateMode"] = inputs["group_update_mode"] = mode
    entry = {"containerName": "app", "target": WANTED, "lowerBound": WANTED, "upperBound": WANTED}
    inputs["vpa"]["status"] = {"recommendation": {"containerRecommendations": [entry]}}
    for refused in (inputs["infeasible_attempts_by_pod_uid"] or {}).values():
        target = {**WANTED, "cpu": random.choice(("199m", "200m", "201m"))}
        refused["containerRecommendations"] = [{"containerName": "app", "target": target}]
    return inputs


def _decided(inputs: Json) -> tuple[UpdateDecision, str]:
    """Return the decision, and the name of what it rightly differs by."""
    pods = [pod_of(each) for each in inputs["pods"]]
    pod, vpa = pods[inputs["selected_pod"]], decode(inputs["vpa"], Vpa)
    settings = UpdaterSettings(
        min_replicas=inputs["min_replicas_flag"],
        eviction_tolerance=inputs["eviction_tolerance"],
        skip_disruption_budget=inputs["in_place_skip_disruption_budget"],
        in_place=True,
    )
    size = OwnerSize(replicas=inputs["configured_replicas"])
    budget = budget_for(pods, vpa, {Owner("ReplicationController", "rc"): size}, settings)
    now, refused = seconds(inputs["now"]), inputs["infeasible_attempts_by_pod_uid"] or {}
    view = UpdatedPod(
        pod=pod,
        vpa=vpa,
        resize_since_s=now - seconds(inputs["last_in_place_attempt"]),
        was_refused=decoded(refused.get(pod.uid), VpaRecommendation),
    )
    found = decide_update(view, budget, LoopView(now=now, lease=None), settings, DisruptionPace())
    group = budget.group(pod)
    asks = inputs["pods"][inputs["selected_pod"]]["spec"]["containers"][0]["resources"]["requests"]
    if found.action == "resize" and resize.state_of(pod) != "ResizeNone" and asks != WANTED:
        return found, "a resize that nobody wants any more is revised (D4)"
    if isinstance(group, PodGroup) and group.only_unboosts and "TooFewReplicas" in found.reasons:
        return found, "a group too small that is kept for its boosts"
    return found, ""


def _theirs(mode: str, told: Json) -> tuple[str, bool]:
    # What the original's loop does of itself after its gates, and whether it records the size.
    evicts = "evict" if told["evictable"] else "none"
    if mode == "Recreate":
        return evicts, False
    actions = {"InPlaceApproved": "resize", "InPlaceInfeasible": "resize", "InPlaceEvict": evicts}
    return actions.get(told["decision"], "none"), told["decision"] == "InPlaceInfeasible"


def test_a_pod_that_is_due_gets_what_the_originals_gates_let_pass() -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    asked = [
        {"kind": "can_in_place", "inputs": _due(Random(f"decided {seed}"))}
        for seed in range(start, start + count)
    ]
    differing, on_purpose = [], Counter[str]()
    for seed, (case, told) in enumerate(zip(asked, execute(program(), asked), strict=True), start):
        found, reason = _decided(case["inputs"])
        theirs = _theirs(case["inputs"]["group_update_mode"], told)
        if (found.action, found.record_infeasible) == theirs:
            continue
        if reason:
            on_purpose[reason] += 1
        else:
            differing.append(f"seed {seed}: {found.action} {found.reasons}, not {theirs} ({told})")
    print(f"{count} from seed {start}, on purpose {dict(on_purpose)}, {len(differing)} differ")
    assert not differing, "\n".join(differing[:10])
    assert sum(on_purpose.values()) < count / 20
