"""TLS by Go's names: every one that upstream takes is taken, served or warned of."""

import ssl

import pytest
from structlog.testing import capture_logs

from podscale.serving.certificates.ciphers import TlsOffer, offer
from podscale.serving.certificates.tls import ServingTls, TlsError
from tests.unit.serving.kit import Pki

# Go 1.22's tls.CipherSuites and tls.InsecureCipherSuites, and component-base's two old names.
_LISTED = """
TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256
TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
TLS_RSA_WITH_RC4_128_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA TLS_RSA_WITH_AES_128_CBC_SHA
TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_AES_128_CBC_SHA256 TLS_RSA_WITH_AES_128_GCM_SHA256
TLS_RSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_ECDSA_WITH_RC4_128_SHA TLS_ECDHE_RSA_WITH_RC4_128_SHA
TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256
TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256
TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305
"""
GO = _LISTED.split()
GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
ABSENT = "TLS_RSA_WITH_RC4_128_SHA"  # of no OpenSSL since 1.1


def agreed(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, str]:
    """Return version and cipher of a handshake; raises ``SSLError``."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname="localhost"),
        server.wrap_bio(up, down, server_side=True),
    ]
    for end in ends * 4:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    cipher = ends[0].cipher()
    assert cipher is not None
    return cipher[1], cipher[0]


@pytest.mark.parametrize("name", GO)
def test_every_suite_of_gos_list_is_served_or_left_out_with_a_warning(name: str) -> None:
    found = offer(names=[name, GCM])
    assert isinstance(found, TlsOffer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(found.ciphers)
    served = {each["name"] for each in context.get_ciphers()}
    assert set(found.ciphers.split(":")) <= served
    added = len(found.ciphers.split(":")) - 1
    is_more = name not in (GCM, *GO[:3])
    assert added + len(found.warnings) == is_more
    assert all(name in warning for warning in found.warnings)


def test_suites_that_openssl_lacks_are_left_out_and_named() -> None:
    found = offer(names=[ABSENT, GCM, "TLS_ECDHE_RSA_WITH_RC4_128_SHA"])
    assert isinstance(found, TlsOffer)
    assert found.ciphers == "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert found.warnings == (
        f"cipher suites left out, OpenSSL has none here: {ABSENT}, TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    )


@pytest.mark.parametrize(("minimum", "names", "word"), [
    ("", [ABSENT], "no cipher suite is left"),
    ("VersionTLS10", [ABSENT], "no cipher suite is left"),
    ("VersionTLS13", ["TLS_NO_SUCH"], "TLS_NO_SUCH"),
    ("VersionTLS9", [], "VersionTLS9"),
])  # fmt: skip
def test_what_cannot_be_served_is_told(minimum: str, names: list[str], word: str) -> None:
    found = offer(minimum, names)
    assert isinstance(found, str)
    assert word in found


@pytest.mark.parametrize(("minimum", "version", "warnings"), [
    ("", ssl.TLSVersion.TLSv1_2, 0), ("VersionTLS10", ssl.TLSVersion.TLSv1_2, 1),
    ("VersionTLS11", ssl.TLSVersion.TLSv1_2, 1), ("VersionTLS12", ssl.TLSVersion.TLSv1_2, 0),
    ("VersionTLS13", ssl.TLSVersion.TLSv1_3, 0),
])  # fmt: skip
def test_tls_1_2_is_the_least_whatever_is_asked_for(
    minimum: str, version: ssl.TLSVersion, warnings: int
) -> None:
    found = offer(minimum)
    assert isinstance(found, TlsOffer)
    assert (found.minimum, len(found.warnings)) == (version, warnings)
    assert all(minimum in warning for warning in found.warnings)


def test_under_tls_1_3_the_list_does_not_matter() -> None:
    found = offer("VersionTLS13", [ABSENT])
    assert isinstance(found, TlsOffer)
    assert (found.ciphers, len(found.warnings)) == ("", 1)


def test_the_listener_serves_what_is_left_and_warns() -> None:
    pki = Pki()
    with capture_logs() as logged:
        tls = ServingTls(pki.server(), minimum="VersionTLS10", ciphers=[ABSENT, GCM])
    assert [each["log_level"] for each in logged] == ["warning", "warning"]
    assert "VersionTLS10" in logged[0]["warning"]
    assert ABSENT in logged[1]["warning"]
    client = pki.client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert agreed(tls.context, client) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
    client.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError):
        agreed(tls.context, client)
    with pytest.raises(TlsError, match="no cipher suite is left"):
        ServingTls(pki.server(), ciphers=[ABSENT])


@pytest.mark.parametrize("more", [[], [ABSENT]])
def test_with_tls_1_3_suites_alone_tls_1_2_finds_nothing_to_agree_on(more: list[str]) -> None:
    pki = Pki()
    tls = ServingTls(pki.server(), ciphers=["TLS_AES_128_GCM_SHA256", *more])
    client = pki.client()
    assert agreed(tls.context, client)[0] == "TLSv1.3"
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        agreed(tls.context, client)
