"""Who the client says it is: headers, tokens, passwords, certificates, and their rotation."""

import math
import ssl

import pytest
import trustme

from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from tests.unit.feed.prometheus import FakePrometheus, connected, serving


@pytest.fixture
async def fake():
    async with serving(FakePrometheus({("n1", "p0"): 1.0})) as server:
        yield server


async def test_headers_tokens_and_passwords_are_sent_and_read_again(fake, tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    options = {"headers": (("X-Scope-OrgID", "a=b"),), "token_file": token}
    async with connected(fake, **options) as client:
        await client.query("a", 1.0)
        token.write_text("second\n")
        client._credentials._looked_s = -math.inf  # a second has passed
        await client.query("a", 1.0)
        token.unlink()
        client._credentials._looked_s = -math.inf
        await client.query("a", 1.0)  # a file that is gone keeps the last good one
    assert [asked.headers["Authorization"] for asked in fake.asked] == [
        "Bearer first",
        "Bearer second",
        "Bearer second",
    ]
    assert fake.asked[0].headers["X-Scope-OrgID"] == "a=b"
    async with connected(fake, username="u", password="p") as client:
        await client.query("a", 1.0)
    assert fake.asked[-1].headers["Authorization"] == "Basic dTpw"


@pytest.mark.parametrize("written", ["", "  \n", "good\nhalf", "go\0od"])
async def test_a_token_that_cannot_be_one_keeps_the_last_good_one(fake, tmp_path, written):
    token = tmp_path / "token"
    token.write_text("good")
    async with connected(fake, token_file=token) as client:
        token.write_text(written)
        client._credentials._looked_s = -math.inf
        await client.query("a", 1.0)
    assert fake.asked[-1].headers["Authorization"] == "Bearer good"
    token.write_text(written)
    with pytest.raises(OSError, match="the token is"):
        await connected(fake, token_file=token).__aenter__()


async def test_who_we_are_is_said_once_a_written_header_first_then_the_url(fake, tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    headers = (("authorization", "Basic abc"),)
    with_user = fake.url.replace("://", "://u:p%40@").rstrip("/")
    for options in (
        {"headers": headers, "token_file": token, "username": "x"},
        {"headers": headers, "url": with_user},
        {"url": with_user, "token_file": token},
        {"token_file": token, "username": "x"},
    ):
        async with PrometheusClient(PrometheusOptions(**{"url": fake.url} | options)) as client:
            await client.query("a", 1.0)
    said = [asked.request.headers["Authorization"] for asked in fake.asked]
    assert said == ["Basic abc", "Basic abc", "Basic dTpwQA==", "Bearer t"]


async def test_an_unreadable_file_is_an_error_at_start(fake, tmp_path):
    with pytest.raises(FileNotFoundError):
        await connected(fake, token_file=tmp_path / "none").__aenter__()


class TestTls:
    """CA, client certificate and their rotation."""

    @pytest.fixture
    async def secure(self, tmp_path):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        seen = []

        def react(asked):
            certificate = asked.request.transport.get_extra_info("peercert")
            seen.append(dict(pair[0] for pair in certificate["subject"])["commonName"])

        async with serving(FakePrometheus({("n1", "p0"): 1.0}, react=react), context) as server:
            yield server, authority, tmp_path, seen

    def issue(self, authority, directory, name):
        leaf = authority.issue_cert(f"{name}.example", common_name=name)
        leaf.cert_chain_pems[0].write_to_path(directory / "tls.crt")
        leaf.private_key_pem.write_to_path(directory / "tls.key")

    async def test_rotated_client_certificates_take_effect(self, secure):
        fake, authority, directory, seen = secure
        self.issue(authority, directory, "first")
        files = {
            "ca_file": directory / "ca.pem",
            "client_cert_file": directory / "tls.crt",
            "client_key_file": directory / "tls.key",
        }
        async with connected(fake, **files) as client:
            await client.query("a", 1.0)
            self.issue(authority, directory, "second")
            client._credentials._looked_s = -math.inf
            await client.query("a", 1.0)
        assert seen == ["first", "second"]

    async def test_an_unknown_authority_is_unreachable(self, secure):
        fake, _, _, _ = secure
        async with connected(fake) as client:
            with pytest.raises(QueryError) as caught:
                await client.query("a", 1.0)
        assert caught.value.kind == "unreachable"
