"""The webhook shows life only while the pods that it is asked about can be sized."""

import time
from typing import Any

import pytest

from podscale.kube.informer.list_watch import WatchBroken
from podscale.serving.certificates.issuing import (
    KeyPair,
    make_authority,
    make_leaf,
    make_self_signed,
)
from tests.kit.stores import fill
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.admission.registration import hindrance, is_trusted
from vpa.stores import VpaStores

NOW = 1_800_000_000.0
CA = make_authority("ca", now=NOW, life_s=1000.0)
LEAF = make_leaf(CA, ["vpa-webhook.kube-system.svc"], now=NOW, life_s=500.0)
OTHER = make_authority("ca", now=NOW, life_s=1000.0)


def watching() -> VpaStores:
    stores = VpaStores(API, NoKinds(), needs_pods=False)
    workloads = stores.workloads
    for each in (stores.vpas, stores.limit_ranges, *workloads.by_kind.values(),
                 workloads.controllers, workloads.cron_jobs):  # fmt: skip
        fill(each)
    return stores


def test_a_webhook_that_sees_and_is_trusted_lives() -> None:
    assert hindrance(watching(), LEAF, CA.certificate, NOW) == ""
    assert hindrance(watching(), LEAF, b"", NOW) == ""


@pytest.mark.parametrize("kind", ["vpas", "ReplicaSet"])
def test_a_broken_watch_is_no_life(kind: str) -> None:
    stores = watching()
    store: Any = stores.vpas if kind == "vpas" else stores.workloads.by_kind[kind]
    store.apply(WatchBroken("silent"), scope="", now=time.monotonic())
    assert stores.is_synced
    assert "watches" in hindrance(stores, LEAF, CA.certificate, NOW)


@pytest.mark.parametrize("now", [NOW + 501.0, NOW - 3600.0])
def test_a_certificate_that_is_not_valid_now_is_no_life(now: float) -> None:
    assert "certificate" in hindrance(watching(), LEAF, b"", now)


def test_a_ca_bundle_of_somebody_else_is_no_life() -> None:
    assert "caBundle" in hindrance(watching(), LEAF, OTHER.certificate, NOW)


@pytest.mark.parametrize(
    ("bundle", "trusted"),
    [
        pytest.param(CA.certificate, True, id="its-ca"),
        pytest.param(OTHER.certificate + CA.certificate, True, id="one-of-several"),
        pytest.param(LEAF.certificate, True, id="itself"),
        pytest.param(OTHER.certificate, False, id="another-of-the-same-name"),
        pytest.param(b"nothing", False, id="no-certificate"),
    ],
)
def test_trust(bundle: bytes, trusted: bool) -> None:
    assert is_trusted(LEAF, bundle, NOW) is trusted


# A CA on prime239v1, a curve that cryptography does not know, until 2126; made by openssl.
FOREIGN = b"""-----BEGIN CERTIFICATE-----
MIIBaDCCAROgAwIBAgIUK6UGrarNR/xhMKBeubCG3t1j8TwwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTIyMjMzMjM1WhgPMjEyNjEwMjkyMzMyMzVa
MA0xCzAJBgNVBAMMAmNhMFUwEwYHKoZIzj0CAQYIKoZIzj0DAQQDPgAEE34ZIhde
UWvg8XARlixgKiQk6AEU4HKOq3jTtd1kWVNdAw5AIXagShv0i5kX7LV2P8b7nSIs
kBxRfBD6o1MwUTAdBgNVHQ4EFgQUW5Fn5NyKzgYJa6KAvtUEBOrp7GIwHwYDVR0j
BBgwFoAUW5Fn5NyKzgYJa6KAvtUEBOrp7GIwDwYDVR0TAQH/BAUwAwEB/zAKBggq
hkjOPQQDAgNDADBAAh4t/4JDL2nqlxrqxcYk3lerAr1gdhDhGLZKnFJ+O1gCHiUo
OJoLIrOSHZ9yK8s8Yg82ar/jPHcLKo5z0moE2g==
-----END CERTIFICATE-----
"""


def test_a_ca_of_an_unknown_curve_is_another() -> None:
    assert "caBundle" in hindrance(watching(), LEAF, FOREIGN, NOW)
    assert is_trusted(LEAF, FOREIGN + CA.certificate, NOW)


def test_an_expired_ca_verifies_nobody() -> None:
    old = make_authority("ca", now=NOW, life_s=100.0)
    leaf = make_leaf(old, ["x"], now=NOW, life_s=100.0)
    assert not is_trusted(leaf, old.certificate, NOW + 101.0)


def test_a_chain_leads_to_the_anchor() -> None:
    self_signed = make_self_signed(now=NOW)
    assert is_trusted(self_signed, self_signed.certificate, NOW)
    whole = KeyPair(LEAF.certificate + CA.certificate, LEAF.key)
    assert is_trusted(whole, CA.certificate, NOW)
    assert not is_trusted(whole, OTHER.certificate, NOW)
