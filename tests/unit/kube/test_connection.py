"""Connections over real sockets: deadlines, errors, guards, streams."""

import asyncio
import json

import pytest

from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.connection import Connection
from podscale.kube.client.credentials import FixedCredentials, Identity
from podscale.kube.client.errors import (
    ApiError,
    ApiUnreachable,
    Gone,
    NotLeading,
    ObjectNotFound,
    TooManyRequests,
    WriteConflict,
)
from podscale.kube.client.resource import LEASES
from tests.unit.kube.bytes_served import raw
from tests.unit.kube.little import LittleCluster, Refusal, pod, pods_path, served


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, ObjectNotFound),
        (409, WriteConflict),
        (410, Gone),
        (429, TooManyRequests),
        (418, ApiError),
    ],
)
async def test_a_status_is_an_error_of_its_class(status, kind):
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(status, "Reason", "what happened")
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        with pytest.raises(kind) as caught:
            await api.request("POST", "/api/v1/pods", body=b"{}")
    assert (caught.value.status, caught.value.reason) == (status, "Reason")
    assert str(caught.value) == "what happened"


async def test_a_path_that_nobody_serves_says_what_may_be_missing():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"404 page not found\n"  # as kube-apiserver says it
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connect(ApiServerTarget(server=url), user_agent="t") as api:
            with pytest.raises(ObjectNotFound, match=r"no such resource \(is its CRD or APIServ"):
                await api.request("GET", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers")


async def test_a_hanging_server_is_unreachable_after_the_deadline():
    cluster = LittleCluster()
    cluster.is_hanging = True
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        with pytest.raises(ApiUnreachable, match=r"no answer within 0\.2 s") as caught:
            await api.request("GET", "/api/v1/pods", timeout_s=0.2)
    assert caught.value.is_timeout


async def test_a_refused_connection_is_unreachable():
    async with served(LittleCluster()) as url:
        pass
    async with connect(ApiServerTarget(server=url), user_agent="t") as api:
        with pytest.raises(ApiUnreachable) as caught:
            await api.request("GET", "/api/v1/pods")
    assert not caught.value.is_timeout


async def test_a_busy_server_is_asked_again_when_it_said_so_but_writes_are_not_repeated():
    cluster = LittleCluster()
    refusals = [Refusal(429, "TooManyRequests", retry_after="0.01") for _ in range(2)]
    cluster.fault = lambda *_: refusals.pop() if refusals else None
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        assert (await api.request("GET", "/api/v1/pods")).status == 200
        refusals.append(Refusal(429, "TooManyRequests", retry_after="0.01"))
        with pytest.raises(TooManyRequests) as caught:
            await api.request("POST", "/api/v1/namespaces/shop/pods/web/eviction", body=b"{}")
    assert caught.value.retry_after_s == 0.01


@pytest.mark.parametrize("asked", ["nan", "inf", "-1", "1_0", "\u0661", "1e9", "9" * 400, "soon"])
async def test_a_retry_after_that_is_no_number_of_seconds_is_none(asked):
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(429, "TooManyRequests", retry_after=asked)
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        with pytest.raises(TooManyRequests) as caught:
            await api.request("GET", "/api/v1/pods")
    assert caught.value.retry_after_s is None


async def test_a_guard_stops_a_write_after_the_connection_stands():
    cluster = LittleCluster()
    cluster.put(pods_path("shop", "web"), pod())

    def closed() -> None:
        raise NotLeading("not ours")

    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
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

    async with raw(serve) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
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
        target = ApiServerTarget(server=url, impersonate="ann", impersonate_groups=("dev", "ops"))
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
        connect(ApiServerTarget(server=url, qps=50, burst=5), user_agent="t") as api,
    ):
        began = loop.time()
        await asyncio.gather(*(api.request("GET", "/api/v1/pods") for _ in range(15)))
    assert loop.time() - began >= 0.19  # 5 at once, 10 at 50/s


async def test_who_finds_all_places_taken_waits_for_one_until_the_deadline():
    answering, most, may_answer = 0, 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answering, most
        while await reader.readuntil(b"\r\n\r\n"):
            answering += 1
            most = max(most, answering)
            await may_answer.wait()
            answering -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nEtag: one\r\nContent-Length: 2\r\n\r\n{}")

    async with (
        raw(serve) as url,
        Connection(FixedCredentials(Identity(url)), user_agent="t", most_at_once=2) as api,
        asyncio.TaskGroup() as group,
    ):
        waiting = [group.create_task(api.request("GET", "/api")) for _ in range(5)]
        with pytest.raises(ApiUnreachable, match="no answer within") as caught:
            await api.request("GET", "/api", timeout_s=0.1)
        may_answer.set()
        answers = await asyncio.gather(*waiting)
    assert caught.value.is_timeout
    assert most == 2
    assert [answer.headers["etag"] for answer in answers] == ["one"] * 5


async def test_who_waits_for_a_place_when_it_is_closed_fails_and_is_not_cancelled():
    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass

    async with raw(serve) as url, asyncio.TaskGroup() as group:
        credentials = FixedCredentials(Identity(url))
        async with Connection(credentials, user_agent="t", most_at_once=1) as api:
            asking = [group.create_task(_failure(api)) for _ in range(3)]
            await asyncio.sleep(0.05)
            asking[2].cancel()
        told = [await each for each in asking[:2]]
    assert all("closed" in each for each in told), told
    assert asking[2].cancelled()


async def _failure(api: Connection) -> str:
    with pytest.raises(ApiUnreachable) as caught:
        await api.request("GET", "/api")
    return str(caught.value)


async def test_a_lease_is_renewed_past_the_reads_that_wait_for_the_limit():
    cluster = LittleCluster()
    loop = asyncio.get_running_loop()
    lease = LEASES.path("podscale", "hpa")
    cluster.objects[lease] = {"metadata": {"name": "hpa", "namespace": "podscale"}}
    async with (
        served(cluster) as url,
        connect(ApiServerTarget(server=url, qps=2, burst=1), user_agent="t") as api,
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
        refused = [end for end in ends if isinstance(end, ApiUnreachable)]
        # At 2/s, two go out in the half of their time that they may wait.
        assert len(refused) == 18
        assert all("limit of requests" in str(end) for end in refused)
        await api.request("GET", "/api/v1/pods", timeout_s=2)  # what they gave up is there


async def test_a_stream_waits_for_credentials_and_raises_what_the_server_says():
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(403, "Forbidden", "no watch for you")
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
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
        connect(ApiServerTarget(server=url), user_agent="t") as api,
        api.stream("/api/v1/pods", silence_s=5) as batches,
    ):
        async for batch in batches:
            got += batch
    assert got == [line, line]


async def test_a_silent_stream_ends():
    cluster = LittleCluster()
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        query = {"watch": "1", "resourceVersion": "100"}
        async with api.stream("/api/v1/pods", query=query, silence_s=0.2) as batches:
            assert [batch async for batch in batches] == []
