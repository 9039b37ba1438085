"""Certificates and tokens turned into users, without a socket."""

import asyncio
import time

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from podscale.serving.auth.authentication import Authenticator, TokenReviews, verify
from podscale.serving.auth.trust import FrontProxy, Trust
from podscale.serving.auth.user import ANONYMOUS_USER, User
from podscale.serving.http.request import NOBODY, HttpRequest, Peer
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.unit.serving.kit import Pki, ScriptedApi, authority

NOW = time.time()


class Hand:
    """A clock that is set by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def peer(leaf: trustme.LeafCert) -> Peer:
    chain = tuple(
        x509.load_pem_x509_certificate(blob.bytes()).public_bytes(Encoding.DER)
        for blob in leaf.cert_chain_pems
    )
    return Peer(chain[0], chain)


def request(**headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("GET", "/", named, {}, b"", True, False)


def _issued(ca: trustme.CA, names: list[list[tuple[str, str]]]) -> Peer:
    """Return who holds a certificate of ``ca`` whose subject has ``names``."""
    kinds = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}
    subject = x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(kinds[kind], name) for kind, name in part)
        for part in names
    )
    issuer = authority(ca)
    signer = load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    signers = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    leaf = (
        x509.CertificateBuilder(issuer.subject, subject, signer.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(signers, critical=False)
        .sign(signer, SHA256())
    )
    der = leaf.public_bytes(Encoding.DER)
    return Peer(der, (der,))


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
def trust(pki: Pki) -> Trust:
    proxy = FrontProxy((authority(pki.proxies),), ("front-proxy-client",))
    return Trust((authority(pki.clients),), proxy)


def test_a_clients_certificate_names_user_and_groups(pki: Pki, trust: Trust) -> None:
    verified = verify(peer(pki.user("alice", "dev")), trust, NOW)
    assert verified.user == User("alice", ("dev",))
    assert not verified.is_proxy


def test_no_name_makes_a_clients_certificate_a_proxy(pki: Pki, trust: Trust) -> None:
    assert not verify(peer(pki.user("front-proxy-client")), trust, NOW).is_proxy
    any_name = Trust(trust.client_ca, FrontProxy(trust.proxy.ca))
    assert not verify(peer(pki.user("front-proxy-client")), any_name, NOW).is_proxy
    assert verify(peer(pki.proxy("any")), any_name, NOW).is_proxy


def test_one_ca_for_both_without_names_trusts_nobody_as_proxy(pki: Pki) -> None:
    same = Trust((authority(pki.clients),), FrontProxy((authority(pki.clients),)))
    assert not verify(peer(pki.user("alice")), same, NOW).is_proxy
    named = Trust(same.client_ca, FrontProxy(same.client_ca, ("front-proxy-client",)))
    assert verify(peer(pki.user("front-proxy-client")), named, NOW).is_proxy
    assert not verify(peer(pki.user("alice")), named, NOW).is_proxy


def test_intermediates_are_followed(pki: Pki, trust: Trust) -> None:
    between = pki.proxies.create_child_ca()
    leaf = between.issue_cert(common_name="front-proxy-client")
    assert verify(peer(leaf), trust, NOW).is_proxy
    alone = peer(leaf)
    assert not verify(Peer(alone.certificate, alone.chain[:1]), trust, NOW).is_proxy


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([["alice"], ["bob"]], id="one-after-the-other"),
        pytest.param([["al", "bob"]], id="in-one-part"),
        pytest.param([["bob"], ["alice"], ["", "bob"]], id="three"),
    ],
)
def test_of_several_common_names_the_last_counts_as_in_go(
    pki: Pki, trust: Trust, names: list[list[str]]
) -> None:
    # "" stands for an organization: groups are taken from all parts.
    written = [[("O", "dev") if name == "" else ("CN", name) for name in part] for part in names]
    verified = verify(_issued(pki.clients, written), trust, NOW)
    assert verified.user is not None
    assert verified.user.name == "bob"


def test_a_proxys_last_name_must_be_allowed(pki: Pki, trust: Trust) -> None:
    allowed, other = ("CN", "front-proxy-client"), ("CN", "somebody")
    assert verify(_issued(pki.proxies, [[other], [allowed]]), trust, NOW).is_proxy
    assert not verify(_issued(pki.proxies, [[allowed], [other]]), trust, NOW).is_proxy


def test_expired_certificates_prove_nothing(pki: Pki, trust: Trust) -> None:
    leaf = peer(pki.user("alice"))
    ends = x509.load_der_x509_certificate(leaf.certificate or b"").not_valid_after_utc
    assert verify(leaf, trust, ends.timestamp() + 1).user is None


def test_a_server_certificate_is_no_client(pki: Pki, trust: Trust) -> None:
    from podscale.serving.certificates.issuing import make_authority, make_leaf

    ca = make_authority("ca", now=NOW, life_s=1000)
    leaf = make_leaf(ca, ["front-proxy-client"], now=NOW, life_s=500).leaf
    der = leaf.public_bytes(Encoding.DER)
    servers = Trust((), FrontProxy((ca.leaf,)))
    assert not verify(Peer(der, (der,)), servers, NOW).is_proxy


def test_garbage_in_place_of_a_certificate_proves_nothing(trust: Trust) -> None:
    assert verify(Peer(b"garbage", (b"garbage",)), trust, NOW).user is None


def test_nobody_is_anonymous_and_a_stranger_is_refused(pki: Pki, trust: Trust) -> None:
    chain = Authenticator(trust, None, SelfMetrics())
    assert chain.authenticate(request(), NOBODY) == ANONYMOUS_USER
    stranger = peer(pki.strangers.issue_cert(common_name="front-proxy-client"))
    assert chain.authenticate(request(x_remote_user="hpa"), stranger) is None


def test_a_refusal_does_not_outlive_the_wrong_clock_that_caused_it(pki: Pki, trust: Trust) -> None:
    leaf = peer(pki.proxy())
    valid = x509.load_der_x509_certificate(leaf.certificate or b"")
    before = valid.not_valid_before_utc.timestamp() - 3600
    after = valid.not_valid_after_utc.timestamp() + 3600
    headers = {"x_remote_user": "hpa"}
    for wrong in (before, after):
        wall, clock = Hand(wrong), Hand(0.0)
        chain = Authenticator(trust, None, SelfMetrics(), wall=wall, clock=clock)
        assert chain.authenticate(request(**headers), leaf) is None
        wall.now = NOW
        clock.now = 4.9  # judged once, not for every request
        assert chain.authenticate(request(**headers), leaf) is None
        clock.now = 5.0
        user = chain.authenticate(request(**headers), leaf)
        assert isinstance(user, User)
        assert user.name == "hpa"


def test_what_a_certificate_proves_is_remembered_until_it_ends(pki: Pki, trust: Trust) -> None:
    leaf = peer(pki.user("alice"))
    ends = x509.load_der_x509_certificate(leaf.certificate or b"").not_valid_after_utc
    wall = Hand(NOW)
    chain = Authenticator(trust, None, SelfMetrics(), wall=wall)
    assert chain.authenticate(request(), leaf) is not None
    wall.now = ends.timestamp() + 1
    assert chain.authenticate(request(), leaf) is None


def test_proxied_anonymous_users_stay_anonymous(pki: Pki, trust: Trust) -> None:
    chain = Authenticator(trust, None, SelfMetrics())
    headers = {"x_remote_user": "system:anonymous", "x_remote_group": "system:unauthenticated"}
    user = chain.authenticate(request(**headers), peer(pki.proxy()))
    assert user == ANONYMOUS_USER


def test_extra_headers_are_unescaped(pki: Pki, trust: Trust) -> None:
    chain = Authenticator(trust, None, SelfMetrics())
    headers = {"x_remote_user": "eve", "x_remote_extra_acme.com%2fproject": "p"}
    user = chain.authenticate(request(**headers), peer(pki.proxy()))
    assert isinstance(user, User)
    assert user.extra == (("acme.com/project", ("p",)),)


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        ("Bearer bob", "bob"),
        ("bearer bob", "bob"),
        ("  Bearer bob  ", "bob"),
        ("Bearer bob trailing", "bob"),
        ("Bearer", ""),
        ("Bearer ", ""),
        ("Basic Ym9iOmJvYg==", ""),
        ("", ""),
    ],
)
async def test_bearer_tokens(header: str, asked: str) -> None:
    api = ScriptedApi()
    metrics = SelfMetrics()
    chain = Authenticator(Trust(), TokenReviews(api, metrics), metrics)
    found = chain.authenticate(request(authorization=header), NOBODY)
    if asked:
        assert asyncio.iscoroutine(found)
        assert await found == User("bob", ("system:authenticated",))
    else:
        assert found == ANONYMOUS_USER


async def test_reviews_are_shared_and_remembered_for_ten_seconds() -> None:
    api = ScriptedApi()
    now = [0.0]
    reviews = TokenReviews(api, SelfMetrics(), clock=lambda: now[0])
    api.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(reviews.review("bob")) for _ in range(5)]
        await asyncio.sleep(0)
        api.hold.set()
    assert {task.result().user for task in waiting} == {User("bob")}
    assert len(api.calls) == 1
    now[0] = 9.9
    assert reviews.cached("bob") is not None
    assert reviews.cached("wrong") is None
    now[0] = 10.0
    assert reviews.cached("bob") is None


async def test_a_refused_token_is_remembered_a_failed_review_is_not() -> None:
    api = ScriptedApi()
    reviews = TokenReviews(api, SelfMetrics())
    assert (await reviews.review("wrong")).user is None
    assert reviews.cached("wrong") is not None
    api.is_down = True
    assert (await reviews.review("bob")).user is None
    assert reviews.cached("bob") is None


@pytest.mark.parametrize("ttl_s", [5.0, 10.0, 600.0])
async def test_refusals_are_forgotten_after_ten_seconds_whatever_the_flag_says(
    ttl_s: float,
) -> None:
    api = ScriptedApi()
    now = [0.0]
    reviews = TokenReviews(api, SelfMetrics(), ttl_s=ttl_s, clock=lambda: now[0])
    for token in ("bob", "wrong"):
        await reviews.review(token)
    now[0] = min(ttl_s, 10.0) - 0.1
    assert reviews.cached("wrong") is not None
    now[0] += 0.1
    assert reviews.cached("wrong") is None
    assert (reviews.cached("bob") is None) is (ttl_s <= 10.0)


async def test_what_the_api_server_could_not_judge_is_not_remembered() -> None:
    api = ScriptedApi()
    api.review_error = "the token webhook does not answer"
    reviews = TokenReviews(api, SelfMetrics())
    assert (await reviews.review("bob")).user is None
    assert reviews.cached("bob") is None
    api.review_error = ""
    assert (await reviews.review("bob")).user == User("bob")
