"""Powers to the last bit: the expected doubles were printed by Go 1.26's math package."""

import numpy as np
import pytest

from vpa.model.histograms import buckets


@pytest.mark.parametrize(
    ("exponent", "printed"),
    [
        (1, "0x1.0cccccccccccdp+00"),
        (2, "0x1.1a3d70a3d70a4p+00"),
        (3, "0x1.285a1cac08313p+00"),
        (7, "0x1.6837bbb97f124p+00"),
        (34, "0x1.5036da667c791p+02"),
        (35, "0x1.6106655202b26p+02"),
        (36, "0x1.72ad1d961c6e7p+02"),
        (90, "0x1.42ebe4d0c08f6p+06"),
        (175, "0x1.3f28c0b1c2558p+12"),
    ],
)
def test_whole_powers(exponent: int, printed: str) -> None:
    assert buckets.power(1.05, exponent) == float.fromhex(printed)


@pytest.mark.parametrize(
    ("exponent", "printed"),
    [
        (0.0, "0x1p+00"),
        (0.05, "0x1.09071f3e983adp+00"),
        (-0.05, "0x1.ee8f34dd8042fp-01"),
        (0.5, "0x1.6a09e667f3bccp+00"),
        (-0.5, "0x1.6a09e667f3bccp-01"),
        (0.7, "0x1.9fdf8bcce533dp+00"),
        (1.35, "0x1.46499af31b007p+01"),
        (3.999, "0x1.ffa52de61c12p+03"),
        (-17.3, "0x1.9fdf8bcce533ap-18"),
        (99.9999, "0x1.fff6ea43bd8d7p+99"),
        (1.0 / 3.0, "0x1.428a2f98d728bp+00"),
        (2.5, "0x1.6a09e667f3bccp+02"),
    ],
)
def test_powers_of_two(exponent: float, printed: str) -> None:
    assert float(buckets.exp2(np.array([exponent]))[0]) == float.fromhex(printed)


@pytest.mark.parametrize(
    ("base", "exponent", "printed"),
    [
        ("0x1.004189374bc6ap+00", -2, "0x1.fefa3faa4d8d6p-01"),
        ("0x1.004189374bc6ap+00", 1, "0x1.004189374bc6ap+00"),
        ("0x1.004189374bc6ap+00", 2, "0x1.008323358f2dfp+00"),
        ("0x1.5555555555555p+00", -2, "0x1.2p-01"),
        ("0x1.5555555555555p+00", -1, "0x1.8p-01"),
        ("0x1.5555555555555p+00", 3, "0x1.2f684bda12f68p+01"),
        ("0x1.42p+07", -2, "0x1.439f40cc28f76p-15"),
    ],
)
def test_whole_powers_of_any_sign(base: str, exponent: int, printed: str) -> None:
    assert buckets.whole_power(float.fromhex(base), exponent) == float.fromhex(printed)
    alike = buckets.whole_power(np.array([float.fromhex(base)]), exponent)
    assert alike.tolist() == [float.fromhex(printed)]
