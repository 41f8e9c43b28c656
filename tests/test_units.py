from __future__ import annotations

import pytest

from ffnbench.units import IEC, SI, TIME, digits, percent, quantity, scale, signed_percent


@pytest.mark.parametrize(
    ("value", "text"), [(9.437184, "9.44"), (0.001234, "0.00123"), (999.96, "1,000"), (123456.0, "123,456"), (0, "0")]
)
def test_digits_keep_three_that_count(value: float, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.0123, "1.2%"), (0.37, "37%"), (0.0995, "10%"), (0.0004, "0.04%"), (-0.002, "0.2%")]
)
def test_percent_has_two_digits(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_signed_percent_has_a_sign_and_an_exact_zero() -> None:
    assert (signed_percent(0.002), signed_percent(-0.5), signed_percent(0.0)) == ("+0.2%", "-50%", "0%")


def test_one_scale_for_a_column_and_none_for_an_empty_one() -> None:
    assert scale([0.001, 0.025, 0.03], TIME)[0] == "ms"
    assert scale([], TIME) == ("", 1.0)
    assert quantity(12582912, IEC) == "12.0 MiB"
    assert quantity(12, SI) == "12"
