from hypothesis import given
from hypothesis import strategies as st

from podscale.core.times import duration
from podscale.core.times.duration import DurationError


@given(st.integers(-(2**63), 2**63 - 1))
def test_gos_text_reads_back_to_the_nanosecond(nanoseconds):
    text = duration.format_go_ns(nanoseconds)
    # Go multiplies fractions in doubles: beyond 2^53 its own text may read back 1 ns off.
    assert abs(duration.parse_go_ns(text) - nanoseconds) <= (0 if abs(nanoseconds) < 2**53 else 1)


@given(st.integers(0, 10**12))
def test_prometheus_text_reads_back_to_the_millisecond(milliseconds):
    text = duration.format_prometheus(milliseconds / 1000)
    assert duration.parse_prometheus_ns(text) == milliseconds * 10**6


@given(st.text(alphabet="+-.0123456789nuµmshdwy ", max_size=30))
def test_any_text_is_a_duration_or_a_duration_error(text):
    for parse in (duration.parse_go_ns, duration.parse_prometheus_ns):
        try:
            assert -(2**63) <= parse(text) < 2**63
        except DurationError:
            continue
