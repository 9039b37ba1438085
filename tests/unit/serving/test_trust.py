"""Whom we believe: from files, from the ConfigMap, and from neither."""

import json
from pathlib import Path
from typing import Any

import pytest

from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import parse
from podscale.serving.trust import Trust, TrustError, TrustSource, read_ca_files
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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="--client-ca-file"):
        source(f"--client-ca-file={tmp_path / 'none'}")
