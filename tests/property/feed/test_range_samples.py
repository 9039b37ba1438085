"""Taking digits out of the text gives what the decoder gives, bit by bit."""

import json
import math
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscale.feed.decoding import range_samples

BEGIN_S, STEP_S = 1_795_550_400, 300


def as_go(value: float) -> str:
    """Return a number as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value and (abs(value) < 1e-6 or abs(value) >= 1e21):
        return repr(value)
    return np.format_float_positional(value, trim="-")


def any_float(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


NUMBERS = st.one_of(
    st.floats(0, 100),
    st.floats(width=64),
    st.integers(0, 2**64 - 1).map(any_float),
    st.integers(0, 10**19).map(float),
    st.integers(0, 10**7).map(lambda whole: whole / 1e6),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1, 2.5e-5, 1e17]),
)
# Each makes a text of a number; all but the first are other servers'.
FORMATS = st.sampled_from([as_go, as_go, as_go, repr, "{:.3e}".format, "{:.6f}".format,
                           "{:.40f}".format])  # fmt: skip
TIMES = st.sampled_from([str, str, str, "{}.5".format, "{:.9e}".format, " {}".format])


def text_of(values, written, at, missing) -> msgspec.Raw:
    pairs = [
        f'[{at(BEGIN_S + step * STEP_S)},"{written(float(value))}"]'
        for step, value in enumerate(values) if step not in missing
    ]  # fmt: skip
    return msgspec.Raw(f"[{','.join(pairs)}]".encode())


def same(texts: list[msgspec.Raw]) -> None:
    read = range_samples.read(texts)
    decoded = range_samples.decoded(map(memoryview, texts))
    assert read.counts == decoded.counts
    np.testing.assert_array_equal(read.time_s, decoded.time_s)
    # NaN is NaN, whichever; of zeros the sign counts.
    np.testing.assert_array_equal(read.values, decoded.values)
    np.testing.assert_array_equal(np.signbit(read.values), np.signbit(decoded.values))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_read_the_same(data):
    seed, written = data.draw(st.lists(NUMBERS, min_size=1, max_size=40)), data.draw(FORMATS)
    at, odd = data.draw(TIMES), data.draw(st.integers(0, 29))
    missing = data.draw(st.sets(st.integers(0, 99), max_size=60))
    shuffled = np.random.default_rng(len(seed))
    texts = [
        text_of(shuffled.choice(seed, 100), written, at if place == odd else str,
                missing if place % 3 else ())
        for place in range(30)
    ]  # fmt: skip
    same([*texts, msgspec.Raw(b"[]"), *texts])


@pytest.mark.parametrize("digits", [1, 6, 9, 12, 15, 16, 17])
def test_every_length_is_rounded_as_the_decoder_does(digits):
    rng = np.random.default_rng(digits)
    values = 10.0 ** rng.uniform(-5, 6, 200_000)
    if digits < 17:
        values = np.array([float(f"{value:.{digits}g}") for value in values])
    same([text_of(part, as_go, str, ()) for part in values.reshape(100, -1)])


def test_what_prometheus_writes_is_not_left_to_the_decoder():
    values = np.random.default_rng(1).lognormal(size=(60, 100))
    texts = [text_of(each, as_go, str, ()) for each in values]
    assert range_samples._scanned([memoryview(each) for each in texts]) is not None


@pytest.mark.parametrize("change", [
    (b"],[", b"], ["), (b',"', b', "'), (b"[17", b"[-7"), (b"17955", b"1.955"),
])  # fmt: skip
def test_another_form_is_left_to_the_decoder(change):
    texts = [text_of(each, as_go, str, ()) for each in np.ones((60, 100))]
    texts[30] = msgspec.Raw(bytes(texts[30]).replace(*change))
    assert range_samples._scanned([memoryview(each) for each in texts]) is None
    same(texts)


@pytest.mark.parametrize("value", ["", "x", "1.2.3", ".", ".5", "5.", "1_0", "0x1", '\\"1'])
def test_what_is_no_number_is_an_error(value):
    texts = [text_of([1.0] * 100, as_go, str, ()) for _ in range(60)]
    texts[7] = msgspec.Raw(bytes(texts[7]).replace(b'"1"', f'"{value}"'.encode(), 1))
    with pytest.raises(msgspec.MsgspecError):
        range_samples.read(texts)
    with pytest.raises(msgspec.MsgspecError):
        range_samples.decoded(map(memoryview, texts))


@pytest.mark.parametrize("body", [b"{}", b"1", b'[[1,"2"],3]', b"[[1]]", b'"],[1795550400,"'])
def test_what_is_no_array_of_pairs_is_an_error(body):
    texts = [text_of([1.0] * 100, as_go, str, ()) for _ in range(60)]
    texts[7] = msgspec.Raw(
        body if not body.startswith(b'"') else json.dumps(body.decode()).encode()
    )
    with pytest.raises(msgspec.MsgspecError):
        range_samples.read(texts)
