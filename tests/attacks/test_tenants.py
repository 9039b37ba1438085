"""Two tenants with the shipped roles, each bound in a namespace of his own, on the real plane.

Values tell whose they are: those of one are below 1,000, those of the other multiples of it.
"""

import http.client
import json
import os
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from podscale.core import quantity
from podscale.serving.auth.authorization import ResourceAttributes, attributes
from podscale.serving.request_info import parse_target
from tests.attacks.tenant_requests import Tenant, target
from tests.cluster.identity import Client, Identity
from tests.cluster.metrics_stack import RULES, MetricsStack, busy_pod
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, wait_until

pytestmark = pytest.mark.timeout(600)

REQUESTS = 20_000
WORKERS = 4
BLUE = 1_000  # a unit of the second tenant's values
# Of a kind that nobody knows, and of a metric selector that is no PromQL.
UPSTREAMS_500 = (
    "Internal error occurred: unable to list matching resources",
    "Internal error occurred: unable to fetch metrics",
)
SHIPPED = ("podscale:custom-metrics-reader", "podscale:metrics-reader")
OWN_RULES = """\
rules:
- seriesQuery: tenant_load
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: tenant_raw
  resources: {template: "<<.Resource>>"}
  metricsQuery: >-
    sum(tenant_raw{<<range $k, $v := .LabelValuesByName>><<$k>>=~"<<$v>>",<<end>>})
    by (<<.GroupBy>>)
externalRules:
- seriesQuery: tenant_queue
  resources: {template: "<<.Resource>>"}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: tenant_raw_queue
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'tenant_raw_queue{namespace="<<index .LabelValuesByName "namespace">>"}'
"""


class Came(Struct, frozen=True):
    """One answer."""

    status: int
    body: Mapping[str, Any]


class Sender:
    """One identity's kept connection to one port."""

    def __init__(self, identity: Identity, port: int) -> None:
        tls = ssl._create_unverified_context()  # noqa: S323 - it is not the server that is tried
        self._connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=30, context=tls)
        self.close = self._connection.close
        self._headers = {"Authorization": f"Bearer {identity.token}"}

    def get(self, path: str) -> Came:
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
            raw = answer.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            raise
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return Came(answer.status, json.loads(raw) if is_json else {})


class Authorizer:
    """What the API server says that a tenant may do, each question asked once."""

    def __init__(self, identity: Identity) -> None:
        self._client = Client(identity)
        self._known: dict[ResourceAttributes, bool] = {}

    def allows(self, asked: ResourceAttributes) -> bool:
        found = self._known.get(asked)
        if found is None:
            named = {field: getattr(asked, field) for field in asked.__struct_fields__}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": named},
            }
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            found = self._client.post(path, review)["status"]["allowed"]
            self._known[asked] = found
        return found


class Ground(Struct, frozen=True):
    """The two namespaces, their tenants, and a third who may read everything."""

    stack: MetricsStack
    tenants: Mapping[str, Tenant]
    identities: Mapping[str, Identity]
    everybody: Identity


@pytest.fixture(scope="module")
def ground(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    directory = tmp_path_factory.mktemp("tenants")
    resource_rules = RULES[RULES.index("resourceRules:") :]
    with (
        plane.namespace("red") as red,
        plane.namespace("blue") as blue,
        Exporter(directory) as exporter,
        PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(
            plane, prometheus, exporter, directory, rules=OWN_RULES + resource_rules
        ) as stack,
    ):
        yield made(stack, red, blue)


def made(stack: MetricsStack, red: str, blue: str) -> Ground:
    plane = stack.plane
    for namespace in (red, blue):
        plane.apply(
            deployment("web", namespace, replicas=2),
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("tenant", namespace)},
            *(binding("RoleBinding", role, namespace) for role in SHIPPED),
        )
    reader = f"reader-of-{red}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(reader, "default")}
    plane.apply(
        account, *(binding("ClusterRoleBinding", role, "default", reader) for role in SHIPPED)
    )
    pods = {}
    for namespace, unit in ((red, 1), (blue, BLUE)):
        ready = partial(plane.ready_pods, namespace)
        wait_until("two pods", lambda ready=ready: len(ready()) == 2, deadline_s=60)
        pods[namespace] = tuple(plane.ready_pods(namespace))
        for number, pod in enumerate(pods[namespace], 1):
            name, busy = busy_pod(namespace, pod, requests=1, memory=unit * 1e6)
            load = [gauge(each, number * unit) for each in ("tenant_load", "tenant_raw")]
            queues = [gauge(each, number * unit) for each in ("tenant_queue", "tenant_raw_queue")]
            also = {"service": "web", "deployment": "web", "node": "node-0", "storageclass": "web"}
            samples = (*busy.samples, *load, *queues)
            stack.exporter.set((name, Target({**busy.labels, **also}, samples)))
    tenants = {
        own: Tenant(own, other, pods[red] + pods[blue], pods[other][0])
        for own, other in ((red, blue), (blue, red))
    }
    for namespace in tenants:
        path = f"namespaces/{namespace}/pods/*/tenant_load"
        stack.wait_for_metric(f"/apis/custom.metrics.k8s.io/v1beta1/{path}", 2)
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
        stack.wait_for_metric(path, 2)
    identities = {each: plane.service_account(each, "tenant") for each in tenants}
    return Ground(stack, tenants, identities, plane.service_account("default", reader))


