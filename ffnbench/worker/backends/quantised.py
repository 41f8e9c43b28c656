"""Linear layers whose weights are held in fewer bits, by torch's own operations alone.
Runs in a worker; needs torch.

These are the operations that torch's compiler and torchao lower to. They are private,
so each is looked for before it is used. A module is not changed: a copy of it is run,
which shares its parameters, and whose nn.Linear layers are replaced by layers of this
file.
"""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.common.choices import Weights
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.experts import ExpertLinear, MixtureOfExperts
from ffnbench.ffn.spec import format_of
from ffnbench.plan.plan import Workload

LARGEST_INT8, LARGEST_UINT4 = 127, 15
MIDDLE_UINT4 = 8  # the 4-bit number that stands for the middle of a group


def _scale_of_rows(weight: Tensor) -> Tensor:
    """The scale of each row that brings its values into -127 to 127."""
    tiny = torch.finfo(weight.dtype).tiny  # a row of zeros has a scale too
    return weight.abs().amax(1).clamp_min(tiny) / LARGEST_INT8


# all three layers are made from an nn.Linear and the size of a group; the 8-bit ones
# have no groups


class Int8Linear(nn.Module):
    """8-bit weights with a scale for each output; the input stays as it is."""

    def __init__(self, layer: nn.Linear, group: int) -> None:
        super().__init__()
        self.bias = layer.bias
        weight = layer.weight.detach().float()
        self.scale = _scale_of_rows(weight).to(layer.weight.dtype)
        # a scale of 16 bits may be rounded down, so that a quotient is beyond 127
        quotients = (weight / self.scale[:, None].float()).round()
        self.quantised = quotients.clamp(-LARGEST_INT8, LARGEST_INT8).to(torch.int8)

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
        scale = _scale_of_rows(weight)
        zeros = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            # torch 2.13 warns that it will remove this function, and has no other yet
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(
                weight, scale.double(), zeros, 0, torch.qint8
            )
        bias = None if layer.bias is None else layer.bias.detach().float()
        self.packed = torch.ops.quantized.linear_prepack(quantised, bias)

    def forward(self, x: Tensor) -> Tensor:
        # reduce_range, the default of torch's own module, gives the input 7 bits, for
        # processors without VNNI
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
        scale = (largest - smallest).clamp_min(
            torch.finfo(torch.float32).tiny
        ) / LARGEST_UINT4
        quantised = (
            ((groups - smallest[..., None]) / scale[..., None])
            .round()
            .clamp(0, LARGEST_UINT4)
            .to(torch.int32)
        )
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            quantised.view(rows, columns), 1
        )
        middle = smallest + MIDDLE_UINT4 * scale
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
    """Why this torch can't compute with such weights; "" if it can."""
    namespace, name = OPERATIONS[weights]
    if hasattr(getattr(torch.ops, namespace), name):
        return ""
    return f"torch {torch.__version__} has no {namespace}::{name}, which {weights} weights need"


class QuantisedExperts(nn.Module):
    """One layer of every expert, each made by `quantise`, a class of LAYERS."""

    def __init__(self, layer: ExpertLinear, quantise: type[Any], group: int) -> None:
        super().__init__()
        self.rows = layer.rows
        self.experts = nn.ModuleList(
            quantise(expert, group) for expert in layer.of_experts()
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.experts[self.rows.expert](x)
        return y


def linear_layers(module: nn.Module) -> dict[str, nn.Linear | ExpertLinear]:
    """By name the layers whose weights are quantised; one that has two names is there
    twice. A router and the gate of a shared expert keep their precision, as published
    checkpoints have it.
    """
    kept = set()
    if isinstance(module, MixtureOfExperts):
        kept = {module.router, module.shared_gate}
    return {
        name: layer
        for name, layer in module.named_modules(remove_duplicate=False)
        if type(layer) in (nn.Linear, ExpertLinear) and layer not in kept
    }


def quantised_copy(module: nn.Module, weights: Weights, group: int) -> nn.Module:
    """A copy of a module that shares its parameters, and whose linear layers compute
    with quantised weights.

    Raises Unsupported where this torch lacks the operation, and where the module has no
    layer whose weights could be quantised.
    """
    reason = why_no_operation(weights)
    if reason:
        raise Unsupported(reason)
    # deepcopy takes what is in its memo for copied already
    shared: dict[int, Any] = {
        id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())
    }
    copied = deepcopy(module, shared)
    layers = linear_layers(copied)
    if not layers:
        raise Unsupported("it has no nn.Linear layer whose weights could be quantised")
    for name, layer in layers.items():
        quantise: type[Any] = LAYERS[weights]
        try:
            if isinstance(layer, ExpertLinear):
                quantised = QuantisedExperts(layer, quantise, group)
            else:
                quantised = quantise(layer, group)
        except RuntimeError as problem:
            raise Unsupported(
                f"torch can't hold {name} in {weights}: {problem}".splitlines()[0]
            ) from problem
        copied.set_submodule(name, quantised)
    return copied


def bytes_held(module: nn.Module, work: Workload) -> int:
    """Bytes of all weights of a module, with those of its linear layers in the format
    that the workload asks for.
    """
    weight_format = format_of(work.weights, work.backend)
    if weight_format is None:
        return sum(parameter.nbytes for parameter in module.parameters())
    total = 0
    layers = linear_layers(module).values()
    for layer in layers:
        *experts, rows, columns = layer.weight.shape
        item = layer.weight.itemsize
        of_one = weight_format.bytes_of(rows, columns, group=work.group, item=item)
        total += math.prod(experts) * of_one
    quantised = {id(layer.weight) for layer in layers}
    for parameter in module.parameters():
        if id(parameter) not in quantised:
            total += parameter.nbytes
    return total


def matrices_left(module: nn.Module) -> tuple[str, ...]:
    """The names of the matrices that are no weight of a linear layer, and so are not
    quantised.
    """
    quantised = {id(layer.weight) for layer in linear_layers(module).values()}
    return tuple(
        name
        for name, parameter in module.named_parameters()
        if parameter.dim() > 1 and id(parameter) not in quantised
    )
