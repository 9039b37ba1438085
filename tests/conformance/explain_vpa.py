"""Runs one ``vpa-*`` case of explain.yaml through the product's explanations."""

import math
from typing import Any

import numpy as np

from podscale.core import quantity
from podscale.core.disruptions import pace_of
from podscale.core.pod_state import PodPhase
from podscale.core.selectors import selector
from podscale.explain.explanation import Explanation
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import (
    LimitRangeItem,
    Vpa,
    VpaRecommendation,
    decode,
)
from tests.conformance.cases import Case, document
from tests.conformance.vpa_model_cases import flag_seconds, recommender_settings, series
from tests.conformance.vpa_sample_cases import Sampled
from tests.conformance.vpa_shared import seconds
from tests.pods import pod_of
from vpa.admission.matching import (
    Candidate,
    OwningController,
    acts_at_admission,
    match,
    target_of,
)
from vpa.admission.patches.patch import BoostSettings
from vpa.capping import LimitRanges
from vpa.decisions.decisions import explain_update
from vpa.explain.admission import AdmittedPod, ValueQuestion
from vpa.explain.recommendation import AmountQuestion, MeasuredBasis, TargetState, explain_amount
from vpa.explain.words import WORDS, explanation
from vpa.model.amounts import Windows
from vpa.model.estimation.annotations import HalfLives
from vpa.model.estimation.estimator import Bound
from vpa.model.estimation.recommendation import NodeShape, RecommendedUsage, recommend
from vpa.model.samples.container_rows import holding
from vpa.updater.decide.decision import AdmissionLease, LoopView, Pdb, UpdatedPod, decide_update
from vpa.updater.decide.disruption_budget import Owner, OwnerSize, budget_for
from vpa.updater.decide.priority import UpdaterSettings

Json = Any


def check(case: Case) -> None:
    """Assert that the explanation names what the case demands, and nothing wrong."""
    expected, found = case["expected"], explain_vpa(case)
    named = set(found.reasons)
    assert found.first_reason == expected["first_reason"], found
    assert set(expected["also"]) <= named, found
    assert not set(expected["never"]) & named, found
    assert named <= set(document("explain.yaml")["reasons"]), found
    assert all(reason in WORDS for reason in found.reasons)
    for name, fact in expected.get("names", {}).items():
        assert name in found.facts, f"{name} is not among {found.facts}"
        assert _same(fact, found.facts[name]), f"{name}: {found.facts[name]!r}, not {fact!r}"
    for name, value in expected["decision"].items():
        assert _same(value, found.decision[name]), f"{name}: {found.decision}"


def explain_vpa(case: Case) -> Explanation:
    """Return the explanation of the case's question."""
    run = {
        "vpa-recommendation": _recommendation,
        "vpa-update": _update,
        "vpa-admission": _admission,
    }[case["kind"]]
    return run(case["inputs"])


def _same(expected: Json, found: Json) -> bool:
    # Numbers and quantities by value, everything else as it is.
    first, second = _number(expected), _number(found)
    if first is None or second is None:
        return bool(expected == found)
    return math.isclose(first, second, rel_tol=1e-9)


def _number(value: Json) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(quantity.from_wire(value))
    except quantity.QuantityError:
        return None


def _recommendation(i: dict[str, Json]) -> Explanation:
    vpa = decode(i["vpa"], Vpa)
    ask = i["ask"]
    question = AmountQuestion(ask["container"], ask["resource"], ask["field"])
    settings = recommender_settings({}, i["flags"])
    usages, containers = [], {}
    flags = i["flags"]
    windows = Windows(
        interval_s=flag_seconds(flags, "memory-aggregation-interval", 86400),
        interval_count=int(flags.get("memory-aggregation-interval-count", 8)),
        oom_ratio=float(flags.get("oom-bump-up-ratio", 1.2)),
        oom_min_bytes=float(flags.get("oom-min-bump-up-bytes", 100 * 2**20)),
    )
    half_lives = HalfLives(
        flag_seconds(flags, "cpu-histogram-decay-half-life", 86400),
        flag_seconds(flags, "memory-histogram-decay-half-life", 86400),
    )
    for entry in i["containers"]:
        sampled = Sampled(windows, half_lives)
        for resource, value, at in series(entry["series"], entry.get("ooms", [])):
            sampled.feed(resource, value, at)
        containers[entry["name"]] = sampled
        usages.append(RecommendedUsage(entry["name"], sampled.usage(settings)))
    trace = recommend(
        usages,
        settings,
        policy=vpa.spec.resource_policy,
        annotations=vpa.metadata.annotations,
        shapes=[decode(node, NodeShape) for node in i.get("nodes", [])],
    )
    return explain_amount(
        question,
        vpa,
        target=_target_state(vpa, i["targets"]),
        recommender=i.get("recommender", "default"),
        pods_matched=i["pods_matched"],
        trace=trace,
        measured=_measured(question, containers.get(ask["container"]), settings),
    )


