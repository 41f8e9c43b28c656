"""The table of activations against mathematics: float64, libm, and constants known to
ten digits.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from activation_formulas import ORACLE

from ffnbench.ffn.activations import ACTIVATIONS, HF_ACTIVATIONS
from ffnbench.ffn.spec import Applied, act

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
