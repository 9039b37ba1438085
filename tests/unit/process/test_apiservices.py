"""APIServices that route to us, who publishes our CA in them, and rights that are missing."""

import asyncio
import json

import pytest
from msgspec import structs

from adapter import flags as adapter_flags
from adapter.part import KIND, NEEDED
from podscale.core.settings import ADOPTED_FROM
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, WriteConflict
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.objects.cluster import ServiceName
from podscale.process.apiservices import ServiceBackend, certificates, publisher, warn_of_others
from podscale.process.clusters import warn_of_missing
from podscale.process.part import Shared
from podscale.serving import flags as serving_flags
from podscale.serving.certificates.tls import ServingTls
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.unit.serving.kit import ScriptedApi


class Cluster:
    """Answers what a process may do."""

    user_agent = "test"

    def __init__(self, error=None):
        self.error = error

    async def request(self, method, path, **arguments):
        if self.error:
            raise self.error
        assert path.endswith("/selfsubjectaccessreviews")
        attributes = json.loads(arguments["body"])["spec"]["resourceAttributes"]
        allowed = attributes["verb"] != "watch"
        return Response(201, {}, json.dumps({"status": {"allowed": allowed}}).encode())


EXTERNAL = "v1beta1.external.metrics.k8s.io"
OURS = ServiceName("podscale", "adapter")


def behind(service, api, *more, **changed):
    """Return what ``certificates`` takes for an adapter behind ``service``."""
    flags = serving_flags.parse([f"--service={service}", *more], adapter_flags.TABLE)
    shared = Shared(
        names=frozenset({"adapter"}), api=api, discovery=ApiDiscovery(api), pods=PodStore(),
        scopes=("",), metrics=SelfMetrics(), wall=lambda: 0.0, is_launcher=False, parts={},
        readers=[],
    )  # fmt: skip
    return {"adapter": flags}, {"adapter": KIND}, structs.replace(shared, **changed), Health()


class Registered:
    """APIServices, the Service in front of us and the pod behind it."""

    user_agent = "test"

    def __init__(self) -> None:
        self.spec = {"service": {"namespace": "keda", "name": "keda", "port": 443},
                     "caBundle": "S0VEQQ==", "group": "external.metrics.k8s.io"}  # fmt: skip
        self.annotations: dict[str, str] = {}
        self.version = 1
        self.pod_is_ready = True
        self.patches: list[dict] = []

    async def request(self, method, path, *, query=None, body=None, **_):
        if path.endswith("/services"):
            assert query == {"fieldSelector": "metadata.name=adapter"}
            found = {"selector": {"app": "podscale"}, "ports": [{"port": 6443}]}
            return self._answer({"items": [{"spec": found}]})
        if path.endswith("/pods"):
            assert query == {"labelSelector": "app=podscale"}
            status = "True" if self.pod_is_ready else "False"
            ready = {"type": "Ready", "status": status, "lastProbeTime": None}
            return self._answer({"items": [{"metadata": {}, "status": {"conditions": [ready]}}]})
        if method == "PATCH":
            patch = json.loads(body)
            self.patches.append(patch)
            self.apply(patch)
        metadata = {"annotations": self.annotations, "resourceVersion": str(self.version)}
        return self._answer({"metadata": metadata, "spec": self.spec})

    def apply(self, patch):
        metadata = patch.get("metadata", {})
        if "resourceVersion" in metadata and metadata["resourceVersion"] != str(self.version):
            raise WriteConflict(409, "Conflict", "changed")
        self.version += 1
        self.annotations |= metadata.get("annotations", {})
        for key, value in patch["spec"].items():
            self.spec.pop(key, None)
            if value is not None:
                self.spec[key] = value

    @staticmethod
    def _answer(found):
        return Response(200, {}, json.dumps(found).encode())


OURS_SPEC = {"namespace": "podscale", "name": "adapter", "port": 6443}


@pytest.mark.parametrize("hindrance", ["it may not yet", "no pod is ready"])
async def test_somebody_elses_apiservice_is_left_alone_until_all_is_ready(hindrance):
    api = Registered()
    api.pod_is_ready = hindrance != "no pod is ready"
    publish = publisher(api, {EXTERNAL: OURS}, lambda _name: hindrance != "it may not yet")
    assert await publish(b"ours")
    assert api.patches == []


async def test_an_adoption_is_one_write_and_one_patch_gives_it_back_for_good():
    api = Registered()
    before = dict(api.spec)
    publish = publisher(api, {EXTERNAL: OURS}, lambda name: name == EXTERNAL)
    await publish(b"ours")
    await publish(b"ours")
    assert len(api.patches) == 1, "service and CA together"
    assert (api.spec["service"], api.spec["caBundle"]) == (OURS_SPEC, "b3Vycw==")
    api.apply(json.loads(api.annotations[ADOPTED_FROM]))
    assert api.spec == before
    await publish(b"ours")
    assert api.spec == before, "given back, it is not fought for"
    del api.annotations[ADOPTED_FROM]
    await publish(b"ours")
    assert api.spec["service"] == OURS_SPEC


@pytest.mark.parametrize(
    ("annotations", "adopt", "said"),
    [
        ({}, False, "--adopt takes it over"),
        ({}, True, ""),
        ({ADOPTED_FROM: "{}"}, True, "it was given back"),
    ],
)
async def test_who_has_the_apiservice_is_told_at_the_start(annotations, adopt, said, capsys):
    api = Registered()
    api.annotations = annotations
    await warn_of_others(api, ServiceBackend(OURS, [EXTERNAL], adopt))
    told = capsys.readouterr().out
    assert (said in told) if said else not told
    assert api.patches == []


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
    assert [r.verb for r in await warn_of_missing(Cluster(), NEEDED)] == ["watch"]
    assert await warn_of_missing(Cluster(ApiUnreachable("down")), NEEDED) == []
    assert len({(r.verb, r.resource) for r in NEEDED}) == len(NEEDED)
