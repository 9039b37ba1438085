"""The kind of failure of a metric that could not be used, as one reason."""

from hpa.decide.metrics.answers import BAD_SELECTOR
from hpa.decide.metrics.measuring import Invalid
from hpa.decide.observation import MetricFailure
from hpa.decide.steps import Measured
from hpa.explain.reading import ReadTrace
from podscale.core.metrics import NoData, NotFound, PodSamples, Refused, Stale

_POD_TYPES = ("Resource", "ContainerResource", "Pods")
# Reasons of providers that say more than the class of the failure.
_BY_REASON = {
    "NotANumber": "MetricNotANumber",
    "MetricNotANumber": "MetricNotANumber",
    "Ambiguous": "MetricAmbiguous",
    "MetricAmbiguous": "MetricAmbiguous",
    BAD_SELECTOR: "MetricNotFound",  # the spec names no series; nobody refused anything
    # The rule is wrong: who asks is refused nothing, and no permission would help.
    **dict.fromkeys(
        ("QueryInvalid", "QueryFailed", "NotNamespaced", "ResultIsHistogram", "ResultIsMatrix",
         "ResultIsScalar", "ResultIsString"),
        "MetricQueryInvalid",
    ),
}  # fmt: skip


def kinds_of(told: ReadTrace, measured: Measured, result: Invalid) -> list[str]:
    """Return the reasons of one invalid metric, the most telling first."""
    own = _own(told, measured, result)
    needs_pods = told.spec(measured).type in _POD_TYPES or result.cause == "NoPods"
    if needs_pods and not len(told.pods):
        return list(dict.fromkeys(["NoPodsMatched", own]))
    return [own]


def _own(told: ReadTrace, measured: Measured, result: Invalid) -> str:
    spec = told.spec(measured)
    # Before missing samples: nobody can report for a container that is in no pod.
    if spec.type == "ContainerResource" and len(told.pods) and _lacks(told, spec.container):
        return "ContainerNotFound"
    if result.failure is not None:
        return of_failure(result.failure)
    match result.cause:
        case "Request":
            return "RequestMissing" if result.problem is None else result.problem.reason
        case "NoReadySamples":
            return _without_samples(result)
        case "NoMatch":
            return _without_match(told, measured)
        case "NoPods":
            return "NoPodsMatched"
    # A source type nobody knows, or one without a target: the spec names no metric.
    return "MetricNotFound"


def of_failure(failure: MetricFailure) -> str:
    """Return the reason of a provider's failure."""
    if failure.reason in _BY_REASON:
        return _BY_REASON[failure.reason]
    match failure:
        case NotFound():
            return "MetricNotFound"
        case NoData():
            return "MetricNoData"
        case Stale():
            return "MetricStale"
        case Refused():
            return "MetricRefused"
    return "MetricUnavailable"


def _lacks(told: ReadTrace, container: str) -> bool:
    return not any(
        each.name == container for template in told.pods.templates for each in template.containers
    )


def _without_samples(result: Invalid) -> str:
    groups = result.groups
    if groups is not None and groups.missing and not groups.unready:
        return "MetricNoData"
    return "AllPodsUnready"


def _without_match(told: ReadTrace, measured: Measured) -> str:
    answer = told.observation.answers[measured.index]
    known = set(told.pods.names)
    if isinstance(answer, PodSamples) and not known & answer.pods.keys():
        return "MetricNoData"
    return "RequestMissing"  # the requests of the pods add up to nothing
