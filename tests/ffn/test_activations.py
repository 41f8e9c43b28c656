"""The table of activations against mathematics: float64, libm, and constants known to
ten digits.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from activation_formulas import ORACLE

from ffnbench.ffn.activations import ACTIVATIONS, HF_ACTIVATIONS
from ffnbench.ffn.spec import GATED, Applied, act

ALL = [row.name for row in ACTIVATIONS]


def apply(name: str, x: torch.Tensor, **parameters: float) -> torch.Tensor:
    return Applied(act(name, **parameters)).of(F, x)


@pytest.mark.parametrize("name", ALL)
def test_values_agree_with_the_definition_in_float64(name: str) -> None:
    grid = [-30, -12, *(i / 8 for i in range(-64, 65)), 12, 30]
    parameters = {"beta": 0.5} if name == "swish" else {}
    ours = apply(name, torch.tensor(grid, dtype=torch.float64), **parameters).tolist()
    assert ours == pytest.approx([ORACLE[name](x) for x in grid], rel=1e-12, abs=1e-12)


def test_swish_scales_with_beta_and_is_half_of_x_at_zero() -> None:
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    assert torch.equal(apply("swish", x, beta=0.0), x / 2)
    assert torch.allclose(
        apply("swish", x, beta=1.0), apply("silu", x), rtol=0, atol=1e-15
    )
    assert torch.allclose(
        apply("swish", x, beta=2.0), apply("silu", 2 * x) / 2, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_smooth_relu2_keeps_its_digits_below_zero(dtype: str) -> None:
    """By s^2 x / (2 (r - x)), to which its formula comes there."""
    row = getattr(torch, dtype)
    x = torch.linspace(-100, -0.01, 4001, dtype=torch.float64).to(row)
    for smooth in (0.2, 2.0):
        exact = (
            x.double()
            * smooth**2
            / 2
            / (torch.hypot(x.double(), x.new_tensor(smooth).double()) - x.double())
        )
        ours = apply("smooth_relu2", x, smooth=smooth).double()
        assert float((ours / exact - 1).abs().max()) < 3 * torch.finfo(row).eps


# gelu_fast has ten digits of sqrt(2 / pi); xielu has expm1(-1e-6) between -1e-6 and 0
ROUNDED = {"gelu_fast": 1e-11, "xielu": 1e-6}


def as_read(name: str, x: torch.Tensor) -> torch.Tensor:
    """What our row of transformers' name makes of x."""
    return apply(HF_ACTIVATIONS[name], x)


GRID = torch.linspace(-30, 30, 24001, dtype=torch.float64)


def test_a_config_gets_the_function_that_transformers_has_by_that_name() -> None:
    activations = pytest.importorskip("transformers.activations")
    for name in ("ReLU", "GELU", " relu", "relu_squared", "softplus", "elu", "None"):
        assert name not in activations.ACT2FN
        assert name not in HF_ACTIVATIONS
    ends = torch.tensor([-10.0, -3, 0, 3, 6, 10, 20], dtype=torch.float64)
    x = torch.cat([GRID, ends, ends - 1e-9, ends + 1e-9])
    for name in HF_ACTIVATIONS:
        theirs = activations.ACT2FN[name]
        if name == "xielu":  # its scalars would be rounded to bfloat16
            theirs = activations.XIELUActivation(dtype=torch.float64)
        assert torch.allclose(
            as_read(name, x),
            theirs.double()(x).detach(),
            rtol=1e-12,
            atol=ROUNDED.get(name, 1e-13),
        )


# counted by hand on the formula and on the derivative: (terms of f), (terms of f' and
# the gradient's product)
BY_HAND = {
    "identity": (0, 0),
    "relu": (1, 1 + 1),  # max; compare, times gradient
    "leaky_relu": (1 + 1, 1 + 1),  # multiply, select; select
    "prelu": (
        1 + 1,
        1 + 1 + 3,
    ),  # as leaky_relu; x g below zero, summed for the slope: multiply, select, add
    "relu6": (1 + 1, 2 + 1),  # max, min; two comparisons
    "relu2": (1 + 1, 2 + 1),  # max, square; max, double
    "sigmoid": (4, 2 + 1),  # negate, exp, add, divide; from the saved output
    "tanh": (1, 2 + 1),
    "gelu": (
        5,
        4 + 5 + 1 + 1,
    ),  # divide, erf, add, multiply, halve; cdf, x pdf, their sum
    "gelu_10": (5 + 2, 11 + 2),  # gelu and two limits; two selections
    "gelu_tanh": (
        2 + 1 + 1 + 1 + 1 + 3,
        6 + 2 + 9 + 1 + 1,
    ),  # cube .. tanh, then three; tanh again, both summands
    "quick_gelu": (1 + 4 + 1, 1 + 4 + 5 + 1),
    "silu": (4 + 1, 4 + 4 + 1),
    "swish": (1 + 4 + 1, 1 + 4 + 5 + 1),
    "mish": (
        3 + 1 + 1,
        4 + 4 + 2 + 2 + 1 + 1,
    ),  # softplus, tanh, times x; t, sigmoid, 1 - t^2, products, sum
    "hardswish": (
        1 + 2 + 1 + 1,
        2 + 2 + 1,
    ),  # add, clamp twice, multiply, divide; two selections, line
    "elu": (1 + 1 + 1, 1 + 1 + 1),  # exp, subtract, select
    "selu": (3 + 2, 2 + 2 + 1),  # elu and two factors
    "softplus": (3, 4 + 1),
    # x/2, two products and a sum; exp, two subtractions, product and sum; select.
    # Backward: slopes on both sides, select, times gradient; then x^2 g and (exp(x) - 1
    # - x) g summed over the scalars' elements
    "xielu": (1 + 3 + 5 + 1, 2 + 4 + 1 + 1 + 3 + 3),
    "leaky_relu2": (1 + 1 + 1, 1 + 1 + 2),  # leaky_relu, square; double, times both
    # square, add, root, abs; add, divide, multiply; relu, square, add. Backward: the
    # same four, add, divide; square, double, divide; relu, double, add
    "smooth_relu2": (4 + 3 + 3, 4 + 2 + 3 + 3 + 1),
    "clamp": (1 + 1, 2 + 1),  # max, min; two comparisons
    "softcap": (1 + 1 + 1, 2 + 2 + 1),  # divide, tanh, multiply; tanh again, 1 - t^2
    # softcap, sigmoid, product; t, 1 - t^2, s, (1 - t^2) s, limit t s (1 - s), sum
    "situ": (3 + 4 + 1, 2 + 2 + 4 + 1 + 4 + 1 + 1),
}


def test_element_wise_costs_follow_the_declared_convention() -> None:
    assert {row.name: (row.flops, row.flops_backward) for row in ACTIVATIONS} == BY_HAND


def test_plain_gated_names_are_shazeers() -> None:
    gates = {row.name: row.activation.activation for row in GATED if row.is_plain}
    assert gates == {
        "glu": "sigmoid", "bilinear": "identity", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh",
        "swiglu": "silu",
    }  # fmt: skip
