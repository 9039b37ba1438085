"""The adapter's APIs behind the chain of the server, with users, objects and a feed of a test's.

The feed has a sample for every object of every demand, so what is not answered was kept back.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from prometheus_client import Histogram

from adapter.apis.metric_apis import CustomApi, ExternalApi
from adapter.apis.metric_providers import MetricSources
from adapter.apis.response_cache import ResponseCache
from adapter.discovery.listing import ListingBuilder
from adapter.discovery.objects import WatchedObjects
from adapter.discovery.registry import MetricRegistry, RuleState
from adapter.provider import FeedProvider
from adapter.queries.plans import Plans
from adapter.queries.usage import UsageByRules
from adapter.rules import config
from adapter.rules.ruleset import compile_rules
from podscale.kube.client.resource import NAMESPACES, NODES, PODS, SERVICES, Resource
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.informer.list_watch import Changes
from podscale.kube.objects.pod import Pod
from podscale.serving.auth.authorization import Authorizer
from podscale.serving.auth.user import User
from podscale.serving.handler_chain import HandlerChain
from podscale.serving.http.request import NOBODY, HttpRequest
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.kit.registry import merge
from tests.unit.adapter.world import STORAGE_CLASSES, RecordingFeed
from tests.unit.serving.kit import ScriptedApi

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True, "role")
TENANTS = Resource("example.com", "v1", "tenants", "Tenant", False, "tenant")
KINDS = (PODS, SERVICES, NAMESPACES, NODES, STORAGE_CLASSES, ROLES, TENANTS)
OBJECTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "pods": (("a", "web-0"), ("b", "web-0"), ("b", "db-0")),
    "services": (("a", "web"), ("b", "web")),
    "namespaces": (("", "a"), ("", "b")),
    "nodes": (("", "n0"), ("", "b")),
    "storageclasses.storage.k8s.io": (("", "fast"),),
    "roles.rbac.authorization.k8s.io": (("a", "system:reader"), ("b", 'x"} or secret{y="')),
    "tenants.example.com": (("", "b"),),
}
LABELS = (*(kind.singular for kind in KINDS),)
# The second rule writes names as they are; a later rule wins, so it has names of its own.
RULES = """
rules:
- seriesQuery: load
  resources: {template: <<.Resource>>}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: raw_load
  resources: {template: <<.Resource>>}
  metricsQuery: >-
    sum(load{<<range $k, $v := .LabelValuesByName>><<$k>>=~"<<$v>>",<<end>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: depth
  resources: {template: <<.Resource>>}
  metricsQuery: 'depth{namespace="<<index .LabelValuesByName "namespace">>"}'
- seriesQuery: shared
  resources: {template: <<.Resource>>, namespaced: false}
  metricsQuery: 'shared{<<.LabelMatchers>>}'
"""


class Answer(Struct, frozen=True):
    """What one request came to."""

    status: int
    body: Any
    reviews: tuple[Mapping[str, Any], ...]  # the attributes that were allowed
    queries: tuple[str, ...]  # what the feed was asked


class _Listed:
    """Objects of one kind, as a watch would tell them."""

    def __init__(self, kind: str) -> None:
        self._objects = OBJECTS[kind]

    def names(self, namespace: str, selector: Any) -> list[str]:
        return [name for place, name in self._objects if namespace in ("", place)]

    def count(self, namespace: str) -> int:
        return len(self.names(namespace, None))


class _Others:
    async def describe(self, resource: Resource, *, namespace: str = "") -> _Listed:
        return _Listed(resource.group_resource)


class _ByHeader:
    """Everybody is who the request says."""

    def authenticate(self, request: HttpRequest, _: object) -> User:
        return User(request.headers["x-user"])


class ScopeWorld:
    """Two APIs, their clients and what they may do."""

    def __init__(self, allows: Callable[[str, Mapping[str, Any]], bool]) -> None:
        """``allows`` is given a user's name and the resource attributes of a review."""
        self.feed = RecordingFeed()
        self.api = ScriptedApi()
        self.api.allowed = lambda spec: allows(spec["user"], spec.get("resourceAttributes", {}))
        metrics = SelfMetrics()
        # One wide review would say nothing about what it was asked for.
        authorizer = Authorizer(self.api, metrics, cluster_first=False, allowed_ttl_s=0.0)
        freshness = Histogram("age", "text", ["group"], registry=None)
        sources, self.reuse = MetricSources(self._provider()), ResponseCache(1e12)
        self.groups = [
            CustomApi(sources, lambda: self._custom, self.reuse, freshness),
            ExternalApi(sources, lambda: self._external, self.reuse, freshness),
        ]
        self._front = HandlerChain(self.groups, (), _ByHeader(), authorizer, metrics)  # type: ignore[arg-type]

    def _provider(self) -> FeedProvider:
        mapper = Mapper(KINDS)
        made = compile_rules(config.parse(RULES), mapper)
        states = []
        for rule in (*made.custom, *made.external):
            builder = ListingBuilder(rule)
            builder.add(rule.series_query, LABELS)
            states.append(RuleState(rule, builder.build()))
        self._custom = merge(states[: len(made.custom)], MetricRegistry())
        self._external = merge(states[len(made.custom) :], MetricRegistry())
        objects, plans = self.objects(), Plans()
        return FeedProvider(
            self.feed, objects, mapper, plans, UsageByRules(lambda: None, objects, plans),  # type: ignore[arg-type]
            custom=lambda: self._custom, external=lambda: self._external,
        )  # fmt: skip

    def objects(self) -> WatchedObjects:
        """Return what there is in the cluster."""
        store = PodStore()
        for version, (namespace, name) in enumerate(OBJECTS["pods"], 1):
            metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
            pod = decode(encode({"metadata": metadata, "spec": {}, "status": {}}), Pod)
            store.apply(Changes([("ADDED", pod)], str(version)), scope="", now=0.0)
        return WatchedObjects(store, _Others())  # type: ignore[arg-type]

    async def ask(self, user: str, target: str) -> Answer:
        """Send one request and return what came of it."""
        self.api.reviews.clear()
        self.feed.asked.clear()
        request = HttpRequest("GET", target, {"x-user": user}, {}, b"", True, False)
        reply = self._front.respond(request, NOBODY)
        if asyncio.iscoroutine(reply):
            reply = await reply
        # A permission is forgotten at once, so what let this request in was asked for it.
        allowed = tuple(
            spec.get("resourceAttributes", {})
            for spec in self.api.reviews
            if self.api.allowed(spec)
        )
        demands = [demand for read in self.feed.asked for demand in read]
        texts = tuple(demand.plan.text(demand.namespace, demand.names) for demand in demands)
        return Answer(reply.status, json.loads(reply.body), allowed, texts)
