"""Bytes to objects and back, and what importing the room costs."""

import subprocess
import sys

import pytest

from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client import resource
from podscale.kube.client.wire import (
    ObjectMeta,
    builtins,
    decode,
    encode,
    format_micro_time,
    parse_time,
)
from podscale.kube.objects.cluster import Lease
from podscale.kube.objects.scale import ReplicationController


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T10:00:00Z", 1795255200.0),
        ("2026-11-21T11:00:00+01:00", 1795255200.0),
        ("2026-11-21T10:00:00.123456Z", 1795255200.123456),
        ("2026-11-21T10:00:00.123456789Z", 1795255200.123456),
    ],
)
def test_every_form_of_a_time_is_unix_seconds(text, seconds):
    assert parse_time(text) == pytest.approx(seconds, abs=1e-6)


def test_times_are_written_with_the_digits_that_go_takes():
    assert rfc3339(1795255200.9) == "2026-11-21T10:00:00Z"
    assert format_micro_time(1795255200.0) == "2026-11-21T10:00:00.000000Z"


def test_a_decoded_time_is_a_number_and_encodes_as_it_was():
    body = b'{"metadata":{"name":"a","creationTimestamp":"2026-11-21T10:00:00Z"}}'
    meta = decode(body, Lease).metadata
    assert meta.creation_timestamp == 1795255200.0
    assert meta.creation_timestamp + 1 == 1795255201.0
    assert b'"creationTimestamp":"2026-11-21T10:00:00Z"' in encode(meta)
    assert builtins(meta)["creationTimestamp"] == "2026-11-21T10:00:00Z"


def test_nulls_that_go_writes_for_empty_maps_and_times_are_read():
    found = decode(
        b'{"metadata":{"name":"web","creationTimestamp":null},"spec":{"selector":null}}',
        ReplicationController,
    )
    assert (found.metadata.creation_timestamp, found.spec.selector) == (None, None)


def test_paths_are_escaped():
    assert resource.PODS.path("shop", "a/b") == "/api/v1/namespaces/shop/pods/a%2Fb"
    assert resource.NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert resource.DEPLOYMENTS.path("shop", "web", "scale") == (
        "/apis/apps/v1/namespaces/shop/deployments/web/scale"
    )
    assert resource.DEPLOYMENTS.path() == "/apis/apps/v1/deployments"


def test_the_controller_is_the_owner_that_controls():
    meta = decode(
        b'{"ownerReferences":[{"kind":"Node","name":"n","uid":"1"},'
        b'{"kind":"ReplicaSet","name":"r","uid":"2","controller":true}]}',
        ObjectMeta,
    )
    assert meta.controller is not None
    assert meta.controller.name == "r"


def test_importing_the_room_does_not_import_kubernetes_asyncio():
    code = (
        "import importlib, pkgutil, sys, podscale.kube as kube\n"
        "for found in pkgutil.walk_packages(kube.__path__, 'podscale.kube.'):\n"
        "    importlib.import_module(found.name)\n"
        "print([name for name in sys.modules if name.startswith('kubernetes_asyncio')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
