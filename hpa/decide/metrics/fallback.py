"""What stands in for a metric that cannot be read, where the user wrote it down.

Beyond upstream. A fallback is a decision, not an error: it may raise freely and lowers
only where the object allows it.
"""

from bisect import bisect_left
from operator import itemgetter

from msgspec import structs

from hpa.decide.api.spec import Fallback, MetricSpec, Options
from hpa.decide.observation import GoodProposal, Past


def of(metric: MetricSpec, options: Options) -> Fallback | None:
    """Return the fallback of ``metric``; container metrics may be named container/resource."""
    if not options.fallbacks:
        return None
    if metric.container:
        found = _named(options, f"{metric.container}/{metric.name}")
        if found is not None:
            return found
    return _named(options, metric.name)


def _named(options: Options, name: str) -> Fallback | None:
    place = bisect_left(options.fallbacks, name, key=itemgetter(0))
    if place < len(options.fallbacks) and options.fallbacks[place][0] == name:
        return options.fallbacks[place][1]
    return None


def propose(
    fallback: Fallback, metric: MetricSpec, options: Options, past: Past, current: int, now: float
) -> int | None:
    """Return the number that stands in, or None where the fallback has run out."""
    match fallback.kind:
        case "hold":
            return current
        case "replicas":
            number = fallback.replicas
        case "last":
            key = key_of(metric)
            last = next((each for each in past.good if each.metric == key), None)
            if last is None or now - last.at > fallback.max_age_s:
                return None
            number = last.replicas
    return number if options.may_lower else max(number, current)


def remember(past: Past, metric: MetricSpec, replicas: int, now: float) -> Past:
    """Return ``past`` with the metric's newest good proposal."""
    key = key_of(metric)
    others = tuple(each for each in past.good if each.metric != key)
    return structs.replace(past, good=(*others, GoodProposal(key, replicas, now)))


def kept(past: Past, metrics: tuple[MetricSpec, ...]) -> Past:
    """Return ``past`` without the proposals of metrics that the spec has no longer: a selector
    that changes with every release would leave one more each time."""
    if len(past.good) <= len(metrics):
        return past
    keys = {key_of(metric) for metric in metrics}
    return structs.replace(past, good=tuple(each for each in past.good if each.metric in keys))


def key_of(metric: MetricSpec) -> str:
    """Return what tells the metrics of one HPA apart."""
    selector = "" if metric.selector is None else str(metric.selector)
    described = metric.described
    about = f"{described.kind}/{described.name}" if described else metric.container
    return f"{metric.type}:{about}:{metric.name}:{selector}"
