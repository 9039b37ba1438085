"""The keeper against a scripted API server: create, share, rotate, publish."""

import asyncio
import base64
import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature

from podscale.kube.client.errors import ApiUnreachable
from podscale.kube.objects.cluster import ServiceName
from podscale.process.apiservices import publisher
from podscale.serving.certificates.issuing import AuthorityTimes, KeyPair, from_secret
from podscale.serving.certificates.keeper import CertificateKeeper
from podscale.serving.certificates.tls import ServingTls, TlsError
from tests.unit.serving.kit import Pki, ScriptedApi

PATH = "/api/v1/namespaces/monitoring/secrets/podscale-ca"
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVICE = f"{APISERVICES}/v1beta1.custom.metrics.k8s.io"
OURS = ServiceName("monitoring", "adapter")
TIMES = AuthorityTimes(life_s=3000.0, overlap_s=200.0, leaf_life_s=400.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def keeper(
    api: ScriptedApi, clock: Clock, may_write: Callable[[], bool] = lambda: True
) -> CertificateKeeper:
    return CertificateKeeper(
        api,
        namespace="monitoring",
        secret="podscale-ca",
        names=("adapter.monitoring.svc",),
        publish=publisher(
            api, {"v1beta1.custom.metrics.k8s.io": OURS, "absent": OURS}, lambda _: False
        ),
        may_write=may_write,
        times=TIMES,
        wall=clock,
    )


def routed_to(service: str) -> dict[str, Any]:
    """Return an APIService as one comes that skips verification."""
    return {
        "metadata": {"resourceVersion": "0"},
        "spec": {
            "insecureSkipTLSVerify": True,
            "group": "custom.metrics.k8s.io",
            "service": {"namespace": "monitoring", "name": service, "port": 443},
        },
    }


@pytest.fixture
def api() -> ScriptedApi:
    api = ScriptedApi()
    api.objects[SERVICE] = routed_to("adapter")
    return api


def bundle(api: ScriptedApi) -> bytes:
    return base64.b64decode(api.objects[SERVICE]["spec"]["caBundle"])


async def test_two_replicas_share_one_authority(api: ScriptedApi) -> None:
    clock = Clock()
    one, two = keeper(api, clock), keeper(api, clock)
    first, second = await one.start(), await two.start()
    assert first != second
    assert first.leaf.issuer == second.leaf.issuer
    assert [method for method, path in api.calls if method == "POST"] == ["POST"]


async def test_only_the_lease_holder_publishes(api: ScriptedApi) -> None:
    clock = Clock()
    follower = keeper(api, clock, lambda: False)
    tls = ServingTls(await follower.start())
    await follower.step(tls)
    assert "caBundle" not in api.objects[SERVICE]["spec"]
    leader = keeper(api, clock)
    await leader.start()
    await leader.step(tls)
    state = from_secret(api.objects[PATH]["data"])
    assert bundle(api) == state.bundle
    assert "insecureSkipTLSVerify" not in api.objects[SERVICE]["spec"]
    assert api.objects[SERVICE]["spec"]["group"] == "custom.metrics.k8s.io"
    writes = len([1 for method, _ in api.calls if method in ("PUT", "PATCH")])
    await leader.step(tls)
    assert len([1 for method, _ in api.calls if method in ("PUT", "PATCH")]) == writes


async def test_an_apiservice_that_comes_later_gets_the_bundle(api: ScriptedApi) -> None:
    leader = keeper(api, Clock())
    tls = ServingTls(await leader.start())
    await leader.step(tls)
    api.objects[f"{APISERVICES}/absent"] = routed_to("adapter")
    await leader.step(tls)
    spec = api.objects[f"{APISERVICES}/absent"]["spec"]
    assert spec["caBundle"] == api.objects[SERVICE]["spec"]["caBundle"]
    assert "insecureSkipTLSVerify" not in spec


async def test_an_apiservice_that_went_to_another_server_is_left_to_it(api: ScriptedApi) -> None:
    leader = keeper(api, Clock())
    tls = ServingTls(await leader.start())
    await leader.step(tls)
    api.objects[SERVICE] = routed_to("prometheus-adapter")  # as on the way back
    await leader.step(tls)
    assert api.objects[SERVICE] == routed_to("prometheus-adapter")


async def test_rotation_never_leaves_a_leaf_that_the_bundle_does_not_verify(
    api: ScriptedApi,
) -> None:
    clock = Clock()
    leader, follower = keeper(api, clock), keeper(api, clock, lambda: False)
    pairs = [ServingTls(await leader.start()), ServingTls(await follower.start())]
    await leader.step(pairs[0])
    signers = set()
    for _ in range(200):
        clock.now += 20
        # The worst order: the follower looks before the leader publishes.
        await follower.step(pairs[1])
        for tls in pairs:
            assert any(_signed(tls.pair, cert) for cert in _certificates(bundle(api)))
        await leader.step(pairs[0])
        signers.add(from_secret(api.objects[PATH]["data"]).signer.certificate)
        for tls in pairs:
            assert tls.pair.not_after > clock.now
    assert len(signers) >= 2


def _certificates(pem: bytes) -> set[bytes]:
    return {cert for cert in pem.split(b"-----END CERTIFICATE-----\n") if cert}


def _signed(pair: KeyPair, authority: bytes) -> bool:
    issuer = KeyPair(authority + b"-----END CERTIFICATE-----\n", b"").leaf
    try:
        pair.leaf.verify_directly_issued_by(issuer)
    except (ValueError, InvalidSignature):
        return False
    return True


async def test_a_failing_api_server_keeps_the_certificate(api: ScriptedApi) -> None:
    clock = Clock()
    leader = keeper(api, clock)
    tls = ServingTls(await leader.start())
    before = tls.pair
    api.is_down = True
    clock.now += 300
    with pytest.raises(ApiUnreachable):
        await leader.step(tls)
    assert tls.pair is before


@pytest.fixture
def no_files() -> Iterator[Callable[[], None]]:
    """Take every free file descriptor, when called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_a_free_file_descriptor_the_certificate_stays(
    api: ScriptedApi, no_files: Callable[[], None]
) -> None:
    clock = Clock()
    leader = keeper(api, clock)
    tls = ServingTls(await leader.start())
    before = tls.pair
    clock.now += 300
    no_files()
    with pytest.raises(TlsError, match="Too many open files"):
        await leader.step(tls)
    assert tls.pair is before


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(TlsError("no file descriptor left"), id="tls"),
        pytest.param(OSError(24, "Too many open files"), id="files"),
        pytest.param(TypeError("the CA's key is not an elliptic curve key"), id="defect"),
    ],
)
async def test_no_failure_ends_the_renewal(api: ScriptedApi, failure: Exception) -> None:
    clock = Clock()
    failures = [failure]

    async def publish(_bundle: bytes) -> bool:
        if failures:
            raise failures.pop()
        return True

    leader = CertificateKeeper(
        api,
        namespace="monitoring",
        secret="podscale-ca",
        names=("adapter.monitoring.svc",),
        publish=publish,
        may_write=lambda: True,
        times=AuthorityTimes(life_s=3000.0, overlap_s=200.0, leaf_life_s=400.0, poll_s=0.0),
        wall=clock,
    )
    tls = ServingTls(await leader.start())
    before = tls.pair
    task = asyncio.create_task(leader.run(tls))
    async with asyncio.timeout(5):
        while failures:  # noqa: ASYNC110 - its failures are what is waited for
            await asyncio.sleep(0)
        clock.now += 300
        while tls.pair is before:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_a_damaged_secret_stops_the_start(api: ScriptedApi) -> None:
    api.objects[PATH] = {"metadata": {"resourceVersion": "1"}, "data": {"tls.crt": "AAAA"}}
    with pytest.raises(ValueError, match="missing"):
        await keeper(api, Clock()).start()


async def test_given_certificates_are_refused_when_they_do_not_fit() -> None:
    pki = Pki()
    one, two = pki.server(), pki.server()
    tls = ServingTls(one)
    with pytest.raises(TlsError):
        tls.use_pair(KeyPair(one.certificate, two.key))
    assert tls.pair is one
    with pytest.raises(TlsError, match="TLS_NO_SUCH"):
        ServingTls(one, ciphers=["TLS_NO_SUCH"])


async def test_a_ca_that_somebody_put_into_the_secret_is_published_before_it_is_served(
    api: ScriptedApi,
) -> None:
    clock = Clock()
    leader, follower = keeper(api, clock), keeper(api, clock, lambda: False)
    pairs = [ServingTls(await leader.start()), ServingTls(await follower.start())]
    await leader.step(pairs[0])
    before = [tls.pair for tls in pairs]
    other = ScriptedApi()
    await keeper(other, clock).start()
    api.objects[PATH]["data"] = other.objects[PATH]["data"]
    for _ in range(6):
        # The worst order: the follower looks before the leader publishes.
        for one, tls in ((follower, pairs[1]), (leader, pairs[0])):
            believed, served_before = bundle(api), tls.pair
            await one.step(tls)
            if tls.pair is not served_before:  # the API server may not have heard of more yet
                assert any(_signed(tls.pair, cert) for cert in _certificates(believed))
            for served in pairs:
                assert any(_signed(served.pair, cert) for cert in _certificates(bundle(api)))
        clock.now += 20
    assert all(tls.pair is not old for tls, old in zip(pairs, before, strict=True))
    assert bundle(api) == from_secret(api.objects[PATH]["data"]).bundle


@pytest.mark.parametrize("leads", [True, False])
async def test_a_secret_that_was_deleted_comes_back_with_the_ca_that_clients_trust(
    api: ScriptedApi, leads: bool
) -> None:
    clock = Clock()
    leader = keeper(api, clock)
    tls = ServingTls(await leader.start())
    await leader.step(tls)
    follower = keeper(api, clock, lambda: False)
    other = ServingTls(await follower.start())
    held, trusted = api.objects.pop(PATH)["data"], bundle(api)
    await (leader.step(tls) if leads else follower.step(other))
    assert api.objects[PATH]["data"] == held
    assert bundle(api) == trusted
