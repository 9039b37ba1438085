"""Failures of a source as the ``Status`` that a client of the metrics APIs gets.

A 404 means that there is no such metric or no sample for the object, never that
Prometheus failed. Texts name the class and the rule, and no PromQL: the reader may not
be allowed to see it.
"""

from adapter.backends import backend
from adapter.discovery.registry import NOT_LISTED_YET
from adapter.stages import Stage
from podscale.core.metrics import NO_BUDGET, Failure, NoData, NotFound, Refused, Stale, Unavailable
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.http.refusals import QUERY_TIMEOUT
from podscale.serving import status
from podscale.serving.status import Cause, Details, Status

# Of another package.
_PROVIDERS = PROVIDER_TIMEOUT, PROVIDER_FAILED = "ProviderTimeout", "ProviderFailed"

_FETCH = "unable to fetch metrics"
_SHOWS = "`podscale doctor --metric NAME --prometheus-url URL` shows why"
# Failures that are not Prometheus's, and name whose they are.
_OTHERS = (backend.REASON, *_PROVIDERS, NOT_LISTED_YET, NO_BUDGET, Stage.NO_SERIES)


def metric_not_found(
    resource: str, metric: str, name: str = "", failure: Failure | None = None
) -> Status:
    """Return 404 in upstream's words; the cause is the stage at which the metric was lost."""
    message = f"the server could not find the metric {metric} for {resource}"
    causes = [] if failure is None else [Cause(failure.reason, failure.message)]
    return status.not_found(f"{message} {name}" if name else message, causes=causes)


def source_failed(failure: Failure) -> Status:
    """Return the answer to a question that the source could not or would not answer."""
    cause = Cause(reason=failure.reason, message=_for_everybody(failure))
    if isinstance(failure, Unavailable):
        if failure.is_timeout:
            said = f"Prometheus did not answer in time{_since(failure)}"
            said = cause.message if failure.reason in (*_OTHERS, QUERY_TIMEOUT) else said
            return status.timeout(f"{_FETCH}: {said}", causes=(cause,))
        retry_s = round(failure.retry_after_s) if failure.retry_after_s else 0
        return status.unavailable(
            f"{_FETCH}: {cause.message}", causes=(cause,), retry_after_s=retry_s
        )
    return internal(_FETCH, cause)


def internal(message: str, cause: Cause | None = None) -> Status:
    """Return 500 in upstream's form; upstream's cause repeats the message, ours says more."""
    plain = status.internal_error(message)
    if cause is None:
        return plain
    return Status(
        message=plain.message,
        reason="InternalError",
        details=Details(causes=(Cause(message=message), cause)),
        code=500,
    )


def is_absence(failure: Failure) -> bool:
    """Return whether the source worked and has nothing to serve: a 404."""
    return isinstance(failure, NotFound | NoData | Stale)


def is_unknown_metric(failure: Failure) -> bool:
    """Return whether no rule serves the metric for this kind of object."""
    return isinstance(failure, NotFound)


def _for_everybody(failure: Failure) -> str:
    if failure.reason == QUERY_TIMEOUT:
        return f"Prometheus gave up on the rule's query; {_SHOWS}"
    if isinstance(failure, Unavailable) and failure.reason not in _OTHERS:
        said = f"Prometheus cannot be read now; retrying{_since(failure)}"
        return f"{failure.rule} is not listed: {said}" if failure.rule else said
    if isinstance(failure, Refused):
        return f"the rule's query is refused; {_SHOWS}"
    return failure.message


def _since(failure: Unavailable) -> str:
    return "" if failure.since_s is None else f" (since {rfc3339(failure.since_s)})"
