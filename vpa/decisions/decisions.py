"""``vpa.podscale.io``: sizing decisions as objects, explained when they are asked for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from podscale.core.quantity import Quantity
from podscale.core.times.rfc3339 import rfc3339
from podscale.serving.apis.api import ApiResource
from podscale.serving.apis.decision_api import DecisionKind, decision_metadata
from vpa.explain.admission_reasons import AdmissionReasons
from vpa.explain.amount_words import because, history, readable
from vpa.explain.explanation import SizingExplanation, explanation, sentence, words_of
from vpa.explain.published_amounts import (
    PublishedHolds,
    as_published,
    change_of,
    sentence_of,
    telling,
)
from vpa.explain.recommendation import AmountQuestion, MeasuredBasis, TargetState, explain_amount
from vpa.model.api.objects import Vpa, update_mode
from vpa.model.api.quantities import RESOURCES
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.updater.decide.decision import PodDecision, UpdateDecision

GROUP = "vpa.podscale.io"
_COLUMNS = ("Name", "Reference", "Mode", "CPU", "Memory", "Reason")
KIND = DecisionKind(
    GROUP,
    "v1alpha1",
    ApiResource("sizingdecisions", "sizingdecision", True, "SizingDecision", ("get", "list")),
    tuple((name, name, 0) for name in _COLUMNS),
)
_SWITCHED_OFF = ("ResourceNotControlled", "ContainerModeOff")
_ACTIONS = {"none": "stays as it is", "evict": "to be evicted", "resize": "to be resized"}
_MOST_PODS = 5  # whose admission is told in sentences: replicas mostly got the same


class KnownSizing(Struct, frozen=True):
    """One VPA and everything that was decided about it."""

    vpa: Vpa
    time: float
    target: TargetState
    recommender: str
    pods_matched: bool
    containers: tuple[str, ...]
    trace: RecommendationTrace | None
    measured: Mapping[tuple[str, str], MeasuredBasis]  # by container and resource
    pods: tuple[PodDecision, ...] = ()
    admitted: Mapping[str, AdmissionReasons] = {}  # by pod: what the webhook wrote on it
    standing: PublishedHolds = PublishedHolds()
    # By container and resource, of a pod as it is now.
    requests: Mapping[tuple[str, str], Quantity] = {}
    usage_problem: str = ""  # why no usage comes at present

    @property
    def metadata(self) -> dict[str, str]:
        meta = self.vpa.metadata
        return decision_metadata(meta.name, meta.namespace, self.time)


def body(known: KnownSizing) -> dict[str, Any]:
    """Return the object: one explanation per container and resource, one per pod."""
    explained = _explained(known)
    amounts = [
        {"container": container, "resource": resource, **_told_amount(found)}
        for (container, resource), found in explained.items()
        if known.containers
    ]
    first = _first(known, explained)
    vpa = known.vpa
    ref = vpa.spec.target_ref
    shown: dict[str, Any] = {"updateMode": update_mode(vpa)}
    if ref is not None:
        shown["targetRef"] = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name}
    pods = [
        {
            "pod": each.pod,
            "time": rfc3339(each.time),
            **_told(explain_update(each.decision)),
            "admission": _admitted(known.admitted.get(each.pod)),
        }
        for each in known.pods
    ]
    pods += [
        {"pod": pod, **_told(_idle(vpa)), "admission": _admitted(told)}
        for pod, told in sorted(known.admitted.items())
        if pod not in {each.pod for each in known.pods}
    ]
    sentences = _sentences(known, amounts, pods) or first.sentences()[:1]
    missing = _usage_missing(known)
    told = {
        "time": rfc3339(known.time),
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
            }
            for each in telling(vpa)
        ]
        + missing,
        **_told_amount(first),
        **({"change": "Usage has to be read again."} if missing else {}),
        "why": f"UsageMissing: {missing[0]['message']}" if missing else sentences[0],
        "sentences": sentences,
        "recommendation": amounts,
        "pods": pods,
    }
    return KIND.object(known.metadata, shown, told)


def _usage_missing(known: KnownSizing) -> list[dict[str, str]]:
    if not known.usage_problem:
        return []
    message = f"the amounts stand as they are, since no usage is read: {known.usage_problem}"
    return [{"type": "UsageMissing", "status": "True", "reason": "NoUsage", "message": message}]


def explain(known: KnownSizing, container: str, resource: str) -> SizingExplanation:
    """Return why the target of one container is what it is: of what is published, if any is."""
    found = explain_amount(
        AmountQuestion(container, resource, "target"),
        known.vpa,
        target=known.target,
        recommender=known.recommender,
        pods_matched=known.pods_matched,
        trace=known.trace,
        measured=known.measured.get((container, resource), MeasuredBasis()),
    )
    return as_published(found, known.vpa, container, resource, known.standing)


def explain_update(decision: UpdateDecision) -> SizingExplanation:
    """Return why a pod is updated, or why not: the updater's own decision."""
    return explanation(decision.reasons, [decision.facts], {"action": decision.action})


