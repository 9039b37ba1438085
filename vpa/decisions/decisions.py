"""``vpa.podscale.io``: sizing decisions as objects, explained when they are asked for. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from podscale.core.quantity import Quantity
from podscale.core.times.rfc3339 import rfc3339
from podscale.explain.decision_api import DecisionKind, decision_metadata
from podscale.explain.explanation import Explanation, one_sentence
from podscale.kube.objects.vpa import Vpa, update_mode
from podscale.serving.apis.api import ApiResource
from vpa.explain import recommendation
from vpa.explain.admission import AdmissionReasons
from vpa.explain.words import WORDS, because, explanation, history, readable
from vpa.model.amounts import RESOURCES
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.model.samples.membership import VpaKey
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
_ACTIONS = {"evict": "is to be evicted", "resize": "is to be resized"}
# Why a pod is left alone where it does not wait for anything.
_SETTLED = ("NothingToChange", "WithinUpdateThreshold", "NoRecommendation", "NotDecidedHere",
            "UpdateModeOff", "UpdateModeInitial", "OlderVpaWins")  # fmt: skip
_MOST_PODS = 5  # whose admission is told in sentences: replicas mostly got the same


class KnownSizing(Struct, frozen=True):
    """One VPA and everything that was decided about it."""

    vpa: Vpa
    time: float
    target: recommendation.TargetState
    recommender: str
    pods_matched: bool
    containers: tuple[str, ...]
    trace: RecommendationTrace | None
    measured: Mapping[tuple[str, str], recommendation.MeasuredBasis]  # by container and resource
    pods: tuple[PodDecision, ...] = ()
    admitted: Mapping[str, AdmissionReasons] = {}  # by pod: what the webhook wrote on it
    standing: recommendation.PublishedHolds = recommendation.PublishedHolds()
    # By container and resource, of a pod as it is now.
    requests: Mapping[tuple[str, str], Quantity] = {}
    usage_problem: str = ""  # why no usage comes at present
    selector: str = ""  # of its pods; empty: not known

    @property
    def key(self) -> VpaKey:
        return VpaKey(self.vpa.metadata.namespace, self.vpa.metadata.name)

    @property
    def metadata(self) -> dict[str, str]:
        meta = self.vpa.metadata
        return decision_metadata(meta.name, meta.namespace, self.time)


def body(known: KnownSizing) -> dict[str, Any]:
    """Return the object: one explanation per container and resource, one per pod."""
    explained = _explained(known)
    pods = _pods(known)
    first = _overall(known, explained, pods)
    vpa = known.vpa
    ref = vpa.spec.target_ref
    shown: dict[str, Any] = {"updateMode": update_mode(vpa)}
    if ref is not None:
        shown["targetRef"] = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name}
    status = {
        "time": rfc3339(known.time),
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
            }
            for each in recommendation.telling(vpa)
        ]
        + _usage_missing(known),
        **_json(first),
        "why": first.why,
        "sentences": first.sentences,
        "recommendation": [
            {"container": container, "resource": resource, **_json(each)}
            for (container, resource), each in explained.items()
            if known.containers
        ],
        "pods": [
            {
                "pod": pod.name,
                **({} if pod.time is None else {"time": rfc3339(pod.time)}),
                **_json(pod.update),
                "admission": [
                    {"container": container, "value": name, "vpa": pod.vpa, **_json(each)}
                    for container, name, each in pod.admitted
                ],
            }
            for pod in pods
        ],
    }
    return KIND.object(known.metadata, shown, status)


def explain_vpa(known: KnownSizing) -> Explanation:
    """Return the amount that is told first, with the sentences of all amounts and pods."""
    return _overall(known, _explained(known), _pods(known))


def _overall(
    known: KnownSizing,
    explained: Mapping[tuple[str, str], Explanation],
    pods: Sequence["_SizedPod"],
) -> Explanation:
    first = _first(known, explained)
    of_amounts = _amount_sentences(known, explained) if known.containers else ()
    sentences = (*of_amounts, *_pod_sentences(pods)) or (first.why,)
    if known.usage_problem:
        return structs.replace(first, sentences=sentences, why=_usage_missing(known)[0]["message"])
    # A pod that is being changed, or what the others wait for; what is settled says nothing.
    open_ = [pod for pod in pods if pod.update.first_reason not in _SETTLED]
    told = sorted(open_, key=lambda pod: pod.update.decision["action"] == "none")[:1]
    if told and told[0].update.decision["action"] == "none":
        first = structs.replace(first, change=told[0].update.change)
    texts = (*sentences[:1], *map(_pod_sentence, told))
    why = one_sentence(each for text in texts for each in text.split(". "))
    return structs.replace(first, sentences=sentences, why=why)


def _json(explained: Explanation) -> dict[str, Any]:
    return {**explained.to_json(), "decision": dict(explained.decision)}


class _SizedPod(Struct, frozen=True):
    name: str
    time: float | None  # when the updater decided; None: it said nothing
    update: Explanation
    vpa: str  # that the webhook followed
    admitted: Sequence[tuple[str, str, Explanation]]  # container and the name of a value


def _pods(known: KnownSizing) -> list[_SizedPod]:
    decided = {each.pod: each for each in known.pods}
    pods = []
    for name in [*decided, *sorted(known.admitted.keys() - decided)]:
        update, admitted = decided.get(name), known.admitted.get(name)
        pods.append(
            _SizedPod(
                name,
                None if update is None else update.time,
                _idle(known.vpa) if update is None else explain_update(update.decision),
                "" if admitted is None else admitted.vpa,
                () if admitted is None else admitted.explanations(),
            )
        )
    return pods


def _usage_missing(known: KnownSizing) -> list[dict[str, str]]:
    if not known.usage_problem:
        return []
    message = f"Recommendations are frozen because usage cannot be read: {known.usage_problem}"
    return [{"type": "UsageMissing", "status": "True", "reason": "NoUsage", "message": message}]


def explain(known: KnownSizing, container: str, resource: str) -> Explanation:
    """Return why the target of one container is what it is: of what is published, if any is."""
    found = recommendation.explain_amount(
        recommendation.AmountQuestion(container, resource, "target"),
        known.vpa,
        target=known.target,
        recommender=known.recommender,
        pods_matched=known.pods_matched,
        trace=known.trace,
        measured=known.measured.get((container, resource), recommendation.MeasuredBasis()),
    )
    return recommendation.as_published(found, known.vpa, container, resource, known.standing)


def explain_update(decision: UpdateDecision) -> Explanation:
    """Return why a pod is updated, or why not: the updater's own decision."""
    return explanation(decision.reasons, [decision.facts], {"action": decision.action})


