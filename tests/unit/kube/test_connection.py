"""Connections over real sockets: credentials, deadlines, errors, guards."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme
import yaml

from podscale.kube.connect import Target, connect
from podscale.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    NotConfigured,
    NotLeading,
    ObjectNotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from podscale.kube.resource import LEASES
from tests.unit.kube.little import LittleCluster, Refusal, pod, pods_path, served


@asynccontextmanager
async def raw(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Serve bytes; yields the URL."""
    talking: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        if talking:
            await asyncio.wait(talking, timeout=5)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, ObjectNotFound), (409, Conflict), (410, Gone), (429, TooManyRequests), (418, ApiError)],
)
async def test_a_status_is_an_error_of_its_class(status, kind):
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(status, "Reason", "what happened")
    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        with pytest.raises(kind) as caught:
            await api.request("POST", "/api/v1/pods", body=b"{}")
    assert (caught.value.status, caught.value.reason) == (status, "Reason")
    assert str(caught.value) == "what happened"


async def test_a_hanging_server_is_unreachable_after_the_deadline():
    cluster = LittleCluster()
    cluster.is_hanging = True
    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
            await api.request("GET", "/api/v1/pods", timeout_s=0.2)
    assert caught.value.is_timeout


async def test_a_refused_connection_is_unreachable():
    async with served(LittleCluster()) as url:
        pass
    async with connect(Target(server=url), user_agent="t") as api:
        with pytest.raises(Unreachable) as caught:
            await api.request("GET", "/api/v1/pods")
    assert not caught.value.is_timeout


async def test_a_busy_server_is_asked_again_when_it_said_so_but_writes_are_not_repeated():
    cluster = LittleCluster()
    refusals = [Refusal(429, "TooManyRequests", retry_after="0.01") for _ in range(2)]
    cluster.fault = lambda *_: refusals.pop() if refusals else None
    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        assert (await api.request("GET", "/api/v1/pods")).status == 200
        refusals.append(Refusal(429, "TooManyRequests", retry_after="0.01"))
        with pytest.raises(TooManyRequests) as caught:
            await api.request("POST", "/api/v1/namespaces/shop/pods/web/eviction", body=b"{}")
    assert caught.value.retry_after_s == 0.01


async def test_a_guard_stops_a_write_after_the_connection_stands():
    cluster = LittleCluster()
    cluster.put(pods_path("shop", "web"), pod())

    def closed() -> None:
        raise NotLeading("not ours")

    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        for _ in range(2):  # on a new connection, and on one from the pool
            with pytest.raises(NotLeading):
                await api.request("PUT", pods_path("shop", "web"), body=b"{}", guard=closed)
            await api.request("GET", pods_path("shop", "web"))
    assert "PUT" not in [method for method, _, _ in cluster.requests]