def _measured(question: AmountQuestion, sampled: Sampled | None, settings: Any) -> MeasuredBasis:
    if sampled is None:
        return MeasuredBasis()
    span = sampled.aggregates.cpu_span
    held = None
    if question.resource == "memory":
        bound: Bound = "target" if question.field == "uncappedTarget" else question.field
        windows = sampled.containers.past_windows(sampled.row)
        fraction = settings.memory.percentiles.of(bound)
        held = holding(sampled.aggregates.memory, int(sampled.columns[0]), windows, fraction)
    first, last = float(span.first[0]), float(span.last[0])
    known = bool(np.isfinite(first))
    samples = float(span.samples[0])
    return MeasuredBasis(samples, first if known else None, last if known else None, held)


def _target_state(vpa: Vpa, targets: list[dict[str, Json]]) -> TargetState:
    ref = vpa.spec.target_ref
    assert ref is not None
    for target in targets:
        if (target["kind"], target["name"]) == (ref.kind, ref.name):
            above = target["controller"]
            topmost = f"{above['kind']}/{above['name']}" if above is not None else None
            return TargetState(True, topmost, bool(target["selector"]))
    return TargetState(False)


class _Owners:
    # What the API server knows of controllers, all in one namespace.

    def __init__(self, owners: list[dict[str, Json]]) -> None:
        self.known = {(o["kind"], o["name"]): o for o in owners}

    def topmost(self, pod: PodView) -> OwningController | None:
        owner = pod.owner
        if owner is None:
            return None
        kind, name = owner.kind, owner.name
        while (entry := self.known.get((kind, name))) and entry["controller"]:
            kind, name = entry["controller"]["kind"], entry["controller"]["name"]
        return OwningController(pod.namespace, kind, name)

    def selector(self, kind: str, name: str) -> selector.Selector | None:
        entry = self.known.get((kind, name))
        text = entry.get("selector") if entry is not None else None
        return selector.parse(text) if text else None

    def candidates(self, pod: PodView, vpas: list[Vpa]) -> list[Candidate]:
        top = self.topmost(pod)
        return [
            Candidate(vpa, self.selector(top.kind, top.name))
            for vpa in vpas
            if top is not None and target_of(vpa) == top
        ]

    def sizes(self) -> dict[Owner, OwnerSize]:
        return {
            Owner(kind, name): OwnerSize(
                replicas=entry.get("replicas"),
                desired=entry.get("desiredNumberScheduled"),
            )
            for (kind, name), entry in self.known.items()
        }


def _updater_settings(flags: dict[str, Json], gates: dict[str, bool]) -> UpdaterSettings:
    return UpdaterSettings(
        update_threshold=float(flags.get("pod-update-threshold", 0.1)),
        lifetime_s=flag_seconds(
            flags, "in-recommendation-bounds-eviction-lifetime-threshold", 12 * 3600
        ),
        evict_after_oom_s=flag_seconds(flags, "evict-after-oom-threshold", 600),
        min_replicas=int(flags.get("min-replicas", 2)),
        eviction_tolerance=float(flags.get("eviction-tolerance", 0.5)),
        skip_disruption_budget=bool(flags.get("in-place-skip-disruption-budget", False)),
        in_place=gates.get("InPlace", False),
        per_vpa_config=gates.get("PerVPAConfig", False),
        cpu_startup_boost=gates.get("CPUStartupBoost", False),
    )


