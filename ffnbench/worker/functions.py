"""A function of one tensor: its value and its slope by autograd, and whether it behaves like an activation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ffnbench.errors import FfnbenchError
from ffnbench.targets import one_line

Function = Callable[[Tensor], Tensor]
REPEATS = 1000  # elements enough that even a rare random one shows
DTYPES = ("float64", "float32", "bfloat16")


def value_and_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and f'(x), elementwise."""
    x = x.detach().requires_grad_(True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


def checked(function: Function, name: str) -> Function:
    """The function, tried: it must keep shape and dtype, work element by element, repeat itself, be differentiable."""
    for dtype in DTYPES:
        x = torch.linspace(-2, 2, 9, dtype=getattr(torch, dtype), requires_grad=True)
        try:
            _check_answer(x, _called(function, x, name), name)
        except FfnbenchError as problem:
            if dtype == "float64" or "not implemented for" not in problem.message:
                raise  # else a kernel that torch has not got, which is told where it is timed
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).repeat(REPEATS)
    y, again, part = (_called(function, z.clone(), name) for z in (x, x, x[2:3]))
    if not torch.equal(y.nan_to_num(), again.nan_to_num()):
        raise FfnbenchError(
            f"{name} is random: two calls with the same x differ",
            "an activation gives the same y for the same x; dropout is a key of the form, swiglu@dropout=0.1",
        )
    if not torch.allclose(part, y[2:3], equal_nan=True):
        raise FfnbenchError(f"{name} mixes elements", "an activation works element by element")
    return function


def _called(function: Function, x: Tensor, name: str) -> Tensor:
    try:
        return function(x)
    except Exception as problem:
        hint = f"it is called with one {str(x.dtype).removeprefix('torch.')} tensor"
        raise FfnbenchError(f"{name} raised {one_line(problem)}", hint) from problem


def _check_answer(x: Tensor, y: Tensor, name: str) -> None:
    if not isinstance(y, torch.Tensor):
        raise FfnbenchError(f"{name} returns {type(y).__name__}, not a tensor", "return torch operations on x")
    if y.shape != x.shape:
        raise FfnbenchError(
            f"{name} changes the shape {tuple(x.shape)} to {tuple(y.shape)}", "an activation works element by element"
        )
    if y.dtype != x.dtype:
        raise FfnbenchError(f"{name} changes the dtype {x.dtype} to {y.dtype}", "keep the dtype of x")
    if y is not x and not y.requires_grad:
        raise FfnbenchError(f"{name} has no derivative by autograd", "use torch operations on x, and no .detach()")
