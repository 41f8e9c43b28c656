"""Traces an activation, its value and its slope by autograd, and checks whether a
function behaves like an activation. Runs in a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.targets import one_line
from ffnbench.ffn.spec import ActivationSpec, Applied
from ffnbench.record.messages import Traced

Function = Callable[[Tensor], Tensor]
REPEATS = 1000  # of the points of a check: so many that even a rare random value shows
DESCRIBED_DTYPES = ("float64", "float32", "bfloat16")


def torch_function(spec: ActivationSpec) -> Function:
    """The activation as a function of one tensor."""
    return partial(Applied(spec).of, F)


def trace(spec: ActivationSpec, low: float, high: float, points: int) -> Traced:
    """Compute x, f(x) and f'(x) in float64, at so many equidistant points of
    [low, high].
    """
    x = torch.linspace(low, high, points, dtype=torch.float64)
    y, slope = value_and_slope(torch_function(spec), x)
    return Traced(
        x=tuple(x.tolist()),
        y=tuple(y.nan_to_num().tolist()),
        slope=tuple(s if isfinite(s) else None for s in slope.tolist()),
        finite=bool(torch.isfinite(y).all()),
    )


def value_and_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and f'(x) of an element-wise function."""
    x = x.detach().requires_grad_(True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


def check_function(function: Function, name: str) -> None:
    """Raise FfnbenchError unless a function keeps shape and dtype, works element by
    element, repeats itself, and can be differentiated.
    """
    for dtype in DESCRIBED_DTYPES:
        x = torch.linspace(-2, 2, 9, dtype=getattr(torch, dtype), requires_grad=True)
        try:
            _check_answer(x, _call_checked(function, x, name), name)
        except FfnbenchError as problem:
            # torch may lack a kernel for a smaller dtype: a case in it says so
            lacks_kernel = "not implemented for" in problem.message
            if dtype == "float64" or not lacks_kernel:
                raise
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).repeat(REPEATS)
    y = _call_checked(function, x.clone(), name)
    again = _call_checked(function, x.clone(), name)
    third = _call_checked(function, x[2:3].clone(), name)
    if not torch.equal(y.nan_to_num(), again.nan_to_num()):
        raise FfnbenchError(
            f"{name} is random: two calls with the same x differ",
            "an activation gives the same y for the same x; dropout is a key of the form, swiglu@dropout=0.1",
        )
    if not torch.allclose(third, y[2:3], equal_nan=True):
        raise FfnbenchError(
            f"{name} mixes elements", "an activation works element by element"
        )


def _call_checked(function: Function, x: Tensor, name: str) -> Tensor:
    """Call a function; raises FfnbenchError with its name where it raises."""
    try:
        return function(x)
    except Exception as problem:
        hint = f"it is called with one {str(x.dtype).removeprefix('torch.')} tensor, and is written with torch"
        raise FfnbenchError(f"{name} raised {one_line(problem)}", hint) from problem


def _check_answer(x: Tensor, y: Tensor, name: str) -> None:
    """Raise FfnbenchError unless y is a tensor like x, and can be differentiated."""
    if not isinstance(y, torch.Tensor):
        raise FfnbenchError(
            f"{name} returns {type(y).__name__}, not a tensor",
            "return torch operations on x",
        )
    if y.shape != x.shape:
        raise FfnbenchError(
            f"{name} changes the shape {tuple(x.shape)} to {tuple(y.shape)}",
            "an activation works element by element",
        )
    if y.dtype != x.dtype:
        raise FfnbenchError(
            f"{name} changes the dtype {x.dtype} to {y.dtype}", "keep the dtype of x"
        )
    if y is not x and not y.requires_grad:
        raise FfnbenchError(
            f"{name} has no derivative by autograd",
            "use torch operations on x, and no .detach()",
        )