def _update(i: dict[str, Json]) -> Explanation:
    now = seconds(i["now"])
    vpas = [decode(vpa, Vpa) for vpa in i["vpas"]]
    pods = [pod_of(pod) for pod in i["pods"]]
    owners = _Owners(i["owners"])
    pod = next(pod for pod in pods if pod.name == i["ask"]["pod"])
    matching = [
        entry.vpa
        for entry in owners.candidates(pod, vpas)
        if entry.selector is not None and entry.selector.matches(pod.labels)
    ]
    asked = [vpa for vpa in matching if vpa.metadata.name == i["ask"]["vpa"]]
    if not asked:
        return explanation(["NoVpaMatches"], [], {"action": "none"})
    vpa = asked[0]
    # A VPA's group are the pods that it governs, finished and leaving ones left out.
    group = [
        other
        for other in pods
        if vpa in [entry.vpa for entry in owners.candidates(other, vpas)]
        and other.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        and math.isnan(other.deleted)
    ]
    settings = _updater_settings(i["flags"], i["feature_gates"])
    lease, pdb = i["lease"], i["pdb"]
    refused = _refused((i.get("infeasible_records") or {}).get(pod.name))
    view = UpdatedPod(
        pod=pod,
        vpa=vpa,
        rivals=tuple(other for other in matching if other is not vpa),
        ranges=_ranges(i),
        resize_since_s=float(i.get("resize_first_seen_age_s", 0)),
        was_refused=refused,
        pdb=_pdb(pdb),
    )
    loop = LoopView(
        now=now,
        lease=AdmissionLease(lease["name"], None, now - lease["renew_age_s"]) if lease else None,
        lease_timeout_s=flag_seconds(i["flags"], "admission-controller-status-lease-timeout", 60),
    )
    pace = pace_of(vpa.metadata.annotations)
    budget = budget_for(group, vpa, owners.sizes(), settings)
    return explain_update(decide_update(view, budget, loop, settings, pace))


def _refused(record: Json) -> VpaRecommendation | None:
    # What was refused: a recommendation, or targets by container.
    if record is None:
        return None
    if "containerRecommendations" in record:
        return decode(record, VpaRecommendation)
    entries = [{"containerName": name, "target": target} for name, target in record.items()]
    return decode({"containerRecommendations": entries}, VpaRecommendation)


def _pdb(pdb: dict[str, Json] | None) -> Pdb | None:
    if pdb is None:
        return None
    refuses = pdb.get("eviction_status") == 429 or pdb.get("disruptionsAllowed") == 0
    return Pdb(pdb["name"], refuses)


def _ranges(i: dict[str, Json]) -> LimitRanges:
    def item(name: str) -> LimitRangeItem | None:
        return decode(i[name], LimitRangeItem) if i.get(name) is not None else None

    return LimitRanges(item("container_limit_range"), item("pod_limit_range"))


def _admission(i: dict[str, Json]) -> Explanation:
    pod = pod_of(i["pod"])
    vpas = [decode(vpa, Vpa) for vpa in i["vpas"]]
    owners = _Owners(i["owners"])
    ask = i["ask"]
    question = ValueQuestion(ask["container"], ask["resource"], ask["field"])
    boost = BoostSettings(
        i["feature_gates"].get("CPUStartupBoost", False),
        quantity.parse(str(i["flags"].get("max-allowed-cpu-boost", "0"))),
    )
    candidates = owners.candidates(pod, vpas)
    acting = [entry for entry in candidates if acts_at_admission(entry.vpa)]
    chosen = match(pod.labels, acting)
    if chosen is None:
        is_off = match(pod.labels, candidates) is not None
        return explanation(["UpdateModeOff" if is_off else "NoVpaMatches"], [], {"value": None})
    told = AdmittedPod(pod, chosen.vpa, _ranges(i), boost).explain(question)
    name = chosen.vpa.metadata.name
    if ask.get("vpa") in (None, name):
        return told
    return explanation(["OlderVpaWins", *told.reasons], [{"vpa": name}, told.facts], told.decision)
