"""Amounts in the sentences of a SizingDecision are for people, those of its facts for programs."""

from typing import Any

import msgspec
import pytest

from podscale.core import quantity
from podscale.explain.explanation import one_sentence
from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    ResourceList,
    Vpa,
    VpaCondition,
    VpaRecommendation,
    VpaStatus,
)
from vpa.decisions import decisions as sizing
from vpa.decisions.decisions import KnownSizing
from vpa.explain.admission import REASONS, AdmissionReasons, AdmittedValue, read
from vpa.explain.recommendation import PublishedHolds, TargetState
from vpa.explain.words import because, readable
from vpa.model.estimation.recommendation import (
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    recommend,
)
from vpa.updater.decide.decision import PodDecision, UpdateDecision


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("memory", "865936536", "825.82Mi"),
        ("memory", "100", "100"),
        ("memory", "512Mi", "512Mi"),
        ("memory", "0.5Gi", "512Mi"),
        ("memory", "536870912", "512Mi"),
        ("memory", "548405248", "523Mi"),
        ("memory", "1234567k", "1.15Gi"),
        ("memory", "129e6", "123.02Mi"),
        ("cpu", "1000", "1000"),
        ("cpu", "0.25", "250m"),
        ("cpu", "1500m", "1500m"),
        ("memory", None, ""),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(
    resource: str, amount: str | None, shown: str
) -> None:
    assert readable(resource, amount) == shown


def known(*policies: dict[str, object], target: TargetState, **more: object) -> KnownSizing:
    written = {
        "metadata": {"name": "worker", "namespace": "jobs"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "resourcePolicy": {"containerPolicies": policies},
        },
    }
    vpa = msgspec.convert(written, Vpa)
    measured = KnownSizing(
        vpa, 1_795_000_000.0, target, "default", True, ("agent", "app"), None, {}
    )
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
    assert sizing.cells(told)[-1] == reason


def test_what_becomes_of_a_pod_is_told_in_words() -> None:
    decision = UpdateDecision("none", ("NothingToChange",), {})
    told = known(target=TargetState(True), pods=(PodDecision("worker-1", 1.0, decision),))
    sentences = sizing.body(told)["status"]["sentences"]
    assert "pod worker-1 is unchanged: it already has the recommended requests." in sentences


GI = 1024.0**3
FREE = PublishedHolds()
HELD = PublishedHolds(until_s={("app", "memory"): 1_795_040_000.0})


def published(memory: str, *conditions: VpaCondition) -> Vpa:
    target = ResourceList(memory=quantity.parse(memory))
    entries = (ContainerRecommendation("app", target),)
    status = VpaStatus(VpaRecommendation(entries), conditions)
    written = known(MEMORY_ONLY, target=TargetState(True)).vpa
    return msgspec.structs.replace(written, status=status)


def estimated(gibibytes: float, memory: str, standing: PublishedHolds = FREE) -> KnownSizing:
    """Return what is known of a VPA whose status says ``memory``."""
    used = ResourceUsage((gibibytes * GI,) * 3, 1.0)
    trace = recommend([RecommendedUsage("app", {"memory": used})], RecommenderSettings())
    told = known(target=TargetState(True), trace=trace, containers=("app",), standing=standing)
    return msgspec.structs.replace(told, vpa=published(memory))


def memory_of(told: KnownSizing) -> dict[str, Any]:
    return next(
        each for each in sizing.body(told)["status"]["recommendation"]
        if each["resource"] == "memory"
    )  # fmt: skip


def test_an_amount_that_is_held_is_told_with_what_holds_it() -> None:
    told = estimated(1.0, "9Gi", HELD)
    found, status = memory_of(told), sizing.body(told)["status"]
    assert found["decision"]["value"] == "9Gi"  # what pods get
    assert (found["first_reason"], found["facts"]["held_by"]) == (
        "PercentileOfUsage", "HistoryLost",
    )  # fmt: skip
    assert found["facts"]["held_until"] == "2026-11-18T22:13:20Z"
    assert float(quantity.parse(found["facts"]["estimate"])) == pytest.approx(1.15 * GI)
    (sentence,) = (each for each in status["sentences"] if each.startswith("app memory"))
    assert sentence.startswith("app memory: 9Gi. It was published before and is held, because")
    assert "until 2026-11-18T22:13:20Z. What is known now gives 1.15Gi." in sentence
    assert "A day has to be known again" in found["change"]
    assert sizing.cells(told)[4] == "9Gi"


