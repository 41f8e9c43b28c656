"""Numbers as people read and write them: properties of every number, and a few by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import (
    IEC,
    SI,
    TIME,
    decimals,
    digits,
    percent,
    quantity,
    read_count,
    read_percent,
    read_seconds,
    read_share,
    scale,
    signed_percent,
    supported,
)

POSITIVE = st.floats(1e-6, 1e12)


def last_place(value: float, significant: int) -> float:
    """What the last of so many significant digits counts."""
    return 10.0 ** (math.floor(math.log10(abs(value))) - significant + 1)


@given(POSITIVE)
def test_a_number_is_shown_to_three_digits_or_to_the_whole_ones(value: float) -> None:
    text = digits(value)
    assert abs(float(text.replace(",", "")) - value) <= 0.501 * min(1.0, last_place(value, 3))
    assert (digits(123456.0), digits(999.96), digits(0)) == ("123,456", "1,000", "0")


@given(st.floats(1e-3, 9.9))
def test_a_percentage_is_shown_to_two_digits(fraction: float) -> None:
    text = percent(fraction)
    assert abs(float(text.removesuffix("%")) - 100 * fraction) <= 0.501 * last_place(100 * fraction, 2)
    assert len(text) == (5 if text.startswith("0.") and text[2] == "0" else len(text))
    assert (signed_percent(fraction), signed_percent(-fraction)) == (f"+{text}", f"-{text}")


def test_percentages_at_their_ends() -> None:
    assert (percent(0.0004), percent(0.0995), percent(50)) == ("0.04%", "10%", ">999%")
    assert (signed_percent(0.0), signed_percent(-1e-6)) == ("0%", "0.00%")


@given(POSITIVE, st.floats(1e-6, 1.0))
def test_a_number_has_the_digits_that_its_half_width_supports(value: float, share: float) -> None:
    """To the first digit of the half-width, one more where that is a 1; never less than two digits of the number."""
    half = value * share
    shown = float(supported(value, half).replace(",", ""))
    assert abs(shown - value) <= 0.501 * max(last_place(half, 1), last_place(value, 5), 1e-9)
    by_hand = {0.3: 1, 0.1: 2, 0.19: 2, 0.02: 2, 0.012: 3, 5.0: 0, 1.5: 1}
    assert {half: decimals(half) for half in by_hand} == by_hand


def test_one_scale_for_a_column_and_none_for_an_empty_one() -> None:
    assert scale([0.001, 0.025, 0.03], TIME)[0] == "ms"
    assert scale([], TIME) == ("", 1.0)
    assert quantity(12582912, IEC) == "12.0 MiB"
    assert quantity(12, SI) == "12"


FACTORS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": Fraction(1, 1000)}
LONG = {"d": "days", "h": "hours", "m": "min", "s": "sec", "ms": "ms"}


@given(st.integers(0, 10**6), st.sampled_from([*FACTORS]), st.integers(1, 3))
def test_counts_as_people_write_them(number: int, unit: str, places: int) -> None:
    assert read_count(f" {number}{unit} ") == read_count(f"{number} {unit}") == number * FACTORS[unit]
    assert read_count(-number) == read_count(str(-number)) == -number
    written = f"{number / 10**places:.{places}f}{unit}"
    exact = Fraction(number, 10**places) * FACTORS[unit]
    if unit and exact.denominator == 1:
        assert read_count(written) == exact
    elif exact.denominator > 1:
        with pytest.raises(FfnbenchError):
            read_count(written)


@given(st.dictionaries(st.sampled_from([*UNITS]), st.integers(0, 999), min_size=1), st.booleans(), st.booleans())
def test_times_as_people_write_them(parts: dict[str, int], spaced: bool, long: bool) -> None:
    ordered = [(unit, parts[unit]) for unit in UNITS if unit in parts]
    texts = [f"{number}{LONG[unit] if long else unit}" for unit, number in ordered]
    seconds = float(sum(number * UNITS[unit] for unit, number in ordered))
    assert read_seconds((" " if spaced else "").join(texts)) == pytest.approx(seconds)
    assert read_seconds(f"{seconds}") == seconds
    if len(texts) > 1:
        with pytest.raises(FfnbenchError):
            read_seconds("".join(reversed(texts)))


@given(st.integers(0, 10**5))
def test_a_precision_is_percent_with_and_without_its_sign_and_a_share_needs_it(hundredths: int) -> None:
    number = f"{hundredths / 100:.2f}"
    assert read_percent(number) == read_percent(f"{number} %") == read_percent(f" {number}%") == hundredths / 100
    assert read_share(f"{number}%") == read_share(f"{number} %") == pytest.approx(hundredths / 10**4)
    if hundredths:
        with pytest.raises(FfnbenchError, match="could mean"):
            read_share(number)


EXAMPLES = {read_count: "2Ki", read_seconds: "1m30s", read_percent: "0.5%", read_share: "5%"}


def problem_of(read, text: str) -> FfnbenchError | None:
    try:
        read(text)
    except FfnbenchError as problem:
        return problem
    return None


@given(st.sampled_from([*EXAMPLES]), st.text("0159.%kKGMimshd½ -e", max_size=6))
def test_what_is_no_quantity_is_an_error_that_shows_some(read, text: str) -> None:
    problem = problem_of(read, text)
    if problem is not None:
        assert repr(text) in problem.message
        assert EXAMPLES[read] in problem.hint or "could mean" in problem.message


@pytest.mark.parametrize("read", EXAMPLES)
@pytest.mark.parametrize("text", ["", "k", "%", "s", "5x", "1%%", "2kk", "1s1s", "½", "2k%"])
def test_these_are_none(read, text: str) -> None:
    with pytest.raises(FfnbenchError):
        read(text)
