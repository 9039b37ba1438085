"""Who we are to the API server: kubeconfigs, plugins, rotated tokens."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
import yaml
from structlog.testing import capture_logs

from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.credentials import InClusterCredentials
from podscale.kube.client.errors import NotConfigured, Unauthorized
from tests.unit.kube.bytes_served import raw
from tests.unit.kube.little import LittleCluster, served


class Pki:
    """A CA, a server context that asks for client certificates, and a client's files."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.directory = directory
        self.ca_file = directory / "ca.crt"
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert("127.0.0.1", "localhost").configure_cert(self.server)

    def kubeconfig(self, url: str, user: dict[str, object]) -> str:
        """Two contexts, of which the second one works."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "wrong",
            "clusters": [
                {"name": "c", "cluster": {"server": url, "certificate-authority": "ca.crt"}},
                {"name": "w", "cluster": {"server": "https://127.0.0.1:1"}},
            ],
            "users": [{"name": "u", "user": user}],
            "contexts": [
                {"name": "right", "context": {"cluster": "c", "user": "u"}},
                {"name": "wrong", "context": {"cluster": "w", "user": "u"}},
            ],
        }
        path = self.directory / "config"
        path.write_text(yaml.safe_dump(config))
        return str(path)


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)


async def test_a_kubeconfig_context_with_a_client_certificate(pki):
    pki.server.load_verify_locations(pki.ca_file)
    pki.server.verify_mode = ssl.CERT_REQUIRED
    leaf = pki.ca.issue_cert("client")
    leaf.cert_chain_pems[0].write_to_path(str(pki.directory / "client.crt"))
    leaf.private_key_pem.write_to_path(str(pki.directory / "client.key"))
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    async with served(LittleCluster(), pki.server) as url:
        target = ApiServerTarget(kubeconfig=pki.kubeconfig(url, user), context="right")
        async with connect(target, user_agent="t") as api:
            assert (await api.request("GET", "/api/v1/pods")).status == 200


async def test_an_exec_plugin_is_run_again_when_its_token_is_refused(pki):
    tokens = pki.directory / "tokens"
    tokens.write_text("")
    plugin = pki.directory / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tokens}\n"
        f"n=$(wc -l < {tokens} | tr -d ' ')\n"
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",'
        '\\"kind\\":\\"ExecCredential\\",\\"status\\":{\\"token\\":\\"t$n\\"}}"\n'
    )
    plugin.chmod(0o700)
    seen: list[str] = []
    good = "Bearer t1"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            token = ""
            while (header := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.decode().strip().partition(": ")
                token = value if name.lower() == "authorization" else token
            seen.append(token)
            status = "200 OK" if token == good else "401 Unauthorized"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()

    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    async with raw(serve, pki.server) as url:
        target = ApiServerTarget(kubeconfig=pki.kubeconfig(url, user), context="right")
        async with connect(target, user_agent="t") as api:
            await api.request("GET", "/api")
            await api.request("GET", "/api")
            good = "Bearer t2"
            await api.request("GET", "/api")
            good = "nobody's"
            with pytest.raises(Unauthorized):
                await api.request("GET", "/api")
    assert seen == [f"Bearer t{n}" for n in (1, 1, 1, 2, 2, 3)]


async def unauthorized(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        while await reader.readline() not in (b"\r\n", b""):
            pass
        body = b'{"kind":"Status","message":"Unauthorized","reason":"Unauthorized","code":401}'
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
    writer.close()


async def test_refused_credentials_say_whose_they_are_and_what_to_do(pki):
    (pki.directory / "token").write_text("old")
    async with raw(unauthorized, pki.server) as url, raw(unauthorized) as plain:
        port = url.rsplit(":", 1)[1]
        kubeconfig = pki.kubeconfig(url, {"token": "expired"})
        chosen = ApiServerTarget(kubeconfig=kubeconfig, context="right")
        in_pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        for target, told in (
            (chosen, (url, "user 'u' (context 'right')", kubeconfig, "log in again")),
            (ApiServerTarget(server=plain), (plain, "no credentials", "--kubeconfig")),
            (ApiServerTarget(), (f"https://127.0.0.1:{port}", str(pki.directory), "pod")),
        ):
            async with connect(
                target, user_agent="t", environ=in_pod, service_account=pki.directory
            ) as api:
                with pytest.raises(Unauthorized, match=r"^Unauthorized: ") as refused:
                    await api.request("GET", "/api")
                for part in told:
                    assert part in str(refused.value)
                with pytest.raises(Unauthorized, match=r"^Unauthorized: "):
                    async with api.stream("/api", silence_s=5.0):
                        pass


async def test_a_rotated_service_account_token_is_used(pki):
    (pki.directory / "token").write_text("first")
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (header := await reader.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"authorization:"):
                    seen.append(header.decode().split()[-1])
            is_old = seen[-1] == "first" and len(seen) > 1
            status = "401 Unauthorized" if is_old else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()

    async with raw(serve, pki.server) as url:
        environ = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": url.rsplit(":", 1)[1],
        }
        async with connect(
            ApiServerTarget(), user_agent="t", environ=environ, service_account=pki.directory
        ) as api:
            await api.request("GET", "/api")
            (pki.directory / "token").write_text("second")
            await api.request("GET", "/api")  # the old one is refused before a minute has passed
            await api.request("GET", "/api")
    assert seen == ["first", "first", "second", "second"]


class Pod:
    """A ServiceAccount's files, read by an ``InClusterCredentials`` whose clock is set by hand."""

    def __init__(self, pki):
        self.directory = pki.directory
        self.good = pki.ca_file.read_bytes()
        self.token("t1")
        self.now = 0.0
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
        self.credentials = InClusterCredentials(environ, self.directory, clock=lambda: self.now)

    def token(self, text):
        (self.directory / "token").write_bytes(text if isinstance(text, bytes) else text.encode())

    def ca(self, pem):
        (self.directory / "ca.crt").write_bytes(pem)

    async def later(self):
        self.now += 61
        return await self.credentials.current()


