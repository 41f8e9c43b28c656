"""Axes: how lists and ranges are read, which cells they make, and what is refused; by
itertools and by hand.
"""

from __future__ import annotations

from itertools import product

from fake_machine import planned
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


def test_cells_are_the_product_of_the_axes() -> None:
    plan = planned("relu,swiglu@d_ff=80..96/8", seq_len="1..8", dtype="float32,bf16")
    combinations = list(product(("float32", "bfloat16"), (1, 2, 4, 8), (80, 88, 96)))
    assert [group.values for group in plan.groups] == [
        dict(zip(("dtype", "seq_len", "d_ff"), one, strict=True))
        for one in combinations
    ]
    for group, (dtype, tokens, width) in zip(plan.groups, combinations, strict=True):
        relu, swiglu = group.cases
        assert [plan.name_of(case.label) for case in group.cases] == ["relu", "swiglu"]
        assert swiglu.label == f"swiglu@dtype={dtype}@seq_len={tokens}@d_ff={width}"
        assert {
            (case.workload.dtype, case.workload.seq_len) for case in group.cases
        } == {(dtype, tokens)}
        assert (swiglu.ffn.d_ff, relu.ffn.d_ff, swiglu.variant) == (
            width,
            3072,
            f"swiglu@d_ff={width}",
        )
        assert group.reference == relu.label
