from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from podscale.core import quantity
from podscale.core.quantity import NANO, Quantity, QuantityError

FORMATS = st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"])
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


@given(INT64, FORMATS)
@example(625_000 * NANO, "BinarySI")
def test_canonical_text_reads_back_as_the_same_amount(nano, notation):
    amount = Quantity(nano, notation)
    again = quantity.parse(str(amount))
    assert again.nano == nano
    # A text without a suffix does not say that it was binary.
    if again.format == notation:
        assert str(again) == str(amount)


@given(INT64, FORMATS)
def test_the_wire_path_prints_what_the_exact_path_prints(milli, notation):
    assert quantity.format_milli(milli, notation) == str(Quantity(milli * quantity.MICRO, notation))


@given(INT64)
def test_rounding_never_loses_more_than_one_step(nano):
    amount = Quantity(nano)
    assert 0 <= abs(Fraction(amount.milli)) - abs(Fraction(nano, 10**6)) < 1
    assert 0 <= abs(Fraction(amount.value)) - abs(Fraction(nano, 10**9)) < 1


@given(st.text(alphabet="+-.0123456789eEinumkKMGTP \n", max_size=140))
def test_any_text_is_a_quantity_or_a_quantity_error(text):
    try:
        quantity.parse(text)
    except QuantityError:
        return


@given(st.decimals(-(10**15), 10**15, places=9), st.sampled_from(["", "m", "k", "G", "e3", "e-6"]))
def test_parsing_is_exact_or_rounds_away_from_zero(number, suffix):
    power = {"": 0, "m": -3, "k": 3, "G": 9, "e3": 3, "e-6": -6}[suffix]
    got = quantity.parse(f"{number:f}{suffix}").nano
    exact = Fraction(number) * Fraction(10) ** (power + 9)
    assert 0 <= abs(got) - abs(exact) < 1
