"""What a form gives whose matrices are rounded to a format in fewer bits, in float64.
Needs torch.

Whatever the weights are, a kernel that is right gives nearly this, while outliers may
bring it far from what the weights in full give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ffnbench.common.choices import Backend, Weights
from ffnbench.ffn.experts import MixtureOfExperts, mixture_reference
from ffnbench.ffn.modules import FeedForward, OwnModule, dense_reference
from ffnbench.plan.plan import Workload

LARGEST_INT8, LARGEST_UINT8, LARGEST_UINT4 = 127, 255, 15
ENDS = {Weights.INT8: 128, Weights.INT4: 8}  # of a symmetric range, which lacks the end


def rounded_reference(form: OwnModule, x: Tensor, work: Workload) -> Tensor:
    """What the form should give for x (..., d_model), in float64, with its matrices in
    the workload's format. What enters and leaves a matrix has the workload's dtype.
    """
    dtype = getattr(torch, work.dtype)

    def product(v: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        v = _rounded_input(v.to(dtype).double(), work)
        y = (v @ _rounded_weight(weight.double(), work).T).to(dtype).double()
        return y if bias is None else y + bias.double()

    with torch.no_grad():
        if isinstance(form, MixtureOfExperts):
            tokens = x.reshape(-1, x.shape[-1]).double()
            return mixture_reference(form, tokens, None, product).view(x.shape)
        assert isinstance(form, FeedForward)  # no other has such weights
        return dense_reference(form, x.double(), product=product)


def _rounded_input(x: Tensor, work: Workload) -> Tensor:
    """The input of a product: with one scale and zero point for all of it, with a scale
    for each group of columns in ONNX Runtime, or as it is.
    """
    if work.weights is Weights.INT8_DYNAMIC:
        smallest, largest = x.amin().clamp(max=0), x.amax().clamp(min=0)
        scale = _nonzero((largest - smallest) / LARGEST_UINT8)
        zero = (smallest / scale).round()
        return ((x / scale).round().clamp(zero, zero + LARGEST_UINT8)) * scale
    if work.backend is Backend.ORT:
        return _rounded_rows(x.unflatten(-1, (-1, work.group))).flatten(-2)
    return x


def _rounded_weight(weight: Tensor, work: Workload) -> Tensor:
    """A matrix (rows, columns): with a scale for each row; or for each group of columns
    one for the range from its smallest to its largest value (torch), or one that brings
    the value of largest magnitude to the end of the range (ONNX).
    """
    of_torch = work.backend is Backend.EAGER
    if work.weights is Weights.INT8_DYNAMIC or (
        of_torch and work.weights is Weights.INT8
    ):
        return _rounded_rows(weight)
    groups = weight.unflatten(1, (-1, work.group))
    if of_torch:
        smallest = groups.amin(2, keepdim=True)
        scale = _nonzero((groups.amax(2, keepdim=True) - smallest) / LARGEST_UINT4)
        return (((groups - smallest) / scale).round() * scale + smallest).flatten(1)
    end = ENDS[work.weights]
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    scale = _nonzero(extreme / -end)
    return ((groups / scale).round().clamp(max=end - 1) * scale).flatten(1)


def _rounded_rows(values: Tensor) -> Tensor:
    """Values (..., columns) in 8 bits with a scale for each row."""
    scale = _nonzero(values.abs().amax(-1, keepdim=True) / LARGEST_INT8)
    return (values / scale).round() * scale


def _nonzero(scale: Tensor) -> Tensor:
    """Scales to divide by: 1 in place of 0, which is the scale of zeros alone."""
    return torch.where(scale == 0, 1.0, scale)