def _idle(vpa: Vpa) -> Explanation:
    # Pods that the updater said nothing about: it does not touch them, or runs elsewhere.
    mode = update_mode(vpa)
    reason = f"UpdateMode{mode}" if mode in ("Off", "Initial") else "NotDecidedHere"
    return explanation([reason], [{"mode": mode}], {"action": "none"})


def _explained(known: KnownSizing) -> dict[tuple[str, str], Explanation]:
    return {
        (container, resource): explain(known, container, resource)
        for container in known.containers or ("",)
        for resource in RESOURCES
    }


def _first(known: KnownSizing, explained: Mapping[tuple[str, str], Explanation]) -> Explanation:
    # Of what is controlled and changes, if there is any: the rest explains nothing that is seen.
    place = min(explained, key=lambda each: _interest(known, each, explained[each]))
    first = explained[place]
    if not known.usage_problem:
        return first
    words = WORDS["UsageMissing"]  # it stands in the way of every amount
    reasons = ("UsageMissing", *first.reasons)
    return structs.replace(first, reasons=reasons, why=words.means, change=words.change)


def _interest(known: KnownSizing, place: tuple[str, str], explained: Explanation) -> int:
    """Return how late an amount is told: what changes, what is controlled, what is neither."""
    if explained.first_reason in _SWITCHED_OFF:
        return 2
    return 0 if _before(known, *place, explained.decision.get("value")) else 1


def _before(known: KnownSizing, container: str, resource: str, value: object) -> str:
    """Return what pods have of a resource, for people; "" where it is what they will get."""
    present = known.requests.get((container, resource))
    if present is None or value is None:
        return ""
    before, after = readable(resource, str(present)), readable(resource, value)
    return before if before != after else ""


def _amount_sentences(
    known: KnownSizing, amounts: Mapping[tuple[str, str], Explanation]
) -> Iterator[str]:
    for place in sorted(amounts, key=lambda each: _interest(known, each, amounts[each])):
        (container, resource), explained = place, amounts[place]
        facts, value = explained.facts, explained.decision.get("value")
        before = _before(known, container, resource, value)
        text = f"{container} {resource}: {f'{before} → ' if before else ''}"
        is_off = explained.first_reason in _SWITCHED_OFF
        text += readable(resource, value) or ("not managed" if is_off else "none")
        why = because(resource, explained.first_reason, facts)
        why = why or f"{explained.why[:1].lower()}{explained.why[1:].removesuffix('.')}"
        stands = recommendation.sentence_of(facts, readable(resource, facts.get("estimate")))
        if stands:
            yield f"{text}. {stands} {why[:1].upper()}{why[1:]}."
        else:
            yield f"{text} ({why}{history(facts)})."


def _pod_sentences(pods: Sequence[_SizedPod]) -> Iterator[str]:
    yield from map(_pod_sentence, pods)
    for pod in pods[:_MOST_PODS]:
        for container, name, explained in pod.admitted:
            # Its name says what was set: "memory request", say.
            resource = "memory" if "memory" in name else ""
            value = readable(resource, explained.decision.get("value")) or "left as it was"
            yield f"pod {pod.name}, {container}: {name} {value}. {explained.why}"


def _pod_sentence(pod: _SizedPod) -> str:
    idle = "is unchanged" if pod.update.first_reason in _SETTLED else "waits"
    what = _ACTIONS.get(str(pod.update.decision["action"]), idle)
    return f"pod {pod.name} {what}: {pod.update.why[:1].lower()}{pod.update.why[1:]}"


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
        _first(known, explained).first_reason,
    ]
