"""Metadata and tables made of what a handler answered."""

import json

import pytest

from podscale.serving.apis.api import Media
from podscale.serving.apis.transformed import transformed
from podscale.serving.status import Status

METADATA = {"name": "web-1", "labels": {"app": "web"}}
ITEM = {"metadata": METADATA, "usage": {"cpu": "1"}}
LIST = {"kind": "PodMetricsList", "apiVersion": "x/v1", "metadata": {}, "items": [ITEM]}
ROW = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": METADATA}
TABLE = {
    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
    "rows": [{"cells": ["web-1"], "object": ROW}],
}  # fmt: skip


def made(answer: object, wanted: Media, include: str = "") -> dict[str, object]:
    found = transformed(json.dumps(answer).encode(), wanted, include)
    assert isinstance(found, bytes)
    assert found.endswith(b"}\n")
    return json.loads(found)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_list_becomes_the_metadata_of_its_items(version: str) -> None:
    wanted = Media(meta_version=version, as_metadata="PartialObjectMetadataList")
    assert made(LIST, wanted) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "items": [{**ROW, "apiVersion": f"meta.k8s.io/{version}"}],
    }


def test_what_would_hold_the_loop_up_is_not_transformed() -> None:
    large = {**LIST, "items": [ITEM] * 3000}
    wanted = Media(meta_version="v1", as_metadata="PartialObjectMetadataList")
    found = transformed(json.dumps(large).encode(), wanted, "")
    assert isinstance(found, Status)
    assert found.code == 406


def test_an_object_becomes_its_metadata() -> None:
    one = {"kind": "PodMetrics", "apiVersion": "x/v1", **ITEM}
    assert made(one, Media(as_metadata="PartialObjectMetadata")) == ROW


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        ("PartialObjectMetadata", LIST, "is a list (PodMetricsList)"),
        ("PartialObjectMetadataList", {"kind": "PodMetrics"}, "is not a list (PodMetrics)"),
    ],
)
def test_a_list_is_no_object_and_an_object_no_list(
    kind: str, answer: dict[str, object], message: str
) -> None:
    found = transformed(json.dumps(answer).encode(), Media(as_metadata=kind), "")
    assert isinstance(found, Status)
    assert found.code == 406
    assert found.message == f"you requested {kind}, but the requested object {message}"


def test_a_table_and_its_rows_are_of_the_version_that_was_asked_for() -> None:
    table = made(TABLE, Media(as_table=True, meta_version="v1beta1"))
    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


@pytest.mark.parametrize("include", ["", "Metadata"])
def test_a_table_with_metadata_is_sent_as_it_is(include: str) -> None:
    body = b"anything"
    assert transformed(body, Media(as_table=True), include) is body


def test_whole_objects_in_rows_keep_their_version() -> None:
    table = {**TABLE, "rows": [{"cells": [], "object": {**ITEM, "apiVersion": "x/v1"}}]}
    wanted = Media(as_table=True, meta_version="v1beta1")
    assert made(table, wanted, "Object")["rows"] == table["rows"]


def test_rows_may_be_without_their_objects() -> None:
    (row,) = made(TABLE, Media(as_table=True), "None")["rows"]
    assert row == {"cells": ["web-1"], "object": None}


def test_what_else_is_to_be_included_is_refused_in_gos_words() -> None:
    found = transformed(b"{}", Media(as_table=True), "Foo")
    assert isinstance(found, Status)
    assert found.code == 400
    assert found.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Foo": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )
