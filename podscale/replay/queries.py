"""What to ask Prometheus for the load of one HPA: the adapter's own templates, over time. Pure.

Pods of the past are not known by name: they are asked for by the name of their target.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from adapter.discovery import registry
from adapter.discovery.listing import MetricSource
from adapter.discovery.registry import MetricRegistry
from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import RuleSet
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.simulate.workload import key_of
from podscale.core.goquote import quote
from podscale.core.selectors.selector import EVERYTHING, SelectorError
from podscale.feed.plan import QueryPlan
from podscale.kube.client.errors import NoMatch
from podscale.kube.discovery import Mapper
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.replay.errors import ReplayError


class LoadQuery(Struct, frozen=True):
    """A query whose series, added up, are the load of one metric."""

    key: str  # of the metric
    text: str
    pod: str = ""  # the label that names the pod; "": the whole is measured at once
    container: str = ""  # the label that names the container
    only: str = ""  # the container that counts; "": all of them
    is_shared: bool = False  # of a Value target: what was measured, times the pods, is the load


ResourceOf = Callable[[CrossVersionObjectReference], str]  # plural[.group]; raises ReplayError


def load_queries(
    hpa: HPA,
    rules: RuleSet,
    custom: MetricRegistry,
    external: MetricRegistry,
    resource_of: ResourceOf,
) -> list[LoadQuery]:
    """Return one query for each metric; raises ``ReplayError`` in the doctor's words."""
    plans = Plans()
    try:
        return [_query(each, hpa, rules, (custom, external), plans, resource_of)
                for each in hpa.metrics]  # fmt: skip
    except RuleQueryError as error:
        raise ReplayError(f"the rule of a metric cannot be asked: {error}") from None
    except SelectorError as error:
        raise ReplayError(f"the selector of a metric: {error}") from None


def _query(
    metric: MetricSpec,
    hpa: HPA,
    rules: RuleSet,
    listed: tuple[MetricRegistry, MetricRegistry],
    plans: Plans,
    resource_of: ResourceOf,
) -> LoadQuery:
    custom, external = listed
    if metric.type in ("Resource", "ContainerResource"):
        return _usage(metric, hpa, rules, plans)
    selector = metric.selector.parsed() if metric.selector else EVERYTHING
    text = str(selector)
    if metric.type == "External":
        source = external.find("", metric.name)
        if not isinstance(source, MetricSource):
            raise _unknown(external, "", metric.name)
        plan = plans.metric(source, "", bool(hpa.namespace), selector, text)
        return LoadQuery(key_of(metric), plan.text(hpa.namespace, ()), is_shared=metric.is_by_value)
    is_object = metric.type == "Object" and metric.described is not None
    resource = resource_of(metric.described) if is_object and metric.described else "pods"
    source = custom.find(resource, metric.name)
    if not isinstance(source, MetricSource):
        raise _unknown(custom, resource, metric.name)
    plan = plans.metric(source, resource, resource != "namespaces", selector, text)
    if not is_object or metric.described is None:
        return LoadQuery(key_of(metric), of_target(plan, hpa), plan.labels.object)
    name = hpa.namespace if resource == "namespaces" else metric.described.name
    asked = plan.text(hpa.namespace, (name,))
    return LoadQuery(key_of(metric), asked, is_shared=metric.is_by_value)


def _usage(metric: MetricSpec, hpa: HPA, rules: RuleSet, plans: Plans) -> LoadQuery:
    if rules.resource is None:
        raise ReplayError("the rules file has no resourceRules: no history of CPU and memory")
    rule = {"cpu": rules.resource.cpu, "memory": rules.resource.memory}.get(metric.name)
    if rule is None:
        raise ReplayError(f"the usage of {metric.name} is not measured: cpu and memory are")
    plan = plans.containers(rule)
    labels = plan.labels
    text = of_target(plan, hpa)
    return LoadQuery(key_of(metric), text, labels.object, labels.container, metric.container)


def resource_of(mapper: Mapper, described: CrossVersionObjectReference) -> str:
    """Return plural[.group] of the object of a metric; raises ``ReplayError``."""
    try:
        return mapper.for_kind(described.kind, described.key[0])[0].group_resource
    except NoMatch as error:
        raise ReplayError(f"the object of a metric: {error}") from None


def of_target(plan: QueryPlan, hpa: HPA) -> str:
    """Return the query for all pods that the target of ``hpa`` has ever had."""
    pods = pods_of(hpa)
    found = list(plan.matchers)
    if plan.labels.namespace:
        found.append(f"{plan.labels.namespace}={quote(hpa.namespace)}")
    found.append(f"{plan.labels.object}=~{quote(pods)}")
    return plan.render(
        ",".join(found), {plan.labels.namespace: hpa.namespace, plan.labels.object: pods}
    )


def pods_of(hpa: HPA) -> str:
    """Return the pattern of the names of the target's pods: a ReplicaSet's hash may be in it."""
    hashed = "([a-z0-9]+-)?" if hpa.target.kind == "Deployment" else ""
    return f"{re.escape(hpa.target.name)}-{hashed}[a-z0-9]+".replace("\\-", "-")


def _unknown(listed: MetricRegistry, resource: str, metric: str) -> ReplayError:
    waiting = registry.unlisted(listed, resource, metric)
    if waiting is not None:
        return ReplayError(waiting.message)
    return ReplayError(registry.why_unknown(listed, resource, metric).message)
