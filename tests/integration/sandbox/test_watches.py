"""The sandbox's API server over HTTP: watches, and how they break."""

import asyncio

import aiohttp
import pytest

from tests.integration.sandbox.client import MAPS, PODS, configmap, pod
from tests.kit.apiserver.faults import Fault


async def test_a_watch_continues_a_list_and_sees_objects_enter_and_leave_its_selector(
    client, server
):
    server.objects.put(pod("a", app="web"))
    _, listed = await client.call("GET", f"{PODS}?labelSelector=app%3Dweb")
    revision = listed["metadata"]["resourceVersion"]
    path = f"{PODS}?watch=1&labelSelector=app%3Dweb&resourceVersion={revision}"
    async with client.watch(path) as events:
        server.objects.put(pod("b", app="db"))
        server.objects.put(pod("c", app="web"))
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"], seen["kind"]) == ("ADDED", "c", "Pod")
        held = server.objects.get("pods", "default", "c")
        changed = {**held, "metadata": {**held["metadata"], "labels": {"app": "db"}}}
        server.objects.update("pods", "default", "c", changed)
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"]) == ("DELETED", "c")
        server.objects.delete("pods", "default", "a")
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"]) == ("DELETED", "a")
        assert int(seen["metadata"]["resourceVersion"]) == server.storage.revision


async def test_a_watch_without_revision_begins_with_what_there_is(client, server):
    server.objects.put(pod("a"))
    async with client.watch(f"{PODS}?watch=1&timeoutSeconds=1") as events:
        assert (await events.next())[0] == "ADDED"
        server.objects.delete("pods", "default", "a")
        assert (await events.next())[0] == "DELETED"
        assert await events.next() == ("END", None)


async def test_bookmarks_come_when_asked_for(client, server):
    path = f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        server.objects.put(configmap("elsewhere"))
        kind, mark = await events.next()
        assert kind == "BOOKMARK"
        assert mark["metadata"]["resourceVersion"] == str(server.storage.revision)
        assert (mark["kind"], mark["apiVersion"]) == ("Pod", "v1")


async def test_initial_events_end_with_a_marked_bookmark(client, server):
    server.objects.put(pod("a"))
    path = (
        f"{PODS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    async with client.watch(path) as events:
        assert (await events.next())[0] == "ADDED"
        kind, mark = await events.next()
        assert kind == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_forgotten_history_gets_410(client, server):
    revision = server.storage.revision
    server.objects.put(pod("a"))
    server.compact()
    async with client.watch(f"{PODS}?watch=1&resourceVersion={revision}") as events:
        kind, status = await events.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert (await events.next())[0] == "END"


async def test_a_running_watch_survives_a_compaction(client, server):
    path = f"{PODS}?watch=1&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        server.objects.put(pod("a"))
        assert (await events.next())[0] == "ADDED"
        server.compact()
        server.objects.put(pod("b"))
        assert (await events.next())[0] == "ADDED"


async def test_faults_strike_as_told_and_no_longer(client, server):
    server.objects.put(configmap("a"))
    held = (await client.call("GET", f"{MAPS}/a"))[1]
    fault = server.faults.add(Fault(kind="conflict", resource="configmaps", count=1))
    assert (await client.call("PUT", f"{MAPS}/a", held))[0] == 409
    assert (await client.call("PUT", f"{MAPS}/a", held))[0] == 200
    assert fault.hits == 1
    body = {"kind": "status", "code": 429, "seconds": 3, "verbs": ["list"]}
    await client.call("POST", "/sandbox/faults", body)
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    async with client.session.get(server.url + MAPS, headers=headers) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
    assert (await client.call("GET", f"{MAPS}/a"))[0] == 200
    await client.call("DELETE", "/sandbox/faults")
    assert (await client.call("GET", MAPS))[0] == 200
    server.faults.add(Fault(kind="cut", count=1))
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", MAPS, configmap("b"))
    assert (await client.call("GET", MAPS))[0] == 200
    server.faults.add(Fault(kind="gone", verbs=("list",), count=1))
    assert (await client.call("GET", MAPS))[0] == 410


async def test_watches_can_be_cut_and_muted(client, server):
    path = f"{PODS}?watch=1&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        mute = server.faults.add(Fault(kind="mute"))
        server.objects.put(pod("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await events.next()
        server.faults.remove(mute)
        server.objects.put(pod("b"))
        assert (await events.next())[1]["metadata"]["name"] == "a"
        assert (await events.next())[1]["metadata"]["name"] == "b"
        server.faults.cut_watches()
        assert (await events.next())[0] == "END"
