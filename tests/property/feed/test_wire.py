"""An answer whose label sets stay undecoded is the same answer."""

import math
from collections.abc import Sequence

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from podscale.feed.decoding.wire import InstantAnswer, VectorReader

LABELS = st.dictionaries(st.sampled_from(["pod", "namespace", "é"]), st.text(max_size=4))
TEXTS = (
    st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.integers(-(10**25), 10**25).map(str)
    | st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?(e[+-]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(["NaN", "+Inf", "-Inf", "0", "-0", "1e+308", "1e+400", "5e-324", "1e-400"])
)
ROWS = st.lists(st.tuples(LABELS, TEXTS | st.none()), max_size=6)
Rows = Sequence[tuple[dict[str, str], str | None]]


def read(rows: Rows, *, is_raw: bool) -> InstantAnswer:
    reader = VectorReader(is_raw=is_raw)
    entries = [
        {"metric": labels, "histogram": [1.5, {}]}
        if text is None
        else {"metric": labels, "value": [1763745333.25, text]}
        for labels, text in rows
    ]
    half = len(entries) // 2
    if half:
        reader.page(msgspec.json.encode(entries[:half]))
    rest = {"status": "success", "data": {"resultType": "vector", "result": entries[half:]}}
    return reader.end(msgspec.json.encode(rest))


@given(ROWS)
@example([({}, "+Inf"), ({"pod": "a"}, None), ({"pod": "b"}, "0.1")])
def test_raw_and_decoded_answers_are_equal(rows: Rows) -> None:
    raw, plain = read(rows, is_raw=True), read(rows, is_raw=False)
    assert raw.labelled().metrics == list(plain.metrics)
    assert list(raw.times) == list(plain.times)
    assert raw.is_float_only == plain.is_float_only
    for one, other in zip(raw.values, plain.values, strict=True):
        # Every bit of what was rounded; the sign of a zero says nothing.
        assert one == other or (math.isnan(one) and math.isnan(other))


@given(ROWS, ROWS)
def test_digests_are_equal_where_labels_are(one: Rows, other: Rows) -> None:
    ours, theirs = read(one, is_raw=True), read(other, is_raw=True)
    are_same = [labels for labels, text in one if text is not None] == [
        labels for labels, text in other if text is not None
    ]
    if ours.digest == theirs.digest:
        assert are_same
