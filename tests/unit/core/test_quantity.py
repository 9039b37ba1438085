import pytest

from podscale.core import quantity
from podscale.core.quantity import Quantity, QuantityError
from tests.unit.core.rows import rows


# What a sample comes to in thousandths, and what does not fit, is the adapter's to say.
@pytest.mark.parametrize(
    ("milli", "decimal", "binary"),
    [
        (milli, decimal, binary)
        for _, milli, decimal, binary, _ in rows("B8")
        if milli != "-9223372036854775808"
    ],
)
def test_thousandths_become_the_recorded_quantities(milli, decimal, binary):
    got = int(milli)
    assert (quantity.format_milli(got), quantity.format_milli(got, "BinarySI")) == (
        decimal,
        binary,
    )


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("1.5", "1500m"),
        ("-1.5", "-1500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("1000000m", "1k"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e4", "10e3"),
        ("12e5", "1200e3"),
        ("1E", "1E"),
        ("1024Ki", "1Mi"),
        ("1.5Ki", "1536"),
        ("-1.5Gi", "-1536Mi"),
        ("0.0001Ki", "102400u"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1e-20", "1e-9"),
        ("9Ei", "9223372036854775807"),
        ("007Ki", "7Ki"),
        # What upstream's scanner lets through, although its message says otherwise.
        ("", None),
        ("+", "0"),
        ("-", "0"),
        (".", "0"),
        ("1Kii", None),
        ("1e", None),
        ("1.5.5", None),
        (" 1", None),
        ("1\n", None),
        ("0x1", None),
        ("1_000", None),
        ("١", None),
        ("NaN", None),
        ("1e99999999999999999999", None),
        ("e-12", None),
        # Differences to upstream: it prints "1" for the first and expands the second.
        ("1000E", "1000E"),
        ("1e999999999", None),
    ],
)
def test_a_text_is_refused_or_has_one_canonical_form(text, canonical):
    if canonical is None:
        with pytest.raises(QuantityError):
            quantity.parse(text)
    else:
        assert str(quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("1500m", 1500, 2),
        ("-1500m", -1500, -2),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1001u", 2, 1),
        ("2", 2000, 2),
        ("100Mi", 104857600000, 104857600),
    ],
)
def test_milli_and_value_round_away_from_zero(text, milli, value):
    got = quantity.parse(text)
    assert (got.milli, got.value) == (milli, value)


@pytest.mark.parametrize("text", ["0e999999999", "1e-999999999", "0e-999999999"])
def test_a_hostile_exponent_costs_nothing(text):
    assert quantity.parse(text).nano in (0, 1)


def test_a_hostile_length_is_refused_without_repeating_it():
    with pytest.raises(QuantityError) as caught:
        quantity.parse("1" * 100_000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("wire", "nano"), [(2, 2 * 10**9), (0.5, 5 * 10**8), (1e-7, 100), (" 3m ", 3 * 10**6)]
)
def test_bare_json_numbers_are_quantities(wire, nano):
    assert quantity.from_wire(wire).nano == nano


def test_the_error_tells_what_is_allowed():
    with pytest.raises(QuantityError, match=r"'5 apples': quantities must match the regular"):
        quantity.parse("5 apples")


def test_a_quantity_reads_as_a_float():
    assert float(quantity.parse("100m")) == 0.1


def test_binary_amounts_with_a_fraction_are_written_as_decimals():
    assert str(Quantity(1024_500_000_000, "BinarySI")) == "1024500m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("410m", 0.41000000000000003),
        ("0.41", 0.41000000000000003),  # canonical first: 410m
        ("235m", 0.23500000000000001),
        ("100m", 0.1),
        ("1", 1.0),
        ("1500m", 1.5),
        ("0.0005", 0.0005),
        ("-410m", -0.41000000000000003),
        ("1Gi", float(2**30)),
        ("0", 0.0),
    ],
)
def test_the_approximate_float_is_mantissa_times_power(text: str, expected: float) -> None:
    assert quantity.parse(text).approximate == expected
