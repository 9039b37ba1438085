"""What a metrics answer is worth: too old, of no use, or a number.

Texts follow the metrics clients of ``podautoscaler/metrics``, Kubernetes 1.37.
"""

from collections.abc import Sequence

from hpa.decide.numbers import INT64_MAX, INT64_MIN
from hpa.decide.observation import MetricAnswer, MetricFailure
from podscale.core import metrics

BAD_SELECTOR = "BadSelector"  # reason: the selector of the spec is none

# Failures that a metrics API's client says in upstream's words already.
_WHOLE = (
    "unable to fetch metrics from ",
    "no metrics returned from ",
)


def checked(
    answer: MetricAnswer | None, max_age_s: float | None, now: float
) -> MetricAnswer | None:
    """Return ``answer``, or the failure that one without series or with old samples is.

    Samples of pods are judged later, when it is known which of them count.
    """
    if isinstance(answer, metrics.ExternalSamples):
        if not answer.series:
            return metrics.NoData("NoSeries", "")
        if answer.left_out:
            # The rest is a smaller sum, and would shrink because of what is no number.
            return metrics.NoData("NotANumber", f"{answer.left_out} of its series are no numbers")
        samples = [each.sample for each in answer.series]
    elif isinstance(answer, metrics.ObjectSample):
        samples = [answer.sample]
    else:
        return answer
    if max_age_s is None:
        return answer
    return too_old(samples, answer.asked_s, max_age_s, now) or answer


def too_old(
    samples: Sequence[metrics.Sample], asked_s: float, max_age_s: float, now: float
) -> metrics.Stale | None:
    """Return the failure that the oldest of ``samples`` is, or None."""
    age = now - min(asked_s if each.time_s is None else each.time_s for each in samples)
    if age <= max_age_s:
        return None
    text = f"the sample is {age:.0f} s old and the limit is {max_age_s:.0f} s"
    return metrics.Stale("Stale", text, age_s=age)


def failure_of(answer: MetricAnswer | None) -> MetricFailure:
    """Return the failure that ``answer`` is to a metric that needed another kind of answer."""
    if answer is None or isinstance(
        answer, metrics.PodSamples | metrics.ObjectSample | metrics.ExternalSamples
    ):
        return metrics.NoData("NotAsked", "the metric was not asked for")
    return answer


def is_bad_selector(answer: MetricAnswer | None) -> bool:
    """Return whether the selector of the metric cannot be parsed: no API was asked."""
    return isinstance(answer, metrics.Refused) and answer.reason == BAD_SELECTOR


def text_of(failure: MetricFailure, api: str) -> str:
    """Return upstream's words; ``api`` is resource, custom or external.

    ``NoData`` without a message is an answer without items.
    """
    if is_bad_selector(failure) or failure.message.startswith(_WHOLE):
        return failure.message
    if isinstance(failure, metrics.NoData) and not failure.message:
        return f"no metrics returned from {api} metrics API"
    return f"unable to fetch metrics from {api} metrics API: {failure.message}"


def summed(values: Sequence[int]) -> int:
    """Return the sum; 2^63 - 1 as soon as it passes that, whatever comes after.

    Upstream turns a genuinely negative sum into 2^63 - 1 under AverageValue and asks for
    2147483647 replicas; here it stays what it is.
    """
    total = 0
    for value in values:
        total += value
        if total > INT64_MAX:
            return INT64_MAX
    return max(total, INT64_MIN)