async def test_a_put_that_the_client_repeats_by_itself_is_guarded_again():
    """aiohttp repeats a PUT when the server closes a pooled connection in its face."""
    seen: list[bytes] = []
    is_kept = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_kept
        while line := await reader.readline():
            seen.append(line.split()[0])
            length = 0
            while (header := await reader.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            await reader.readexactly(length)
            if line.startswith(b"PUT") and is_kept:
                is_kept = False
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    calls = 0

    def second_time_closed() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise NotLeading("the term ended between the attempts")

    async with raw(serve) as url, connect(Target(server=url), user_agent="t") as api:
        await api.request("GET", "/api")
        with pytest.raises(NotLeading):
            await api.request("PUT", "/api/v1/x", body=b"{}", guard=second_time_closed)
    assert seen == [b"GET", b"PUT"]
    assert calls == 2


async def test_impersonation_and_agent_are_sent():
    sent: dict[str, list[str]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().strip().partition(": ")
            sent.setdefault(name.lower(), []).append(value)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with raw(serve) as url:
        target = Target(server=url, impersonate="ann", impersonate_groups=("dev", "ops"))
        async with connect(target, user_agent="podscale-hpa/1") as api:
            await api.request("GET", "/api", accept="application/json")
    assert sent["impersonate-user"] == ["ann"]
    assert sent["impersonate-group"] == ["dev", "ops"]
    assert sent["user-agent"] == ["podscale-hpa/1"]
    assert sent["accept-encoding"] == ["identity"]


async def test_the_client_side_limit_spreads_requests():
    cluster = LittleCluster()
    loop = asyncio.get_running_loop()
    async with (
        served(cluster) as url,
        connect(Target(server=url, qps=50, burst=5), user_agent="t") as api,
    ):
        began = loop.time()
        await asyncio.gather(*(api.request("GET", "/api/v1/pods") for _ in range(15)))
    assert loop.time() - began >= 0.19  # 5 at once, 10 at 50/s


async def test_a_lease_is_renewed_past_the_reads_that_wait_for_the_limit():
    cluster = LittleCluster()
    loop = asyncio.get_running_loop()
    lease = LEASES.path("podscale", "hpa")
    cluster.objects[lease] = {"metadata": {"name": "hpa", "namespace": "podscale"}}
    async with (
        served(cluster) as url,
        connect(Target(server=url, qps=2, burst=1), user_agent="t") as api,
    ):
        reads = [
            asyncio.create_task(api.request("GET", "/api/v1/pods", timeout_s=1.2))
            for _ in range(20)
        ]
        await asyncio.sleep(0.05)
        began = loop.time()
        await api.request("GET", lease, timeout_s=5)
        assert loop.time() - began < 0.4
        ends = await asyncio.gather(*reads, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, Unreachable)]
        # At 2/s, two go out in the half of their time that they may wait.
        assert len(refused) == 18
        assert all("limit of requests" in str(end) for end in refused)
        await api.request("GET", "/api/v1/pods", timeout_s=2)  # what they gave up is there


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
        target = Target(kubeconfig=pki.kubeconfig(url, user), context="right")
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
        target = Target(kubeconfig=pki.kubeconfig(url, user), context="right")
        async with connect(target, user_agent="t") as api:
            await api.request("GET", "/api")
            await api.request("GET", "/api")
            good = "Bearer t2"
            await api.request("GET", "/api")
            good = "nobody's"
            with pytest.raises(Unauthorized):
                await api.request("GET", "/api")
    assert seen == [f"Bearer t{n}" for n in (1, 1, 1, 2, 2, 3)]


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
            Target(), user_agent="t", environ=environ, service_account=pki.directory
        ) as api:
            await api.request("GET", "/api")
            (pki.directory / "token").write_text("second")
            await api.request("GET", "/api")  # the old one is refused before a minute has passed
            await api.request("GET", "/api")
    assert seen == ["first", "first", "second", "second"]


async def test_a_stream_waits_for_credentials_and_raises_what_the_server_says():
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(403, "Forbidden", "no watch for you")
    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        with pytest.raises(ApiError, match="no watch for you"):
            async with api.stream(
                "/api/v1/pods", query={"watch": "1", "resourceVersion": "1"}, silence_s=5
            ):
                pass


async def test_lines_cut_by_the_network_arrive_whole():
    line = json.dumps({"type": "ADDED", "object": {"pad": "x" * 5000}}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        body = line + b"\n" + line + b"\n" + line  # the last one without its end
        for start in range(0, len(body), 1700):
            writer.write(body[start : start + 1700])
            await writer.drain()
            await asyncio.sleep(0.005)
        writer.close()

    got: list[bytes] = []
    async with (
        raw(serve) as url,
        connect(Target(server=url), user_agent="t") as api,
        api.stream("/api/v1/pods", silence_s=5) as batches,
    ):
        async for batch in batches:
            got += batch
    assert got == [line, line]


async def test_a_silent_stream_is_unreachable():
    cluster = LittleCluster()
    async with served(cluster) as url, connect(Target(server=url), user_agent="t") as api:
        query = {"watch": "1", "resourceVersion": "100"}
        async with api.stream("/api/v1/pods", query=query, silence_s=0.2) as batches:
            with pytest.raises(Unreachable) as caught:
                await anext(batches)
    assert caught.value.is_timeout


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
        async with connect(Target(kubeconfig=str(path), context=context), user_agent="t"):
            pass


async def test_a_kubeconfig_that_is_a_directory_or_no_text_says_so(tmp_path):
    (tmp_path / "config").write_bytes(b"\xff\xfe")
    for name, says in ((".", "is a directory"), ("config", "not a text file in UTF-8")):
        with pytest.raises(NotConfigured, match=says):
            async with connect(Target(kubeconfig=str(tmp_path / name)), user_agent="t"):
                pass


async def test_nowhere_to_connect_says_what_was_looked_for(tmp_path):
    with pytest.raises(NotConfigured, match="Give --kubeconfig"):
        async with connect(
            Target(), user_agent="t", environ={"HOME": str(tmp_path)}, service_account=tmp_path
        ):
            pass
