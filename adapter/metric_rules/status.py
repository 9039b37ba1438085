"""The status of a MetricRule: what became of it, in the doctor's words, and who writes it: the
Lease holder, where something changed."""

import asyncio
import time
from collections.abc import Callable, Iterator

import msgspec
import structlog
from msgspec import Struct

from adapter.discovery.registry import NOT_LISTED_YET, MetricRegistry, RuleState, is_namespaced
from adapter.doctor.evidence import problem_of_state
from adapter.metric_rules.objects import (
    CLUSTER_METRIC_RULES,
    METRIC_RULES,
    RuleRefusal,
    StoredMetricRule,
)
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.rules.ruleset import Rule
from podscale.core.json_decoder import JsonDecoder
from podscale.core.metrics import Unavailable
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import ApiError, Forbidden, KubeError, WriteConflict
from podscale.kube.client.wire import decode

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
    names = sorted({metric for _, metric in _served(found)})
    problem = problem_of_state(found)
    left_out = "" if found.listing is None else found.listing.left_out
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
        left_out if problem is None else problem.text,
        found.rule.source,
    )


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


log = structlog.get_logger(__name__)

_PAUSE_S = 1.0  # what changes within it is written together
_AFTER_FAILURE_S = 30.0
# Answers that speak of one object: it is gone, not valid, or (500) too large for etcd.
_OF_ONE_OBJECT = (400, 404, 413, 422, 500)


class RuleStatusWriter:
    """Looks at the rules that were listed or replaced, and writes what is new of them."""

    def __init__(
        self,
        api: Api,
        rules: WatchedMetricRules,
        state: Callable[[Rule], RuleState | None],
        lists: Callable[[str], MetricRegistry],
    ) -> None:
        """``state`` returns what is known of a rule, ``lists`` the metrics of a section."""
        self._api = api
        self._rules = rules
        self._state = state
        self._lists = lists
        self._changed: dict[str, None] = {}  # namespaces; "": ClusterMetricRules
        self._is_told = False  # that we may not write

    def note(self, namespace: str) -> None:
        """Look at the objects of a namespace again, or ("") at ClusterMetricRules."""
        self._changed[namespace] = None

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Write for ever, while ``may_write``."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            changed = {each: None for each in self._changed if each in self._rules.namespaces}
            self._changed = {}
            for namespace in changed:
                await asyncio.sleep(0)
                if not may_write():
                    self._changed |= changed  # whoever leads next knows nothing of ours
                    break
                if not await self._write(namespace):
                    self._changed |= changed
                    await asyncio.sleep(_AFTER_FAILURE_S)
                    break

    async def _write(self, namespace: str) -> bool:
        """Write what is new in a namespace; return whether all of it could be."""
        for stored, found in list(self._rules.objects(namespace)):
            known = found if isinstance(found, RuleRefusal) else self._state(found)
            if known is None:
                self.note(namespace)  # it is being taken in
                continue
            section = found.section if isinstance(found, Rule) else "rules"
            now = rfc3339(time.time())
            status = status_of(stored, known, self._lists(section), now)
            if status != written_status(stored) and not await self._patch(stored, status):
                return False
        return True

    async def _patch(self, stored: StoredMetricRule, status: msgspec.Struct) -> bool:
        meta = stored.metadata
        resource = METRIC_RULES if meta.namespace else CLUSTER_METRIC_RULES
        metadata = {"resourceVersion": meta.resource_version}
        body = msgspec.json.encode({"metadata": metadata, "status": status})
        path = resource.path(meta.namespace, meta.name, "status")
        try:
            answer = await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            self._rules.accept(decode(answer.body, StoredMetricRule))
            self._is_told = False
        except Forbidden as error:
            if not self._is_told:
                log.warning("the status of MetricRules is not written: no right", error=str(error))
            self._is_told = True
            return False
        except WriteConflict:
            self.note(meta.namespace)  # it has changed in the meantime, and comes again
        except KubeError as error:
            log.info("status not written", rule=stored.origin, error=str(error))
            # It is tried again when it changes, or is listed; the others are written meanwhile.
            code = error.status if isinstance(error, ApiError) else None
            if code == 500:  # or the API server's own trouble, which passes
                loop = asyncio.get_running_loop()
                loop.call_later(_AFTER_FAILURE_S, self.note, meta.namespace)
            return code in _OF_ONE_OBJECT
        return True