def _idle(vpa: Vpa) -> SizingExplanation:
    # Pods that the updater said nothing about: it does not touch them, or runs elsewhere.
    mode = update_mode(vpa)
    reason = f"UpdateMode{mode}" if mode in ("Off", "Initial") else "NotDecidedHere"
    return SizingExplanation((reason,), {"mode": mode}, {"action": "none"})


def _admitted(told: AdmissionReasons | None) -> list[dict[str, Any]]:
    if told is None:
        return []
    return [
        {"container": container, "value": name, "vpa": told.vpa, **_told(explained)}
        for container, name, explained in told.explanations()
    ]


def _explained(known: KnownSizing) -> dict[tuple[str, str], SizingExplanation]:
    return {
        (container, resource): explain(known, container, resource)
        for container in known.containers or ("",)
        for resource in RESOURCES
    }


def _first(
    known: KnownSizing, explained: Mapping[tuple[str, str], SizingExplanation]
) -> SizingExplanation:
    # Of what is controlled and changes, if there is any: the rest explains nothing that is seen.
    def interest(place: tuple[str, str]) -> int:
        return _interest(known, *place, explained[place].first, explained[place].decision)

    first = explained[min(explained, key=interest)]
    if known.usage_problem:  # it stands in the way of every amount
        return structs.replace(first, reasons=("UsageMissing", *first.reasons))
    return first


def _interest(
    known: KnownSizing, container: str, resource: str, reason: str, decision: Mapping[str, Any]
) -> int:
    """Return how late an amount is told: what changes, what is controlled, what is neither."""
    if reason in _SWITCHED_OFF:
        return 2
    return 0 if _before(known, container, resource, decision.get("value")) else 1


def _before(known: KnownSizing, container: str, resource: str, value: object) -> str:
    """Return what pods have of a resource, for people; "" where it is what they will get."""
    present = known.requests.get((container, resource))
    if present is None or value is None:
        return ""
    before, after = readable(resource, str(present)), readable(resource, value)
    return before if before != after else ""


def _told(explained: SizingExplanation) -> dict[str, Any]:
    reasons = list(explained.reasons)
    return {
        "first_reason": reasons[0] if reasons else "",
        "also": reasons[1:],
        "facts": dict(explained.facts),
        "decision": dict(explained.decision),
        "change": words_of(reasons[0], explained.facts).change if reasons else "",
    }


def _told_amount(explained: SizingExplanation) -> dict[str, Any]:
    told = _told(explained)
    return {**told, "change": change_of(explained.facts, told["change"])}


def _sentences(
    known: KnownSizing, amounts: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]
) -> list[str]:
    order = sorted(
        amounts,
        key=lambda each: _interest(
            known, each["container"], each["resource"], each["first_reason"], each["decision"]
        ),
    )
    found = [_amount_sentence(known, each) for each in order]
    found += [
        f"pod {each['pod']}: {_ACTIONS[each['decision']['action']]}. "
        f"{sentence(each['first_reason'], each['facts'])}"
        for each in pods
    ]
    found += [
        f"pod {each['pod']}, {value['container']}: {value['value']} "
        f"{_admitted_value(value)}. {sentence(value['first_reason'], value['facts'])}"
        for each in pods[:_MOST_PODS]
        for value in each["admission"]
    ]
    return found


def _amount_sentence(known: KnownSizing, told: Mapping[str, Any]) -> str:
    container, resource, facts = told["container"], told["resource"], told["facts"]
    value, reason = told["decision"].get("value"), told["first_reason"]
    before = _before(known, container, resource, value)
    text = f"{resource} of {container}: {f'{before} → ' if before else ''}"
    text += readable(resource, value) or "nothing"
    why = because(resource, reason, facts)
    stands = sentence_of(facts, readable(resource, facts.get("estimate")))
    if stands:
        return (
            f"{text}. {stands} {why[0].upper() + why[1:] + '.' if why else sentence(reason, facts)}"
        )
    if why:
        return f"{text}, because {why}{history(facts)}."
    return f"{text}. {sentence(reason, facts)}"


def _admitted_value(told: Mapping[str, Any]) -> str:
    # Its ``value`` names what was set: "memory request", say.
    resource = "memory" if "memory" in str(told["value"]) else ""
    return readable(resource, told["decision"].get("value")) or "left as it was"


def cells(known: KnownSizing) -> list[str]:
    ref = known.vpa.spec.target_ref
    container = known.containers[0] if known.containers else ""
    explained = _explained(known)
    return [
        known.vpa.metadata.name,
        f"{ref.kind}/{ref.name}" if ref is not None else "<none>",
        update_mode(known.vpa),
        *(
            readable(resource, explained[container, resource].decision.get("value")) or "<none>"
            for resource in RESOURCES
        ),
        _first(known, explained).first,
    ]
