"""A target that hangs on an anchor: what pods request today moves no replicas."""

import pytest
from msgspec import structs

from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec
from hpa.decide.observation import HeldTarget, Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from podscale.coordinate.anchor import Anchor
from podscale.core.metrics import PodSamples, Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

NOW = 1.7e9
SETTINGS = Settings()
CPU = MetricSpec("Resource", "cpu", average_utilization=50)
HELD = HeldTarget("AnchorHeld", "VPA web holds it", "", Anchor(1000, 700, "u"))
LOST = HeldTarget("NoAnchor", "VPA web has no anchor", "", may_shrink=False)


def observed(
    used: int, request: int, held: HeldTarget | None, *metrics: MetricSpec, count: int = 10
) -> Observation:
    names = tuple(f"web-{number}" for number in range(count))
    template = WirePodTemplate((TemplateContainer("app", {"cpu": request}),))
    pods = Pods(
        names,
        bytes([PodPhase.RUNNING]) * count,
        bytes([PodReadiness.TRUE]) * count,
        bytes(count),
        (NOW - 9e4,) * count,
        (NOW - 9e4,) * count,
        (0,) * count,
        (template,),
    )
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    hpa = HPA(
        "shop", "web", target, 100, metrics or (CPU,), 1,
        status=HpaStatus(count, count),
    )  # fmt: skip
    answer = PodSamples({name: Sample(used, NOW, 60.0) for name in names}, NOW)
    return Observation(hpa, Scale(count, count, "app=web"), pods, (answer,), held=held)


def mixed(used: int, small: int, large: int) -> Observation:
    """Return ten pods, of which half have grown."""
    found = observed(used, large, structs.replace(HELD, anchor=Anchor(1600, 1000, "u")))
    templates = tuple(
        WirePodTemplate((TemplateContainer("app", {"cpu": request}),)) for request in (small, large)
    )
    pods = structs.replace(found.pods, template=(0, 1) * 5, templates=templates)
    return structs.replace(found, pods=pods)


def decided(observation: Observation, settings: Settings = SETTINGS) -> int | None:
    return decide(observation, Past(recommendations=()), settings, NOW).trace.decided


def test_a_smaller_request_moves_no_replicas():
    assert decided(observed(500, 1000, HELD)) == 10
    assert decided(observed(500, 700, HELD)) == 10
    assert decided(observed(500, 700, None)) == 15


def test_a_larger_request_moves_no_replicas_either():
    assert decided(observed(500, 2000, HELD)) == 10
    assert decided(observed(500, 2000, None)) == 5


def test_pods_that_wait_to_grow_carry_their_share():
    waiting = structs.replace(HELD, anchor=Anchor(2000, 1400, "u"))
    assert decided(observed(500, 700, waiting)) == 10
    assert decided(observed(500, 1400, waiting)) == 5


@pytest.mark.parametrize("request_milli", [100, 700, 1000, 5000])
def test_without_an_anchor_nothing_shrinks(request_milli):
    assert decided(observed(10, request_milli, LOST)) == 10
    assert decided(observed(6000, request_milli, LOST)) > 10


def test_a_lost_anchor_is_told():
    decision = decide(observed(10, 1000, LOST), Past(), SETTINGS, NOW)
    told = explain(decision.trace)
    assert told.first_reason == "AnchorMissing"
    assert any("nothing shrinks" in sentence for sentence in told.sentences)


def test_the_condition_comes_and_goes_with_the_wish():
    def conditions(held: HeldTarget | None, status: HpaStatus) -> dict[str, tuple[str, str]]:
        seen = observed(500, 1000, held)
        seen = structs.replace(seen, hpa=structs.replace(seen.hpa, status=status))
        found = decide(seen, Past(), SETTINGS, NOW).status
        return {each.type: (each.status, each.reason) for each in found.conditions}

    first = decide(observed(500, 1000, HELD), Past(), SETTINGS, NOW).status
    assert conditions(HELD, first)["Coordinated"] == ("True", "AnchorHeld")
    assert conditions(LOST, first)["Coordinated"] == ("False", "NoAnchor")
    assert "Coordinated" not in conditions(None, first)


def test_another_metric_and_another_container_are_of_what_pods_request():
    memory = MetricSpec("Resource", "memory", average_utilization=50)
    assert decided(observed(500, 700, HELD, memory)) is None  # no pod requests memory
    app = MetricSpec("ContainerResource", "cpu", container="app", average_utilization=50)
    assert decided(observed(500, 700, HELD, app)) == 15
    assert decided(observed(500, 700, structs.replace(HELD, container="app"), app)) == 10


def test_a_shadow_knows_no_anchor():
    shadow = Settings(mode="shadow")
    assert decided(observed(500, 700, HELD), shadow) == decided(observed(500, 700, None), shadow)


def test_pods_without_a_request_stay_an_error():
    seen = observed(500, 700, HELD)
    bare = structs.replace(seen.pods, templates=(WirePodTemplate((TemplateContainer("app", {}),)),))
    assert decided(structs.replace(seen, pods=bare)) is None


def test_no_pod_is_removed_while_those_that_stay_may_be_small():
    found = decide(mixed(200, 250, 1000), Past(recommendations=()), SETTINGS, NOW)
    assert found.trace.decided == 10
    assert explain(found.trace).first_reason == "SmallPodsRemain"
    assert decided(mixed(100, 250, 1000)) == 5, "as many as carry the load where all are small"
    assert decided(mixed(200, 1000, 1000)) == 3


@pytest.mark.parametrize("column", ["deleted", "ready"])
def test_pods_that_leave_or_are_not_ready_leave_their_load_to_the_others(column):
    """160m each: nine tenths of the load are pods' that do not count."""
    seen = observed(160, 1000, HELD)
    assert decided(seen) == 4
    away = {
        "deleted": bytes([0] * 3 + [1] * 7),
        "ready": bytes([PodReadiness.TRUE] * 3 + [PodReadiness.FALSE] * 7),
    }
    pods = structs.replace(seen.pods, **{column: away[column]})
    three = structs.replace(seen, scale=Scale(3, 3, "app=web"), pods=pods)
    assert decided(three) == 3
    assert decided(structs.replace(three, held=None)) == 1, "as upstream has it"


def test_a_small_pod_among_large_ones_asks_for_no_crowd():
    assert decided(mixed(800, 10, 1000)) == 20


def test_another_anchor_is_an_event_and_one_that_was_out_of_sight_is_not():
    def events(held: HeldTarget, before: HeldTarget) -> list[str]:
        seen = decide(observed(500, 700, before), Past(recommendations=()), SETTINGS, NOW)
        now = observed(500, 700, held)
        now = structs.replace(now, hpa=structs.replace(now.hpa, status=seen.status))
        found = decide(now, Past(recommendations=()), SETTINGS, NOW)
        return [each.message for each in found.events if each.reason == "AnchorMoved"]

    moved = HeldTarget("AnchorHeld", "another", "", Anchor(1600, 1000, "u"))
    unseen = HeldTarget("VpasUnknown", "not known", "", may_shrink=False)
    assert events(moved, HELD) == ["another"]
    assert events(HELD, LOST) == [HELD.text]
    assert events(HELD, HELD) == []
    assert events(HELD, unseen) == []
    assert events(LOST, HELD) == []
