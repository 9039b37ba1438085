"""Whom we believe: from files, from the ConfigMap, and from neither."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from podscale.kube.informer.list_watch import ListPage
from podscale.serving.auth import trust as trust_module
from podscale.serving.auth.trust import (
    AuthenticationConfig,
    Trust,
    TrustError,
    TrustSource,
    read_ca_files,
)
from podscale.serving.certificates.tls import TlsError
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import parse
from tests.unit.serving.kit import Pki, ScriptedApi, authority

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


def config_map(pki: Pki, **more: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": pki.clients.cert_pem.bytes().decode(),
            "requestheader-client-ca-file": pki.proxies.cert_pem.bytes().decode(),
            "requestheader-allowed-names": json.dumps(["front-proxy-client"]),
            "requestheader-username-headers": json.dumps(["X-Remote-User"]),
            "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
            **more,
        },
    }


def source(*argv: str) -> TrustSource:
    flags = parse(argv, API_SERVER)
    return TrustSource(flags, read_ca_files(flags))


async def test_the_config_map_names_cas_and_headers(pki: Pki) -> None:
    api = ScriptedApi()
    api.objects[PATH] = config_map(pki)
    trust = source()
    assert trust.needs_lookup
    heard: list[Trust] = []
    trust.listeners.append(heard.append)
    await trust.look_up(api)
    assert heard == [trust.current]
    assert trust.current.client_ca == (authority(pki.clients),)
    proxy = trust.current.proxy
    assert proxy.ca == (authority(pki.proxies),)
    assert proxy.allowed_names == ("front-proxy-client",)
    assert proxy.username_headers == ("x-remote-user",)
    assert proxy.extra_prefixes == ("x-remote-extra-",)
    await trust.look_up(api)
    assert len(heard) == 1


async def test_files_win_over_the_config_map(tmp_path: Path, pki: Pki) -> None:
    own = Pki()
    (tmp_path / "ca.crt").write_bytes(own.clients.cert_pem.bytes())
    trust = source(f"--client-ca-file={tmp_path / 'ca.crt'}")
    api = ScriptedApi()
    api.objects[PATH] = config_map(pki)
    assert trust.needs_lookup
    await trust.look_up(api)
    assert trust.current.client_ca == (authority(own.clients),)
    assert trust.current.proxy.ca == (authority(pki.proxies),)


def test_lookup_can_be_skipped_and_is_when_files_say_everything(tmp_path: Path, pki: Pki) -> None:
    assert not source("--authentication-skip-lookup").needs_lookup
    (tmp_path / "ca.crt").write_bytes(pki.clients.cert_pem.bytes())
    both = [f"--{name}={tmp_path / 'ca.crt'}" for name in
            ("client-ca-file", "requestheader-client-ca-file")]  # fmt: skip
    assert not source(*both).needs_lookup


async def test_an_unreadable_config_map_stops_the_start_unless_tolerated() -> None:
    with pytest.raises(TrustError, match="extension-apiserver-authentication-reader"):
        await source().look_up(ScriptedApi())
    tolerant = source("--authentication-tolerate-lookup-failure")
    await tolerant.look_up(ScriptedApi())
    assert tolerant.current.authorities == ()


async def test_a_config_map_that_makes_no_sense_is_told_and_no_traceback() -> None:
    api = ScriptedApi()
    api.objects[PATH] = {"metadata": {"name": 7}, "data": "none"}
    with pytest.raises(TrustError, match="extension-apiserver-authentication"):
        await source().look_up(api)


@pytest.mark.parametrize(
    "broken",
    [
        {"requestheader-allowed-names": "front-proxy-client"},
        {"client-ca-file": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
    ],
)
async def test_a_broken_change_keeps_the_old_trust(pki: Pki, broken: dict[str, str]) -> None:
    api = ScriptedApi()
    api.objects[PATH] = config_map(pki)
    trust = source()
    await trust.look_up(api)
    before = trust.current
    api.objects[PATH] = config_map(pki, **broken)
    with pytest.raises(TrustError):
        await trust.look_up(api)
    assert trust.current == before


async def test_who_could_not_follow_is_told_again(tmp_path: Path, pki: Pki) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(pki.clients.cert_pem.bytes())
    trust = source(f"--client-ca-file={file}", "--authentication-skip-lookup")
    judged: list[Trust] = []
    served: list[Trust] = []
    has_files = False

    def serve(now: Trust) -> None:
        if not has_files:
            raise TlsError("no file descriptor left")
        served.append(now)

    trust.listeners += [judged.append, serve]
    for ca in (pki.strangers, pki.clients, pki.clients):  # there and back, and once more
        with pytest.raises(TlsError):
            trust.use_file("client-ca-file", ca.cert_pem.bytes())
        assert judged[-1].client_ca == (authority(ca),)
    has_files = True
    trust.use_file("client-ca-file", pki.clients.cert_pem.bytes())
    trust.use_file("client-ca-file", pki.clients.cert_pem.bytes())
    assert served == [trust.current]
    assert trust.current.client_ca == (authority(pki.clients),)


async def test_a_change_that_tls_could_not_follow_is_not_forgotten(pki: Pki) -> None:
    api = ScriptedApi()
    api.objects[PATH] = config_map(pki)
    trust = source("--authentication-tolerate-lookup-failure")
    served: list[Trust] = []
    has_files = False

    def serve(now: Trust) -> None:
        if not has_files:
            raise TlsError("no file descriptor left")
        served.append(now)

    trust.listeners.append(serve)
    with pytest.raises(TlsError):
        await trust.look_up(api)
    has_files = True
    trust.use_file("client-ca-file", b"")
    assert served == [trust.current]
    assert trust.current.client_ca == (authority(pki.clients),)


@pytest.mark.parametrize(
    ("names", "is_told"),
    [pytest.param([], True, id="no-names"), pytest.param(["front-proxy-client"], False, id="name")],
)
async def test_one_ca_for_users_and_front_proxy_without_names_is_told(
    pki: Pki, names: list[str], is_told: bool
) -> None:
    api = ScriptedApi()
    same = pki.clients.cert_pem.bytes().decode()
    api.objects[PATH] = config_map(
        pki,
        **{
            "requestheader-client-ca-file": same,
            "requestheader-allowed-names": json.dumps(names),
        },
    )
    with structlog.testing.capture_logs() as logs:
        await source().look_up(api)
    assert [one["event"] for one in logs] == ["FrontProxyNotBelieved"] * is_told


async def test_nothing_ends_following_the_config_map(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def happenings(_api: Any, _source: Any) -> AsyncIterator[ListPage[AuthenticationConfig]]:
        asked.append(len(asked))
        if len(asked) < 3:
            raise OSError(24, "Too many open files")
        wanted = msgspec.convert(config_map(pki), AuthenticationConfig)
        yield ListPage([wanted], "1")
        await asyncio.Event().wait()

    monkeypatch.setattr(trust_module, "happenings", happenings)
    monkeypatch.setattr(trust_module, "_AGAIN_S", 0.0)
    trust = source()
    refused: list[Trust] = []

    def refuse(now: Trust) -> None:
        refused.append(now)
        raise TlsError("no file descriptor left")

    trust.listeners.append(refuse)
    task = asyncio.create_task(trust.follow(ScriptedApi()))
    async with asyncio.timeout(5):
        while not refused:  # noqa: ASYNC110 - it says nothing when it is done
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(asked), task.done()) == (3, False)
    assert trust.current.client_ca == (authority(pki.clients),)
    task.cancel()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="--client-ca-file"):
        source(f"--client-ca-file={tmp_path / 'none'}")
