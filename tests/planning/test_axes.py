"""Axes: how lists and ranges are read, which cells they make, and what is refused; by
itertools and by hand.
"""

from __future__ import annotations

from itertools import product

import numpy
import pytest
from fake_machine import FakeLaunch, KnownProber, measure, prepare
from hypothesis import given
from hypothesis import strategies as st

import ffnbench
from ffnbench.activations.plan import plan_timing
from ffnbench.block.plan import lengths_of, plan_block
from ffnbench.block.rows import block_records
from ffnbench.block.table import block_frame
from ffnbench.common.errors import FfnbenchError
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.fields import several
from ffnbench.report.terminal import plain
from ffnbench.request import BlockRequest, CompareRequest, TimingRequest


def planned(variants: str, **options: object) -> Plan:
    return plan_compare(CompareRequest(variants=variants, **options), KnownProber(1.0))


def points(plan: Plan) -> list[dict]:
    return [dict(group.values) for group in plan.groups]


def numbers(text: str) -> list[float]:
    return list(several("d_ff", text, float))


@given(
    st.integers(1, 999), st.integers(0, 60), st.integers(1, 40), st.sampled_from((1, 4))
)
def test_a_range_with_a_step_is_that_of_python(
    first: int, steps: int, step: int, parts: int
) -> None:
    """In quarters as well: what is left over behind the last step is not reached."""
    last = first + steps * step + step // 2
    expected = [value / parts for value in range(first, last + 1, step)]
    if step <= last - first:
        assert numbers(
            f"{first / parts}..{last / parts}/{step / parts}"
        ) == pytest.approx(expected)


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
    assert points(plan) == [
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
        assert group.reference == relu.label == swiglu.against


def test_each_flag_and_each_key_is_an_axis() -> None:
    flags = {"batch": (1, 8), "d_ff": (64, 128), "mode": ("forward", "train"), "threads": (1, 2),
             "device": ("cpu", "cuda")}  # fmt: skip
    for name, values in flags.items():
        text = ",".join(map(str, values))
        more = {} if name == "device" else {"device": "cpu"}
        assert points(planned("relu,swiglu", d_model=64, **{name: text}, **more)) == [
            {name: one} for one in values
        ]
    keys = {"d_ff": (64, 128), "seq_len": (1, 2), "bias": (True, False), "moe": ("4x2", "8x2"),
            "rule": ("llama", "classic"), "init": ("torch", "normal"), "beta": (0.5, 2), "limit": ("none", 7),
            "ratio": (2, 3.5), "cache": ("hot", "cold"), "matmul_precision": ("highest", "high"), "dropout": (0, 0.5),
            "compile": ("default", "max-autotune"), "gate": ("inner", "output")}  # fmt: skip
    for name, values in keys.items():
        typed = ",".join(str(one).lower() for one in values)
        plan = planned(
            f"relu,a=swiglu@{name}={typed},gelu", d_model=64, device="cpu", match="none"
        )
        assert points(plan) == [{name: one} for one in values]
        assert [plan.name_of(case.label) for case in plan.groups[1].cases] == [
            "relu",
            "a",
            "gelu",
        ]


def test_python_takes_arrays() -> None:
    report = ffnbench.cost(
        ["relu"],
        d_model=numpy.array([64, 96]),
        batch=numpy.arange(2, 4),
        dtype=("fp32", "bf16"),
    )
    assert points(report.plan) == [
        {"d_model": d, "dtype": t, "batch": b}
        for d, t, b in product((64, 96), ("float32", "bfloat16"), (2, 3))
    ]


def test_python_is_told_of_arguments() -> None:
    assert points(ffnbench.cost("relu", seq_len=range(8, 0, -2)).plan) == [
        {"seq_len": n} for n in (2, 4, 6, 8)
    ]
    with pytest.raises(
        FfnbenchError, match=r"^--seq-len 1\.\.10/20 has a step"
    ) as caught:
        ffnbench.cost("relu", seq_len="1..10/20")
    argument = caught.value.hint.removeprefix("for example --seq-len ")
    assert len(ffnbench.cost("relu", seq_len=argument).plan.groups) > 1


def test_block_and_activations() -> None:
    plan = plan_block(
        BlockRequest(
            seq_len="8..32",
            dtype="float32,bf16",
            d_model="64,128",
            device="cpu",
            threads=1,
        )
    )
    found = [
        (one.ffn.ffn.d_model, one.ffn.workload.dtype, one.seq_len)
        for one in lengths_of(plan)
    ]
    assert found == list(product((64, 128), ("float32", "bfloat16"), (8, 16, 32)))
    assert all(
        dict(case.point)["seq_len"] == case.workload.seq_len for case in plan.cases
    )
    assert {
        case.ffn.d_model for case in plan.cases if case.label.startswith("attention@")
    } == {64, 128}
    timing = plan_timing(
        TimingRequest(
            activations="swish@beta=0.5..2,gelu", elements="1Ki..2Ki", threads="1,2"
        )
    )
    seen = [(dict(g.values), [case.variant for case in g.cases]) for g in timing.groups]
    combinations = product((1024, 2048), (1, 2), (0.5, 1, 2), ("forward", "backward"))
    keys = ("elements", "threads", "beta", "mode")
    assert seen == [
        (dict(zip(keys, one, strict=True)), ["relu", "swish", "gelu"])
        for one in combinations
    ]


def test_blocks_of_a_sweep_are_shown_apart() -> None:
    request = BlockRequest(
        d_model=64,
        dtype="float32,bf16",
        seq_len="8,16",
        threads=1,
        device="cpu",
        quick=True,
    )
    report = measure(prepare(request), launch=FakeLaunch())
    text = plain(block_frame(report), 120)
    headers = [line for line in text.splitlines() if line.startswith("d_model 64,")]
    assert [line.split(", ")[1] for line in headers] == ["float32", "bfloat16"]
    assert text.count("measured") == 2
    rows = [
        (row["dtype"], row["seq_len"], row["threads"]) for row in block_records(report)
    ]
    assert rows == [
        ("float32", 8, 1),
        ("float32", 16, 1),
        ("bfloat16", 8, 1),
        ("bfloat16", 16, 1),
    ]


# Many cells