@pytest.mark.parametrize(
    ("standing", "published_now", "says", "held_by"),
    [
        pytest.param(
            PublishedHolds(is_young=True), "9Gi", "too little is known to lower it",
            "LowConfidence",
            id="young",
        ),
        pytest.param(
            PublishedHolds(), "9Gi", "to be published with the next write", None, id="to-be-written"
        ),
        pytest.param(
            PublishedHolds(until_s={("app", "cpu"): 1.0}), "9Gi", "with the next write", None,
            id="another-resource-is-held",
        ),
        pytest.param(HELD, str(int(1.15 * GI)), "", None, id="nothing-to-hold"),
        pytest.param(HELD, "1Gi", "with the next write", None, id="lost-and-more"),
        pytest.param(
            PublishedHolds(is_young=True), "1Gi", "with the next write", None, id="young-and-more"
        ),
    ],
)  # fmt: skip
def test_what_is_published_is_told_apart_from_what_is_known(
    standing: PublishedHolds, published_now: str, says: str, held_by: str | None
) -> None:
    told = estimated(1.0, published_now, standing)
    found = memory_of(told)
    value = found["decision"]["value"]
    assert quantity.parse(value).nano == quantity.parse(published_now).nano
    assert found["facts"].get("held_by") == held_by
    text = " ".join(sizing.body(told)["status"]["sentences"])
    assert says in text
    assert ("What is known now" in text) is bool(says)


def test_an_amount_without_samples_is_not_denied_while_pods_get_it() -> None:
    told = known(target=TargetState(True), containers=("app",))
    told = msgspec.structs.replace(told, vpa=published("512Mi"))
    found = memory_of(told)
    assert (found["first_reason"], found["decision"]["value"]) == ("NoSamples", "512Mi")
    text = " ".join(sizing.body(told)["status"]["sentences"])
    assert "app memory: 512Mi. It was published before and stands. The container was" in text


def test_conditions_that_explain_an_amount_are_told_above_it() -> None:
    lost = VpaCondition("LowConfidence", "True", "HistoryLost", "history is lost")
    told = known(target=TargetState(True))
    provided = VpaCondition("RecommendationProvided", "True")
    told = msgspec.structs.replace(told, vpa=published("1Gi", lost, provided))
    (condition,) = sizing.body(told)["status"]["conditions"]
    assert (condition["type"], condition["message"]) == ("LowConfidence", "history is lost")


def test_facts_that_somebody_wrote_on_a_pod_are_not_taken_for_ours() -> None:
    facts = {"held_by": "HistoryLost", "estimate": "1", "percentile": "x"}
    value = AdmittedValue("1", ("MaxAllowed",), facts)
    told = known(
        target=TargetState(True),
        admitted={"web-0": AdmissionReasons("web", {"app": {"cpu request": value}})},
    )
    (pod,) = sizing.body(told)["status"]["pods"]
    assert pod["admission"][0]["change"] == "Raise maxAllowed."


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"vpa":"web","containers":{"app":{"cpu request":{"value":null,"reasons":[],'
                     '"facts":{"x":' + "[" * 8000 + "]" * 8000 + "}}}}}", id="nested-deep"),
        pytest.param('{"vpa":"' + "x" * 20_000 + '","containers":{}}', id="longer-than-ours"),
        pytest.param('{"vpa":1}', id="another-shape"),
    ],
)  # fmt: skip
def test_an_annotation_that_is_not_the_webhooks_says_nothing_and_breaks_nothing(text: str) -> None:
    assert read({REASONS: text}) is None


