"""An anchor is read back as it was written, or not at all."""

import pytest

from podscale.coordinate.anchor import Anchor, counted_requests, format_anchor, parse

ANCHOR = Anchor(1000, 700, "u-1", 5, 7)


def test_an_anchor_is_read_back():
    assert parse(format_anchor(ANCHOR), "u-1") == ANCHOR


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "1000",
        "[]",
        "{",
        "[" * 400,
        '{"milli":0,"size":1,"uid":"u-1"}',
        '{"milli":1,"size":-1,"uid":"u-1"}',
        '{"milli":1.5,"size":1,"uid":"u-1"}',
        '{"milli":10000000000,"size":1,"uid":"u-1"}',
        '{"milli":1,"size":1,"uid":"u-1","more":1}',
        '{"milli":1,"size":1}',
        '{"milli":1,"size":1,"uid":"u-1"}' + " " * 600,
        '{"milli":1,"size":1,"uid":"another"}',
        '{"milli":1,"size":1,"uid":""}',
    ],
)
def test_what_is_no_anchor_of_this_workload_is_none(text):
    assert parse(text, "u-1") is None


def test_an_unknown_workload_has_no_anchor():
    assert parse('{"milli":1,"size":1,"uid":""}', "") is None


def test_a_pod_counts_for_the_anchor_and_a_small_one_for_its_share():
    anchor = Anchor(1000, 800, "u")
    counted = counted_requests({"as-sized": 800, "large": 2000, "half": 400, "none": 0}, anchor)
    assert counted == {"as-sized": 1000, "large": 1000, "half": 500, "none": 1}