def bearer(identity):
    return identity.headers["Authorization"].removeprefix("Bearer ")


BROKEN_CAS = [
    pytest.param(lambda _: b"", id="empty"),
    pytest.param(lambda _: b"\n", id="blank"),
    pytest.param(lambda _: b"hello", id="no-pem"),
    pytest.param(lambda good: good[:200], id="cut"),
    pytest.param(lambda good: good + good[:200], id="second-cut"),
    pytest.param(lambda good: b"\xff\xfe" + good[:40] + b"\xe9" + good[40:], id="binary-inside"),
    pytest.param(
        lambda _: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="no-der"
    ),
]


@pytest.mark.parametrize("broken", BROKEN_CAS)
async def test_a_ca_file_that_cannot_be_used_changes_nothing(pki, broken):
    pod = Pod(pki)
    before = await pod.credentials.current()
    pod.ca(broken(pod.good))
    pod.token("t2")
    with capture_logs() as logs:
        for _ in range(3):
            identity = await pod.later()
            assert identity.tls is before.tls
            assert bearer(identity) == "t2"  # it would end within the hour
    assert [one["event"] for one in logs] == ["ServiceAccountFilesRefused"]
    other = trustme.CA().cert_pem.bytes()
    pod.ca(other)
    taken = (await pod.later()).tls
    assert [ssl.DER_cert_to_PEM_cert(one) for one in taken.get_ca_certs(binary_form=True)] == [
        other.decode()
    ]


@pytest.mark.parametrize("broken", BROKEN_CAS)
async def test_a_pod_without_a_ca_does_not_start_with_those_of_the_system(pki, broken):
    pod = Pod(pki)
    pod.ca(broken(pod.good))
    with pytest.raises(NotConfigured, match=r"ca\.crt"):
        await pod.credentials.current()
    pod.ca(pod.good)
    assert len((await pod.credentials.current()).tls.get_ca_certs()) == 1


@pytest.mark.parametrize("comment", ["# é".encode(), b"# \xe9", b"# a comment"])
async def test_comments_in_a_ca_file_are_no_matter(pki, comment):
    pod = Pod(pki)
    pod.ca(comment + b"\n" + pod.good + b"\n" + trustme.CA().cert_pem.bytes() + comment)
    assert len((await pod.credentials.current()).tls.get_ca_certs()) == 2


@pytest.mark.parametrize("broken", ["", "\n", "t2\nhalf", "t2 half", "tökен", b"\xff\xfe"])
async def test_a_token_file_that_cannot_be_used_changes_nothing(pki, broken):
    pod = Pod(pki)
    before = await pod.credentials.current()
    pod.token(broken)
    new = trustme.CA().cert_pem.bytes()
    pod.ca(new)
    with capture_logs() as logs:
        identity = await pod.later()
        await pod.credentials.renew()
    assert bearer(identity) == "t1"
    assert identity.tls is not before.tls
    assert [one["event"] for one in logs] == ["ServiceAccountFilesRefused"]
    pod.token("t3\n")
    assert bearer(await pod.later()) == "t3"


@pytest.mark.parametrize(
    ("content", "context", "says"),
    [
        pytest.param(None, "", "does not exist", id="no-file"),
        pytest.param("{}", "", "kubeconfig", id="empty"),
        pytest.param("clusters: [", "", "line 1, column 12: not YAML: ", id="not-yaml"),
        pytest.param("hello", "", "not a kubeconfig: no mapping", id="text"),
        pytest.param("[1, 2]", "", "not a kubeconfig: no mapping", id="list"),
        pytest.param("", "", "is empty", id="nothing"),
        pytest.param("\x0e", "", "characters that YAML does not allow", id="binary"),
        pytest.param("[" * 2000, "", "nested too deeply", id="deep"),
        pytest.param(
            "{clusters: [], users: [], contexts: [], current-context: a}", "b", "'b'", id="context"
        ),
    ],
)
async def test_an_unusable_kubeconfig_says_what_is_wrong(tmp_path, content, context, says):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(NotConfigured, match=says):
        async with connect(ApiServerTarget(kubeconfig=str(path), context=context), user_agent="t"):
            pass


async def test_a_kubeconfig_that_is_a_directory_or_no_text_says_so(tmp_path):
    (tmp_path / "config").write_bytes(b"\xff\xfe")
    for name, says in ((".", "is a directory"), ("config", "not a text file in UTF-8")):
        with pytest.raises(NotConfigured, match=says):
            async with connect(ApiServerTarget(kubeconfig=str(tmp_path / name)), user_agent="t"):
                pass


async def test_nowhere_to_connect_says_what_was_looked_for(tmp_path):
    with pytest.raises(NotConfigured, match="Give --kubeconfig"):
        async with connect(
            ApiServerTarget(),
            user_agent="t",
            environ={"HOME": str(tmp_path)},
            service_account=tmp_path,
        ):
            pass
