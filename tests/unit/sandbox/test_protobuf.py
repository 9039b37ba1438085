import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.sandbox.encoding import protobuf
from podscale.serving.status import StatusError


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def envelope(api_version: bytes, kind: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def test_a_configmap_is_read():
    meta = field(1, b"a") + field(11, field(1, b"app") + field(2, b"web"))
    raw = field(1, meta) + field(2, field(1, b"k") + field(2, b"v")) + b"\x20\x01"
    assert protobuf.decode(envelope(b"v1", b"ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"app": "web"}},
        "data": {"k": "v"},
        "immutable": True,
    }


def test_unknown_kinds_and_cut_off_bodies_are_refused():
    for body in (
        b"",
        b"{}",
        envelope(b"v1", b"Pod", b""),
        envelope(b"v1", b"Namespace", b"\x0a\x7f"),
    ):
        with pytest.raises(StatusError) as refused:
            protobuf.decode(body)
        assert refused.value.status.code == 415


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_refusal(data):
    for body in (b"k8s\x00" + data, envelope(b"v1", b"Secret", data)):
        try:
            protobuf.decode(body)
        except StatusError:
            continue
