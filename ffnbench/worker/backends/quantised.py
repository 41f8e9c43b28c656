"""Linear layers whose weights are held in fewer bits, by torch's own operations alone.
In a worker; needs torch.

These operations are what torch's compiler and torchao lower to. They are private, so
that each is looked for before it is used. A module is not changed: what is run is a
second one, of the same parameters, whose nn.Linear layers hold quantised weights beside
them.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.choices import Weights
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.spec import format_of
from ffnbench.plan import Workload
from ffnbench.worker.subject import Subject


class Int8Linear(nn.Module):
    """8-bit weights with a scale for each output; the input stays as it is."""

    def __init__(self, layer: nn.Linear, group: int) -> None:
        super().__init__()
        self.bias = layer.bias
        scale = (
            layer.weight.detach()
            .abs()
            .amax(1)
            .clamp_min(torch.finfo(layer.weight.dtype).tiny)
            / 127
        )
        self.quantised = (layer.weight.detach() / scale[:, None]).round().to(torch.int8)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten._weight_int8pack_mm(
            x.flatten(0, -2), self.quantised, self.scale
        )
        if self.bias is not None:
            y = y + self.bias
        return y.unflatten(0, x.shape[:-1])


class Int8DynamicLinear(nn.Module):
    """8-bit weights with a scale for each output; the input is brought to 8 bits at
    each call, by one scale.
    """

    def __init__(self, layer: nn.Linear, group: int) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        zeros = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            # torch 2.13 says that it will remove this way to make one, and has no other
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(
                weight, scale.double(), zeros, 0, torch.qint8
            )
        bias = None if layer.bias is None else layer.bias.detach().float()
        self.packed = torch.ops.quantized.linear_prepack(quantised, bias)

    def forward(self, x: Tensor) -> Tensor:
        # with reduce_range, the default of torch's own module, the input has 7 bits:
        # for processors without VNNI
        y: Tensor = torch.ops.quantized.linear_dynamic(
            x, self.packed, reduce_range=False
        )
        return y


class Int4Linear(nn.Module):
    """4-bit weights with a scale and a middle for each group of columns; the input
    stays as it is.
    """

    def __init__(self, layer: nn.Linear, group: int) -> None:
        super().__init__()
        self.bias, self.group = layer.bias, group
        rows, columns = layer.weight.shape
        groups = layer.weight.detach().float().view(rows, columns // group, group)
        largest, smallest = groups.amax(2), groups.amin(2)
        scale = (largest - smallest).clamp_min(torch.finfo(torch.float32).tiny) / 15
        quantised = (
            ((groups - smallest[..., None]) / scale[..., None])
            .round()
            .clamp(0, 15)
            .to(torch.int32)
        )
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            quantised.view(rows, columns), 1
        )
        middle = smallest + 8 * scale
        pairs = torch.stack([scale, middle], dim=-1).transpose(0, 1).contiguous()
        self.scale_and_middle = pairs.to(layer.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.flatten(0, -2), self.packed, self.group, self.scale_and_middle
        )
        if self.bias is not None:
            y = y + self.bias
        return y.unflatten(0, x.shape[:-1])


LAYERS: dict[Weights, type[Any]] = {
    Weights.INT8: Int8Linear,
    Weights.INT8_DYNAMIC: Int8DynamicLinear,
    Weights.INT4: Int4Linear,
}
OPERATIONS = {
    Weights.INT8: ("aten", "_weight_int8pack_mm"),
    Weights.INT8_DYNAMIC: ("quantized", "linear_dynamic"),
    Weights.INT4: ("aten", "_weight_int4pack_mm_for_cpu"),
}


def why_no_operation(weights: Weights) -> str:
    """Why this torch can't hold weights so; "" if it can."""
    namespace, name = OPERATIONS[weights]
    if hasattr(getattr(torch.ops, namespace), name):
        return ""
    return f"torch {torch.__version__} has no {namespace}::{name}, which {weights} weights need"


def quantised(module: nn.Module, weights: Weights, group: int) -> nn.Module:
    """A module of the same parameters whose linear layers compute with quantised
    weights.

    Raises Unsupported where this torch lacks the operation, and where the module has no
    layer that can hold such.
    """
    if reason := why_no_operation(weights):
        raise Unsupported(reason)
    shared: dict[int, Any] = {
        id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())
    }
    copied = deepcopy(module, shared)
    layers = [
        (name, layer)
        for name, layer in copied.named_modules()
        if type(layer) is nn.Linear
    ]
    if not layers:
        raise Unsupported("it has no nn.Linear layer whose weights could be quantised")
    for name, layer in layers:
        try:
            held = LAYERS[weights](layer, group)
        except RuntimeError as problem:
            raise Unsupported(
                f"torch can't hold {name} in {weights}: {problem}".splitlines()[0]
            ) from problem
        copied.set_submodule(name, held)
    return copied


def bytes_held(subject: Subject, work: Workload) -> int:
    """Bytes of all weights of a subject's module, those of its linear layers held as
    the workload says.
    """
    held = format_of(work.weights, work.backend)
    total = subject.weight_bytes()
    if held is None:
        return total
    for layer in subject.module.modules():
        if type(layer) is nn.Linear:
            rows, columns = layer.weight.shape
            item = layer.weight.itemsize
            total += held.bytes_of(rows, columns, group=work.group, item=item)
            total -= layer.weight.nbytes
    return total