def changing(**requests: str) -> KnownSizing:
    """Return a VPA of two containers, of which ``app`` has been measured for an hour."""
    used = {
        "cpu": ResourceUsage((0.1,) * 3, 1 / 24),
        "memory": ResourceUsage((455 * 2**20,) * 3, 1 / 24),
    }
    usages = [RecommendedUsage("agent", used), RecommendedUsage("app", used)]
    least = RecommenderSettings(min_cpu_milli=1.0, min_memory_mb=1.0)
    told = known(
        NO_AGENT, target=TargetState(True), trace=recommend(usages, least),
        containers=("agent", "app"),
    )  # fmt: skip
    amounts = {("app", name): quantity.parse(text) for name, text in requests.items()}
    return msgspec.structs.replace(told, requests=amounts)


def test_an_amount_is_told_in_plain_words_with_what_it_was_before() -> None:
    status = sizing.body(changing(cpu="115m", memory="256Mi"))["status"]
    first, *others = status["sentences"]
    assert first == ("app memory: 256Mi → 523.25Mi (peak 455Mi + 15%; little history so far).")
    assert any(text.startswith("app cpu: 115m (up to 100m in 90% of the time + 15%")
               for text in others)  # fmt: skip
    assert "confidence" not in " ".join(status["sentences"])


@pytest.mark.parametrize(
    ("requests", "first"),
    [
        pytest.param({"cpu": "115m", "memory": "256Mi"}, "app memory", id="what-changes"),
        pytest.param({"cpu": "200m", "memory": "523.25Mi"}, "app cpu", id="the-other-one"),
        pytest.param({"cpu": "200m", "memory": "256Mi"}, "app cpu", id="both"),
        pytest.param({}, "app cpu", id="of-what-is-controlled"),
    ],
)
def test_the_first_why_is_of_what_is_controlled_and_changes(
    requests: dict[str, str], first: str
) -> None:
    told = changing(**requests)
    status = sizing.body(told)["status"]
    assert status["sentences"][0].startswith(first)
    assert status["first_reason"] == "PercentileOfUsage"
    (explained,) = (
        each
        for each in status["recommendation"]
        if f"{each['container']} {each['resource']}" == first
    )
    assert status["facts"] == explained["facts"]


@pytest.mark.parametrize(
    ("reason", "facts", "says"),
    [
        ("MinAllowed", {"min": "536870912"}, "minAllowed is 512Mi"),
        ("MaxAllowed", {"max": "0.5Gi"}, "maxAllowed is 512Mi"),
        (
            "OomBump",
            {"requested_bytes": 2**28, "bumped_bytes": 2**29, "margin": 0.0},
            "OOM-killed with a request of 256Mi, counted as 512Mi",
        ),
        (
            "MemoryPeakHolds",
            {"peak_bytes": 2.0**29, "margin": 0.15},
            "peak 512Mi + 15%, fading",
        ),
    ],
)
def test_every_amount_in_a_sentence_is_spelt_in_one_way(
    reason: str, facts: dict[str, Any], says: str
) -> None:
    assert because("memory", reason, facts) == says


def test_why_says_that_no_usage_is_read_before_any_amount() -> None:
    told = known(MEMORY_ONLY, target=TargetState(True))
    status = sizing.body(told)["status"]
    assert status["why"] == status["sentences"][0]
    silent = msgspec.structs.replace(told, usage_problem="Prometheus did not answer in time")
    why = sizing.body(silent)["status"]["why"]
    assert why.startswith("Recommendations are frozen because usage cannot be read: ")
    assert why.endswith("Prometheus did not answer in time")
    assert sizing.body(silent)["status"]["change"] == "Usage can be read again."


def test_of_a_vpa_whose_usage_is_not_read_the_object_and_the_table_say_so_first() -> None:
    told = known(MEMORY_ONLY, target=TargetState(True))
    silent = msgspec.structs.replace(told, usage_problem="Prometheus did not answer in time")
    status = sizing.body(silent)["status"]
    assert (status["first_reason"], sizing.cells(silent)[-1]) == ("UsageMissing", "UsageMissing")
    assert status["also"][0] == sizing.body(told)["status"]["first_reason"]


