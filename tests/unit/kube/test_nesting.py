"""Objects that nest too deep are read without what does, and without recursion."""

import json
import sys
import time

import msgspec
import pytest

from podscale.kube.client import wire
from podscale.kube.client.wire import (
    LEVELS,
    UNREADABLE_MANAGER,
    ListOf,
    PartialObjectMetadata,
    WatchEvent,
    decode,
    shallow,
)
from tests.kit.nested import expanded, managed, nested

DEEP = [3_000, 9_995, 100_000]
# What looks like the key, and brackets, in strings.
TEXT = '"managedFields":[{[ \\" \\'


def body(levels: int, name: str = "web", **fields: object) -> bytes:
    meta = {"annotations": {TEXT: TEXT}, "name": name, "managedFields": managed(levels)}
    return expanded(json.dumps({"metadata": meta, **fields}, separators=(",", ":")).encode())


@pytest.mark.parametrize("levels", DEEP)
@pytest.mark.parametrize("before", [b"%b", b' {"type" : "ADDED", "object" : %b}'])
def test_an_object_is_read_without_its_managed_fields(levels, before):
    found = json.loads(shallow(before % body(levels, spec={"replicas": 3})))
    found = found.get("object", found)
    assert found["spec"] == {"replicas": 3}
    assert found["metadata"]["annotations"] == {TEXT: TEXT}
    writers = found["metadata"]["managedFields"]
    assert {each["manager"] for each in writers} == {UNREADABLE_MANAGER}
    assert {each["subresource"] for each in writers} == {"status", "scale"}


@pytest.mark.parametrize("levels", DEEP)
def test_neighbours_in_a_list_stay_as_they_are(levels):
    items = [body(5, "a"), body(levels, "b"), body(5, "c"), body(levels, "d")]
    found = json.loads(shallow(b'{"items":[%b],"metadata":{}}' % b",".join(items)))["items"]
    assert [found[0], found[2]] == [json.loads(items[0]), json.loads(items[2])]
    assert [each["metadata"]["name"] for each in found] == ["a", "b", "c", "d"]


def test_a_body_without_depth_is_the_same():
    assert shallow(body(LEVELS - 10)) == body(LEVELS - 10)


@pytest.mark.parametrize("levels", DEEP)
def test_any_other_value_that_nests_too_deep_is_null(levels):
    text = expanded(json.dumps({"a": [1, nested(levels), 2], "b": nested(20)}).encode())
    found = json.loads(shallow(text))
    assert found["b"] == json.loads(expanded(json.dumps(nested(20)).encode()))
    first, value, last = found["a"]
    assert (first, last) == (1, 2)
    for _ in range(LEVELS - 3):
        value = value["f:a"]
    assert value is None


def test_strings_and_brackets_across_chunks_are_read_alike(monkeypatch):
    whole = shallow(body(300))
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(wire, "_CHUNK_BYTES", size)
        assert shallow(body(300)) == whole


@pytest.mark.parametrize(
    "text", [b"", b"}", b"[", b'"', b"]" * 300, b"[" * 300, b"[" * 300 + b"]" * 250, b"\\"]
)
def test_what_is_no_json_is_none_afterwards(text):
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(shallow(text))


def test_cutting_takes_time_linear_in_the_length():
    def cpu_s(items: int) -> float:
        text = b'{"items":[%b]}' % b",".join([body(3_000)] * items)
        begun = time.process_time()
        shallow(text)
        return time.process_time() - begun

    cpu_s(10)
    assert min(cpu_s(400) / cpu_s(50) for _ in range(3)) < 16


@pytest.mark.parametrize("levels", DEEP)
def test_objects_events_and_lists_are_decoded(levels):
    name = decode(body(levels), PartialObjectMetadata).metadata.name
    event = decode(
        b'{"type":"ADDED","object":%b}' % body(levels), WatchEvent[PartialObjectMetadata]
    )
    page = decode(b'{"items":[%b]}' % body(levels), ListOf[msgspec.Raw])
    assert name == event.object.metadata.name == "web"
    assert decode(page.items[0], PartialObjectMetadata).metadata.name == "web"


def test_what_is_read_leaves_the_interpreters_limit_alone():
    limit = sys.getrecursionlimit()
    decode(body(100_000), PartialObjectMetadata)
    assert sys.getrecursionlimit() == limit
