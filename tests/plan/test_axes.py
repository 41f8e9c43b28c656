"""Axes: how lists and ranges are read, which cells they make, and what is refused; by
itertools and by hand.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ffnbench.plan.reading import many, number


def numbers(text: str) -> list[float]:
    return list(many(number)("d_ff", text))


@given(st.integers(1, 999), st.integers(0, 60), st.integers(1, 40))
def test_a_range_with_a_step_is_that_of_python(
    first: int, steps: int, step: int
) -> None:
    """What is left over behind the last step is not reached."""
    last = first + steps * step + (step // 2 if steps else 0)
    assert numbers(f"{first}..{last}/{step}") == list(range(first, last + 1, step))


@given(st.integers(1, 999), st.integers(0, 9), st.integers(0, 98))
def test_a_range_without_a_step_doubles_and_has_its_end(
    first: int, doublings: int, more: int
) -> None:
    last = first * 2**doublings + more * first // 100
    values = [first * 2**n for n in range(doublings + 1)]
    assert numbers(f"{first}..{last}") == (
        values if last == values[-1] else [*values, last]
    )
    assert numbers(f"{first}..{last}, {last + 7}") == [
        *numbers(f"{first}..{last}"),
        last + 7,
    ]