def named(name: str, namespace: str) -> Mapping[str, str]:
    return {"name": name, "namespace": namespace}


def binding(kind: str, role: str, namespace: str, account: str = "tenant") -> Mapping[str, Any]:
    metadata = named(f"{account}-{role.replace(':', '-')}", namespace)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": metadata["name"]} if kind.startswith("Cluster") else metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
        },
        "subjects": [{"kind": "ServiceAccount", **named(account, namespace)}],
    }  # fmt: skip


def owners(item: Mapping[str, Any], tenants: Mapping[str, Tenant]) -> set[str]:
    """Return the namespaces that an item of any of the three APIs tells something about."""
    described = item.get("describedObject") or item.get("metadata") or {}
    labels = item.get("metricLabels") or {}
    place = described.get("namespace") or labels.get("namespace") or described.get("name", "")
    found = {place if place in tenants else "the cluster"}
    if "value" in item:
        red, blue = tenants
        milli = quantity.parse(item["value"]).milli
        found |= {blue} if milli >= BLUE * 1000 else set()
        found |= {red} if milli % (BLUE * 1000) else set()
    return found


class Told:
    """What all requests came to."""

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.items: Counter[tuple[str, str, str]] = Counter()  # API with version, way, tenant
        self.wrong: list[str] = []

    def take(
        self, way: str, own: str, path: str, came: Came, judge: Authorizer,
        tenants: Mapping[str, Tenant],
    ) -> None:  # fmt: skip
        """Compare an answer with what the API server's authorizer says of the request."""
        self.statuses[way, came.status] += 1
        items = came.body.get("items", [came.body]) if came.status == 200 else []
        if came.status >= 500 and came.body.get("message") not in UPSTREAMS_500:
            self.wrong.append(f"{own}: GET {path}: {came}")
        if not items:
            return
        asked = attributes(parse_target("GET", path).info)
        assert isinstance(asked, ResourceAttributes)
        self.items[f"{asked.group}/{asked.version}", way, own] += len(items)
        if not judge.allows(asked) or asked.namespace != own:
            self.wrong.append(f"{own} may not: GET {path}")
        self.wrong += [
            f"{own}: GET {path}: {item}" for item in items if owners(item, tenants) != {own}
        ]


def attack(ground: Ground, worker: int, count: int) -> Told:
    """Send ``count`` requests of both tenants, each way, and look at what comes back."""
    told = Told()
    way = ("aggregator", "directly")[worker % 2]
    port = ground.stack.port if way == "directly" else ground.everybody.port
    judges = {own: Authorizer(each) for own, each in ground.identities.items()}
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    with ExitStack() as open_ones:

        def sender(identity: Identity) -> Sender:
            return open_ones.enter_context(closing(Sender(identity, port)))

        senders = {own: sender(each) for own, each in ground.identities.items()}
        everybody = sender(ground.everybody)
        for number in range(start + worker, start + worker + WORKERS * count, WORKERS):
            random = Random(number)
            own = random.choice(list(ground.tenants))
            path = target(random, ground.tenants[own])
            if random.random() < 0.2:  # what is kept for one who may is not for one who may not
                everybody.get(path)
            told.take(way, own, path, senders[own].get(path), judges[own], ground.tenants)
    return told


def test_no_tenant_reads_a_value_of_another(ground: Ground) -> None:
    with ThreadPoolExecutor(WORKERS) as workers:
        every = list(
            workers.map(lambda number: attack(ground, number, REQUESTS // WORKERS), range(WORKERS))
        )
    statuses = sum((each.statuses for each in every), Counter())
    items = sum((each.items for each in every), Counter())
    wrong = [line for each in every for line in each.wrong]
    print(f"{statuses.total()} requests: {dict(statuses)}, {items.total()} values of their own,")
    print(f"{len(wrong)} of others; {len(items)} of 16 APIs, ways and tenants answered")
    assert not wrong, "\n".join(wrong[:20])
    assert len(items) == 16  # 4 API versions, 2 ways, 2 tenants: none is refused altogether
    assert min(items.values()) > REQUESTS / 1000
