import json

import pytest

from podscale.core.times import duration
from podscale.core.times.duration import DurationError
from tests.unit.core.rows import rows


@pytest.mark.parametrize(("text", "wire", "error"), rows("B9"))
def test_windows_are_read_and_shown_as_recorded(text, wire, error):
    if error:
        with pytest.raises(DurationError) as caught:
            duration.parse_prometheus(text)
        assert str(caught.value) == error
    else:
        assert duration.format_go(duration.parse_prometheus(text)) == json.loads(wire)


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("0", 0, "0s"),
        ("+0", 0, "0s"),
        ("-0s", 0, "0s"),
        ("1h30m", 5400, "1h30m0s"),
        ("1.5s", 1.5, "1.5s"),
        ("-2ms", -0.002, "-2ms"),
        (".5h", 1800, "30m0s"),
        ("1.h", 3600, "1h0m0s"),
        ("1m1m", 120, "2m0s"),
        ("100us", 0.0001, "100µs"),
        ("100µs", 0.0001, "100µs"),
        ("1500ns", 0.0000015, "1.5µs"),
        ("1ns", 1e-9, "1ns"),
        ("90s", 90, "1m30s"),
        ("3661.001s", 3661.001, "1h1m1.001s"),
        ("0.999999999s", 0.999999999, "999.999999ms"),
        ("0.1000000000000000000000000000000001s", 0.1, "100ms"),
    ],
)
def test_go_durations(text, seconds, canonical):
    assert duration.parse_go(text) == seconds
    assert duration.format_go(seconds) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("5", 'time: missing unit in duration "5"'),
        (".s", 'time: invalid duration ".s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1h ", 'time: unknown unit "h " in duration "1h "'),
        ("s", 'time: invalid duration "s"'),
        ("--1s", 'time: invalid duration "--1s"'),
        ("1..5s", 'time: missing unit in duration "1..5s"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("9" * 50 + "h", f'time: invalid duration "{"9" * 50}h"'),
    ],
)
def test_what_is_no_go_duration_is_refused_with_gos_words(text, message):
    with pytest.raises(DurationError) as caught:
        duration.parse_go(text)
    assert str(caught.value) == message


def test_the_smallest_int64_is_a_go_duration():
    assert duration.parse_go_ns("-9223372036854775808ns") == -(2**63)
    assert duration.format_go_ns(-(2**63)) == "-2562047h47m16.854775808s"


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("1y", 31536000, "1y"),
        ("1y2w3d4h5m6s7ms", 33019506.007, "382d4h5m6s7ms"),
        ("90d", 7776000, "90d"),
        ("14d", 1209600, "2w"),
        ("90s", 90, "1m30s"),
        ("0ms", 0, "0s"),
    ],
)
def test_prometheus_durations(text, seconds, canonical):
    assert duration.parse_prometheus(text) == seconds
    assert duration.format_prometheus(seconds) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty duration string"),
        ("1s1h", 'not a valid duration string: "1s1h"'),
        ("m", 'not a valid duration string: "m"'),
        ("1x", 'unknown unit "x" in duration "1x"'),
        ("300y", "duration out of range"),
        ("9" * 30 + "s", f'not a valid duration string: "{"9" * 30}s"'),
    ],
)
def test_what_is_no_prometheus_duration_is_refused(text, message):
    with pytest.raises(DurationError) as caught:
        duration.parse_prometheus(text)
    assert str(caught.value) == message
