"""The status of a MetricRule: what became of it, in the doctor's words. Pure."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from adapter.discovery.registry import NOT_LISTED_YET, MetricRegistry, RuleState, is_namespaced
from adapter.doctor.findings import problem_of_state
from adapter.metric_rules.objects import RuleRefusal, StoredMetricRule
from podscale.core.json_decoder import JsonDecoder
from podscale.core.metrics import Unavailable

MOST_NAMES = 100  # of the metrics that are listed by name
ACCEPTED, SERVING = "Accepted", "Serving"


class RuleCondition(Struct, frozen=True, rename="camel"):
    """One of ``status.conditions``, as of Kubernetes' own."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""


class MetricRuleStatus(Struct, frozen=True, rename="camel", omit_defaults=False):
    """``status``."""

    observed_generation: int = 0
    conditions: tuple[RuleCondition, ...] = ()
    series_found: int = 0
    metrics_exposed: int = 0  # names
    metrics: tuple[str, ...] = ()  # the first of them
    last_error: str = ""
    source: str = ""  # that answers it; "": which one depends on the namespace that asks


_STATUS = JsonDecoder(MetricRuleStatus)


def written_status(stored: StoredMetricRule) -> MetricRuleStatus:
    """Return the status of an object as it stands; an empty one where it does not read."""
    try:
        return _STATUS.decode(stored.status)
    except msgspec.DecodeError:
        return MetricRuleStatus()


def is_refused(status: MetricRuleStatus) -> bool:
    """Return whether an adapter has said that it does not work with an object."""
    return any(each.type == ACCEPTED and each.status == "False" for each in status.conditions)


def status_of(
    stored: StoredMetricRule,
    found: RuleState | RuleRefusal,
    lists: MetricRegistry,
    now: str,
) -> MetricRuleStatus:
    """Return the status that an object should have; ``lists`` are the metrics that it stands
    among, ``now`` is RFC 3339.
    """
    before = {each.type: each for each in written_status(stored).conditions}
    generation = stored.metadata.generation

    def condition(type: str, status: str, reason: str, message: str = "") -> RuleCondition:  # noqa: A002
        was = before.get(type)
        since = was.last_transition_time if was is not None and was.status == status else now
        return RuleCondition(type, status, reason, message, generation, since)

    if isinstance(found, RuleRefusal):
        conditions = (
            condition(ACCEPTED, "False", found.reason, found.message),
            condition(SERVING, "False", "NotAccepted", "the rule is not accepted"),
        )
        error = f"{found.reason}: {found.message}"
        return MetricRuleStatus(generation, conditions, last_error=error)
    accepted = condition(ACCEPTED, "True", "Accepted")
    names = _names(found)
    problem = problem_of_state(found)
    if found.listing is None and problem is None:
        serving = condition(SERVING, "Unknown", NOT_LISTED_YET, "its first list is under way")
    elif problem is None:
        serving = condition(SERVING, "True", "Serving", _shadowed(stored, found, lists))
    else:
        # The last good list serves on while Prometheus cannot be asked.
        status = "True" if found.failure is not None and names else "False"
        serving = condition(SERVING, status, problem.stage.value, problem.message)
    return MetricRuleStatus(
        generation,
        (accepted, serving),
        found.series,
        len(names),
        tuple(names[:MOST_NAMES]),
        "" if problem is None else problem.text,
        found.rule.source,
    )


def _names(state: RuleState) -> list[str]:
    return sorted({metric for _, metric in _served(state)})


def _served(state: RuleState) -> Iterator[tuple[str, str]]:
    """Yield what a rule has to offer where it is: of a namespace's own, what lies in it."""
    for resource, metric in () if state.listing is None else state.listing.exposed:
        if not state.rule.namespace or is_namespaced(resource):
            yield resource, metric


def _shadowed(stored: StoredMetricRule, state: RuleState, lists: MetricRegistry) -> str:
    """Return which of its metrics another rule answers, or holds back, by name."""
    others: dict[str, str] = {}
    for resource, metric in _served(state):
        source = lists.find(resource, metric, stored.metadata.namespace)
        if isinstance(source, Unavailable):
            others.setdefault(metric, f"waits: {source.message}")
        elif source is not None and source.rule.id != state.rule.id:
            others.setdefault(metric, f"is answered by {source.rule.id}")
    if not others:
        return ""
    told = [f"{metric} {what}" for metric, what in sorted(others.items())[:3]]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"{'; '.join(told)}{more}: of equal names the last by the object's name counts"
