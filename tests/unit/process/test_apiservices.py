"""APIServices that route to us, who publishes our CA in them, and rights that are missing."""

import asyncio
import json

import pytest
from msgspec import structs

from adapter import flags as adapter_flags
from adapter.part import API_SERVICES, KIND, NEEDED
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, ObjectNotFound
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery.refreshed import ApiDiscovery
from podscale.process.apiservices import ServiceBackend, certificates, settle
from podscale.process.part import Shared
from podscale.process.rights import warn_of_missing
from podscale.serving import flags as serving_flags
from podscale.serving.certificates.service import ServiceName
from podscale.serving.certificates.tls import ServingTls
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.unit.serving.kit import ScriptedApi


class Cluster:
    """APIServices by name, each with the Service behind it; remembers patches."""

    user_agent = "test"

    def __init__(self, services, error=None):
        self.services = services
        self.error = error
        self.patched = {}

    async def request(self, method, path, **arguments):
        if self.error:
            raise self.error
        name = path.rpartition("/")[2]
        if name == "selfsubjectaccessreviews":
            attributes = json.loads(arguments["body"])["spec"]["resourceAttributes"]
            allowed = attributes["verb"] != "watch"
            return Response(201, {}, json.dumps({"status": {"allowed": allowed}}).encode())
        if name not in self.services:
            raise ObjectNotFound(404, "NotFound", name)
        if method == "PATCH":
            self.patched[name] = json.loads(arguments["body"])["spec"]
        namespace, _, service = self.services[name].partition("/")
        body = {"spec": {"service": {"namespace": namespace, "name": service, "port": 443}}}
        return Response(200, {}, json.dumps(body).encode())


CUSTOM, EXTERNAL = "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"
OURS = ServiceName("podscale", "adapter")


def behind(service, api, *more, **changed):
    """Return what ``certificates`` takes for an adapter behind ``service``."""
    flags = serving_flags.parse([f"--service={service}", *more], adapter_flags.TABLE)
    shared = Shared(
        names=frozenset({"adapter"}), api=api, discovery=ApiDiscovery(api), pods=PodStore(),
        scopes=("",), metrics=SelfMetrics(), wall=lambda: 0.0, is_launcher=False, parts={},
        readers=[],
    )  # fmt: skip
    return {"adapter": flags}, {"adapter": KIND}, structs.replace(shared, **changed)


@pytest.mark.parametrize(("adopt", "patched"), [(False, []), (True, [EXTERNAL])])
async def test_somebody_elses_apiservice_is_taken_over_only_when_asked(adopt, patched):
    cluster = Cluster({CUSTOM: "podscale/adapter", EXTERNAL: "keda/keda"})
    await settle(cluster, ServiceBackend(OURS, API_SERVICES, adopt))
    assert list(cluster.patched) == patched
    if adopt:
        assert cluster.patched[EXTERNAL]["service"] == {
            "namespace": "podscale", "name": "adapter", "port": 443,
        }  # fmt: skip


async def test_an_apiservice_that_is_registered_after_the_start_gets_our_ca():
    api = ScriptedApi()
    keeper, ((_, publishing),) = await certificates(*behind("podscale/adapter", api))
    leading = asyncio.create_task(publishing())
    try:
        tls = ServingTls(await keeper.start())
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{EXTERNAL}"
        service = {"namespace": "podscale", "name": "adapter", "port": 443}
        api.objects[path] = {"metadata": {"resourceVersion": "1"}, "spec": {"service": service}}
        async with asyncio.timeout(5):
            while "caBundle" not in api.objects[path]["spec"]:
                await keeper.step(tls)  # as long as the Lease is waited for
                await asyncio.sleep(0.01)
    finally:
        leading.cancel()


async def test_a_launcher_keeps_no_ca_and_touches_no_apiservice():
    api = ScriptedApi()
    assert await certificates(*behind("podscale/adapter", api, is_launcher=True)) == (None, [])
    assert api.calls == []


@pytest.mark.parametrize(
    ("names", "lease"),
    [({"adapter"}, "adapter"), ({"adapter", "admission"}, "adapter-certificates")],
)
async def test_beside_other_parts_the_ca_has_a_lease_of_its_own(names, lease):
    api = ScriptedApi()
    _, ((_, publishing),) = await certificates(
        *behind("podscale/adapter", api, names=frozenset(names))
    )
    leading = asyncio.create_task(publishing())
    try:
        async with asyncio.timeout(5):
            while not any(f"/leases/{lease}" in path for path in api.objects):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        leading.cancel()


async def test_each_missing_right_is_told_once():
    assert [r.verb for r in await warn_of_missing(Cluster({}), NEEDED)] == ["watch"]
    assert await warn_of_missing(Cluster({}, ApiUnreachable("down")), NEEDED) == []
    assert len({(r.verb, r.resource) for r in NEEDED}) == len(NEEDED)