@pytest.mark.parametrize(
    ("facts", "said", "change"),
    [
        ({}, "another pod of this workload is still restarting.", "That pod runs again"),
        (
            {"held_by": "OutsideDisruptionWindow"},
            "the disruption window of the VPA is closed.",
            "The disruption window opens.",
        ),
    ],
)
def test_a_pod_that_may_not_go_down_now_says_what_holds_it(
    facts: dict[str, str], said: str, change: str
) -> None:
    decision = UpdateDecision("none", ("BudgetExhausted",), facts)
    told = known(target=TargetState(True), pods=(PodDecision("worker-1", 1.0, decision),))
    status = sizing.body(told)["status"]
    assert f"pod worker-1 waits: {said}" in status["sentences"]
    assert status["pods"][0]["change"].startswith(change)


def waiting(*reasons: str) -> tuple[PodDecision, ...]:
    return tuple(
        PodDecision(f"worker-{n}", 1.0, UpdateDecision("none", (reason,), {}))
        for n, reason in enumerate(reasons)
    )


@pytest.mark.parametrize(
    ("reasons", "says", "change"),
    [
        (
            ("NothingToChange", "BudgetExhausted"),
            "; pod worker-1 waits: another pod of this workload is still restarting.",
            "That pod runs again, or you raise --eviction-tolerance.",
        ),
        (
            ("PdbRefuses",),
            "; pod worker-0 waits: a PodDisruptionBudget refuses the eviction.",
            "The PodDisruptionBudget allows a disruption.",
        ),
        (
            ("WithinBoundsYoung", "NothingToChange"),
            (
                "; pod worker-0 waits: the pod is young, and its requests are within the "
                "recommended bounds."
            ),
            "The pod gets older, or its requests leave the bounds.",
        ),
        (("NothingToChange",), "little history so far).", "Only a change in usage."),
        ((), "little history so far).", "Only a change in usage."),
    ],
)
def test_a_vpa_that_waits_says_what_it_waits_for(
    reasons: tuple[str, ...], says: str, change: str
) -> None:
    told = changing(cpu="115m", memory="256Mi")
    told = msgspec.structs.replace(told, pods=waiting(*reasons))
    status = sizing.body(told)["status"]
    assert status["why"].startswith("app memory: 256Mi → 523.25Mi (peak 455Mi + 15%")
    assert status["why"].endswith(says)
    assert status["change"] == change


def test_a_pod_that_is_being_changed_is_in_the_headline_and_no_other_one() -> None:
    acts = PodDecision("worker-9", 1.0, UpdateDecision("resize", ("OutsideBounds",), {}))
    told = msgspec.structs.replace(
        changing(memory="256Mi"), pods=(*waiting("BudgetExhausted", "NothingToChange"), acts)
    )
    status = sizing.body(told)["status"]
    assert "; pod worker-9 is to be resized: a request lies outside the " in status["why"]
    assert "worker-0" not in status["why"]


def test_names_keep_their_capitals_within_one_sentence() -> None:
    texts = ("app cpu: 100m.", "HPA api scales the same pods.", "The size is kept.", "A new one.")
    said = "app cpu: 100m; HPA api scales the same pods, so the size is kept; a new one."
    assert one_sentence(texts) == said


def test_a_resource_that_is_not_managed_says_so_and_is_no_headline() -> None:
    told = known(
        MEMORY_ONLY, target=TargetState(True), containers=("app",), trace=changing().trace,
        requests={("app", "cpu"): quantity.parse("100m")},
    )  # fmt: skip
    status = sizing.body(told)["status"]
    assert status["why"].startswith("app memory: ")
    assert "cpu" not in status["why"]
    assert (
        "app cpu: not managed (the resource is not in controlledResources of the container's "
        "policy)." in status["sentences"]
    )
