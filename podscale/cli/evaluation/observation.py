"""One decision from two files: a hand-written HPA, and what would have been observed. Pure.

The observation is YAML with Kubernetes' own words; amounts are quantities, times are ages
(``10m``). Metrics stand in the order of ``spec.metrics``:

    scale: {replicas: 3, statusReplicas: 3, selector: app=web}
    pods: [{name: web-0, requests: {app: {cpu: 100m}}}]
    metrics: [{pods: {web-0: 250m}}, {value: "7"}, {values: ["40"]}, {error: NoData}]
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from hpa import decisions
from hpa.cluster.targets import NotConvertible, converted
from hpa.decide.api.reading import ConversionError, read, to_v2
from hpa.decide.api.spec import MetricSpec
from hpa.decide.observation import (
    MetricAnswer,
    MetricFailure,
    Observation,
    Past,
    Recommendation,
    Scale,
    ScaleEvent,
    ScaleUnreadable,
    UnreadableKind,
)
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import RELEASES, Gates, Settings
from hpa.explain.explanation import first_reason
from podscale.cli.evaluation.manifest import WrittenError, place, problems, unknown, unknown_in
from podscale.cli.evaluation.manifest import path_to as steps_to
from podscale.cli.evaluation.manifest import plain as plain_of
from podscale.core import quantity
from podscale.core.metrics import (
    ExternalSample,
    ExternalSamples,
    NoData,
    NotFound,
    ObjectSample,
    PodSamples,
    Refused,
    Sample,
    Stale,
    Unavailable,
)
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.times.duration import DurationError, parse_go
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

Amount = str | int | float
_OLD_AGE = "1h"
_EVENT = {"change": 0, "age": "0s"}
# What can be read in the place of what has to be there.
_SOUND: Mapping[str, Any] = {
    **_EVENT, "scale": {}, "replicas": 0, "metrics": {"error": "NoData"}, "scaleUps": _EVENT,
    "scaleDowns": _EVENT, "recommendations": {"replicas": 0, "age": "0s"},
}  # fmt: skip
_REMOVED = {"autoscaling/v2beta1": "1.25", "autoscaling/v2beta2": "1.26"}


T = TypeVar("T")


class EvaluationError(WrittenError):
    """A file cannot be read; the text names the field."""


class WrittenScale(Struct, frozen=True, rename="camel"):
    """The scale subresource; ``error`` instead of numbers where it cannot be read."""

    replicas: int = 0
    status_replicas: int | None = None
    selector: str = ""
    error: str = ""
    error_kind: UnreadableKind = "Other"


class WrittenPod(Struct, frozen=True, rename="camel"):
    """One pod; by default running, ready and an hour old."""

    name: str
    phase: Literal["Unknown", "Pending", "Running", "Succeeded", "Failed"] = "Running"
    ready: bool | None = True  # null: no Ready condition
    started: str = _OLD_AGE  # age
    ready_changed: str = _OLD_AGE  # age
    deleted: bool = False
    requests: dict[str, dict[str, Amount]] = {}  # container → resource → quantity
    owner: str = ""  # Kind/name; "": the target


class WrittenMetric(Struct, frozen=True, rename="camel"):
    """The answer to one metric: exactly one of pods, value, values, error."""

    pods: dict[str, Amount] | None = None
    value: Amount | None = None
    values: list[Amount] | None = None
    error: Literal["NotFound", "NoData", "Stale", "Unavailable", "Refused"] | None = None
    message: str = ""
    age: str = "0s"
    window: str = "1m"


class WrittenRecommendation(Struct, frozen=True):
    replicas: int
    age: str


class WrittenEvent(Struct, frozen=True):
    change: int
    age: str


class WrittenHpa(Struct, frozen=True, rename="camel"):
    scale: WrittenScale
    pods: list[WrittenPod] = []
    metrics: list[WrittenMetric] = []
    recommendations: list[WrittenRecommendation] | None = None
    scale_ups: list[WrittenEvent] = []
    scale_downs: list[WrittenEvent] = []
    rivals: list[str] = []
    same_target: list[str] = []


def decide_files(
    hpa_text: str, observation_text: str, *, release: str, now: float
) -> dict[str, Any]:
    """Return the decision as the API would serve it; raises ``EvaluationError``."""
    settings = settings_for(release)
    with placing(hpa_text):
        autoscaler = written_hpa(plain_hpa(hpa_text))
    with placing(observation_text):
        written = _plain(observation_text, "the observation")
        found: list[str] = []
        while True:
            try:
                decided = _decided(autoscaler, _observation(written), settings, now)
                break
            except EvaluationError as error:
                found.append(str(error).removeprefix("the observation: "))
                if found[-1] in found[:-1] or not _set_right(written, found[-1]):
                    break
        if found:
            raise EvaluationError(f"the observation: {'; '.join(dict.fromkeys(found))}")
        return decided


def _set_right(written: Any, message: str) -> bool:
    # Put what can be read in the place of what is wrong, so that what else is wrong is found.
    steps = steps_to(message)
    try:
        for step in steps[:-1]:
            written = written[int(step) if isinstance(written, list) else step]
        if isinstance(written, list):
            sound = {"name": message} if steps[-2] == "pods" else _SOUND[steps[-2]]
            written[int(steps[-1])] = sound
        elif steps[-1] in _SOUND:
            written[steps[-1]] = _SOUND[steps[-1]]
        else:
            del written[steps[-1]]
    except (LookupError, TypeError, ValueError):
        return False
    return True


@contextmanager
def placing(text: str) -> Iterator[None]:
    """Give an ``EvaluationError`` the place in ``text`` of the field that it names."""
    try:
        yield
    except EvaluationError as error:
        if not error.line:
            error.line, error.column = place(text, str(error).partition(": ")[2])
        raise


def _decided(
    autoscaler: Autoscaler, written: WrittenHpa, settings: Settings, now: float
) -> dict[str, Any]:
    if (wrong := min(written.scale.replicas, written.scale.status_replicas or 0)) < 0:
        raise EvaluationError(f"the observation: scale: {wrong} replicas")
    hpa = read(autoscaler)
    observation = Observation(
        hpa,
        _scale(written.scale),
        _pods(written.pods, f"{hpa.target.kind}/{hpa.target.name}", now),
        _answers(hpa.metrics, written.metrics, now),
        tuple(written.rivals),
        tuple(written.same_target),
    )
    decision = decide(observation, _past(written, now), settings, now)
    trace = decision.trace
    return decisions.body(
        decisions.KnownDecisions(
            hpa.namespace or "default", hpa.name, trace, first_reason(trace), now
        )
    )


def settings_for(release: str) -> Settings:
    """Return the settings of one release with its defaults."""
    if release not in RELEASES:
        raise EvaluationError(f"release {release} is none of {', '.join(RELEASES)}")
    return Settings(release=RELEASES[release], gates=Gates.of(RELEASES[release]))


def plain_hpa(text: str) -> dict[str, Any]:
    """Return the one object of ``text`` as plain data; raises ``EvaluationError``."""
    return _converted(_plain(text, "the HPA") or {}, dict[str, Any], "the HPA")


def written_hpa(plain: dict[str, Any]) -> Autoscaler:
    """Return the HPA that ``plain`` is; raises ``EvaluationError`` with every finding.

    No API server has seen it: any served version may come.
    """
    kind, version = plain.get("kind"), plain.get("apiVersion")
    if kind is None and version is None:
        raise EvaluationError(
            "the HPA: no HPA is in it (it has no kind); are the two files swapped?"
        )
    if kind not in (None, "HorizontalPodAutoscaler", "PodAutoscaler"):
        raise EvaluationError(f"the HPA: this is a {kind}, and a HorizontalPodAutoscaler is wanted")
    if version in _REMOVED:
        raise EvaluationError(
            f"the HPA: {version} was removed with Kubernetes {_REMOVED[version]}: "
            "write autoscaling/v2"
        )
    if version != "autoscaling/v1" and (keys := unknown(plain)):
        raise EvaluationError(_unknown_fields("the HPA", keys))
    try:
        written = to_v2(plain)
    except ConversionError as error:
        raise EvaluationError(f"the HPA: {error}") from error
    if found := problems(written):
        raise EvaluationError("the HPA: " + "; ".join(found))
    return written


def _observation(plain: Any) -> WrittenHpa:
    if plain is None:
        raise EvaluationError(
            "the observation: nothing is in it; scale, pods and metrics are wanted"
        )
    if isinstance(plain, dict) and "kind" in plain:
        raise EvaluationError(
            f"the observation: this is a {plain['kind']}, and scale, pods and metrics are wanted"
        )
    if keys := unknown_in(plain, WrittenHpa):
        raise EvaluationError(f"the observation: unknown field {keys[0]}")
    return _converted(plain, WrittenHpa, "the observation")


def _unknown_fields(what: str, keys: Sequence[str]) -> str:
    return f"{what}: " + "; ".join(f"unknown field {each}" for each in keys)


def _plain(text: str, what: str) -> Any:
    try:
        return plain_of(text)
    except WrittenError as error:
        raise EvaluationError(f"{what}: {error}", error.line, error.column) from error


def _converted(plain: Any, type_: type[T], what: str) -> T:
    try:
        return msgspec.convert(plain, type_)
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{what}: {error}") from error


def _scale(written: WrittenScale) -> Scale | ScaleUnreadable:
    if written.error:
        return ScaleUnreadable(written.error, "get", written.error_kind)
    status = written.replicas if written.status_replicas is None else written.status_replicas
    try:
        return Scale(written.replicas, status, converted(written.selector))
    except NotConvertible as error:
        return ScaleUnreadable(str(error), "get", "Selector")


def _pods(written: list[WrittenPod], target: str, now: float) -> Pods:
    pods = sorted(written, key=lambda pod: pod.name)
    for one, other in itertools.pairwise(pods):
        if one.name == other.name:
            raise EvaluationError(f"the observation: pods: {one.name} is there twice")
    at = {pod.name: f"pods[{index}]" for index, pod in enumerate(written)}
    owners = tuple(dict.fromkeys(pod.owner or target for pod in pods))
    ready = {True: PodReadiness.TRUE, False: PodReadiness.FALSE, None: PodReadiness.ABSENT}
    return Pods(
        names=tuple(pod.name for pod in pods),
        phase=bytes(PodPhase[pod.phase.upper()] for pod in pods),
        ready=bytes(ready[pod.ready] for pod in pods),
        deleted=bytes(pod.deleted for pod in pods),
        started=tuple(now - _age(pod.started, f"{at[pod.name]}.started") for pod in pods),
        ready_since=tuple(
            now - _age(pod.ready_changed, f"{at[pod.name]}.readyChanged") for pod in pods
        ),
        template=tuple(range(len(pods))),
        templates=tuple(_template(pod, at[pod.name]) for pod in pods),
        owner=tuple(owners.index(pod.owner or target) for pod in pods),
        owners=owners,
    )


def _template(pod: WrittenPod, field: str) -> WirePodTemplate:
    requests = (
        (name, {
            resource: _milli(amount, f"{field}.requests.{name}.{resource}")
            for resource, amount in amounts.items()
        })
        for name, amounts in pod.requests.items()
    )  # fmt: skip
    return WirePodTemplate(tuple(TemplateContainer(*each) for each in requests))


# Which word of the observation answers which type of spec.metrics.
_WORD = {
    "Resource": "pods", "ContainerResource": "pods", "Pods": "pods",
    "Object": "value", "External": "values",
}  # fmt: skip


def _answers(
    specs: Sequence[MetricSpec], written: Sequence[WrittenMetric], now: float
) -> tuple[MetricAnswer, ...]:
    """Return an answer for each metric; raises ``EvaluationError`` for those of other metrics."""
    if not written:  # of a paused HPA, say, where nobody looks at them
        return tuple(NoData("NoData", "the observation does not tell of it") for _ in specs)
    if len(written) != len(specs):
        raise EvaluationError(
            f"the observation: metrics: {len(written)} metrics given but spec.metrics has "
            f"{len(specs)}; give one per metric, in the same order"
        )
    for index, (spec, each) in enumerate(zip(specs, written, strict=True)):
        wanted = _WORD.get(spec.type)
        given = [word for word in ("pods", "value", "values", "error") if getattr(each, word)]
        if wanted is not None and given and given[0] not in (wanted, "error"):
            raise EvaluationError(
                f"the observation: metrics[{index}]: {spec.name} is of type {spec.type} and is "
                f"answered by {wanted} (or error), not by {given[0]}"
            )
    return tuple(_answer(each, f"metrics[{index}]", now) for index, each in enumerate(written))


_FAILURES: Mapping[str, Callable[[str, str], MetricFailure]] = {
    failure.__name__: failure for failure in (NotFound, NoData, Stale, Unavailable, Refused)
}


def _answer(written: WrittenMetric, field: str, now: float) -> MetricAnswer:
    at = now - _age(written.age, f"{field}.age")
    window_s = _age(written.window, f"{field}.window")
    if written.error is not None:
        return _FAILURES[written.error](written.error, written.message)
    if written.pods is not None:
        samples = {
            pod: Sample(_milli(amount, f"{field}.pods.{pod}"), at, window_s)
            for pod, amount in written.pods.items()
        }
        return PodSamples(samples, now)
    if written.value is not None:
        return ObjectSample(Sample(_milli(written.value, f"{field}.value"), at), now)
    if written.values is not None:
        series = [
            ExternalSample({}, Sample(_milli(amount, f"{field}.values[{index}]"), at))
            for index, amount in enumerate(written.values)
        ]
        return ExternalSamples(series, now)
    raise EvaluationError(f"the observation: {field}: needs pods, value, values or error")


def _past(written: WrittenHpa, now: float) -> Past:
    recommendations = written.recommendations
    return Past(
        None
        if recommendations is None
        else tuple(
            Recommendation(e.replicas, now - _age(e.age, f"recommendations[{index}].age"))
            for index, e in enumerate(recommendations)
        ),
        _events(written.scale_ups, "scaleUps", now),
        _events(written.scale_downs, "scaleDowns", now),
    )


def _events(written: list[WrittenEvent], field: str, now: float) -> tuple[ScaleEvent, ...]:
    return tuple(
        ScaleEvent(e.change, now - _age(e.age, f"{field}[{index}].age"))
        for index, e in enumerate(written)
    )


def _age(text: str, field: str) -> float:
    """Return seconds; raises ``EvaluationError`` for what is no age, or lies ahead."""
    try:
        age_s = parse_go(text)
    except DurationError as error:
        raise EvaluationError(f"the observation: {field}: {error.advice}") from error
    if age_s < 0:
        raise EvaluationError(f"the observation: {field}: {text} lies ahead")
    return age_s


def _milli(amount: Amount, field: str) -> int:
    try:
        return quantity.from_wire(amount).milli_int64
    except quantity.QuantityError as error:
        raise EvaluationError(f"the observation: {field}: {error}") from None
