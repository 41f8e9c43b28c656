"""Runs linear layers through oneDNN, which torch contains: inference on the CPU. Runs
in a worker; needs torch.

nn.Linear in float32 goes to MKL, which on some processors stays far below what they
reach. oneDNN computes the same product with a weight that is packed once, in the layout
that is fastest for a number of tokens. Where it knows the activation, or for the
product of gate and up, it computes that in the same operation. Packed layers replace
the nn.Linear layers of a module and share their parameters, so that code which counts
them or reads the weights finds the same.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import TypeGuard

import torch
from torch import Tensor, nn

from ffnbench.common.errors import Unsupported
from ffnbench.ffn.modules import FeedForward, GatedFeedForward, OutputGatedFeedForward
from ffnbench.plan.metrics import HELD, PACK
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.backends.building import why_no_onednn
from ffnbench.worker.subject import Subject

# an activation that oneDNN computes after a product: its name, scalars and algorithm
Fused = tuple[str, list[float], str]
NOT_FUSED: Fused = ("none", [], "")
# by the name that ffnbench has for the activation
FUSED: dict[str, Fused] = {
    "relu": ("relu", [], ""),
    "relu6": ("hardtanh", [0.0, 6.0], ""),
    "leaky_relu": ("leaky_relu", [0.01], ""),
    "sigmoid": ("sigmoid", [], ""),
    "tanh": ("tanh", [], ""),
    "silu": ("swish", [], ""),
    "hardswish": ("hardswish", [], ""),
    "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
}
PACKED_DTYPES = (torch.float32, torch.bfloat16)


def prepare(subject: Subject, work: Workload) -> Opened:
    """Replace the linear layers of a subject's module by those of oneDNN, in place."""
    packed = pack(subject.module, subject.x.detach())
    subject.run = packed.run
    notes: tuple[str, ...] = ()
    if packed.unused:
        called = f"{packed.layers - packed.unused} of {packed.layers} linear layers"
        notes = (f"oneDNN runs {called}: the others are not called as modules",)
    return Opened(
        calls=1, values={PACK: packed.seconds, HELD: packed.bytes}, notes=notes
    )


class PackedLinear(nn.Linear):
    """An nn.Linear that shares the parameters of another one, and computes with a
    packed copy of the weight.

    Raises RuntimeError where oneDNN can't pack it for so many tokens.
    """

    def __init__(self, layer: nn.Linear, tokens: int) -> None:
        super().__init__(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            device="meta",
        )
        self.weight, self.bias, self.tokens = layer.weight, layer.bias, tokens
        self.train(layer.training)
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(
            layer.weight.detach(), tokens
        )

    def __deepcopy__(self, memo: dict[int, object]) -> nn.Linear:
        """A layer that has packed the same weight once more: torch can't copy a packed
        one. A plain layer where the copy has another weight, which oneDNN does not
        pack, as in a proof in float64.
        """
        weight = memo.get(id(self.weight))
        if not isinstance(weight, nn.Parameter) or weight.dtype in PACKED_DTYPES:
            return PackedLinear(self, self.tokens)
        plain = nn.Linear(self.in_features, self.out_features, device="meta")
        plain.weight, plain.bias = weight, deepcopy(self.bias, memo)
        return plain

    def forward(self, x: Tensor) -> Tensor:
        return self.then(x, NOT_FUSED)

    def then(self, x: Tensor, fused: Fused) -> Tensor:
        """The layer's output after an activation."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, *fused
        )
        return y

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The layer's output times another tensor of its shape."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self.packed, self.bias, "mul"
        )
        return y


class FusedForm(nn.Module):
    """A form of ffnbench's whose layers are packed. What follows a layer is computed by
    oneDNN too, where it can do so.
    """

    def __init__(self, form: FeedForward) -> None:
        super().__init__()
        self.form = form
        self.is_gated = isinstance(form, GatedFeedForward)
        self.is_output_gated = isinstance(form, OutputGatedFeedForward)
        self.fused = None
        if not form.spec.parameters:
            self.fused = FUSED.get(form.spec.activation)

    def forward(self, x: Tensor) -> Tensor:
        form = self.form
        y: Tensor = form.project(self.hidden(x))
        if self.is_output_gated:
            y = y * form.gate(x)
        return y

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff)."""
        form, fused = self.form, self.fused
        if self.is_gated:
            gate = form.gate.then(x, fused) if fused else form.act(form.gate(x))
            if form.spec.up is not None:
                return gate * form.up_act(form.up(x))
            return form.up.times(x, gate)
        if fused:
            return form.up.then(x, fused)
        return form.hidden(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The result of packing a module.

    `run` is called in the module's place. `seconds` is how long packing took, `bytes`
    is the size of all weights that a call computes with. `layers` is the number of
    packed layers, and `unused` the number of those that are never called as modules.
    """

    run: nn.Module
    seconds: float
    bytes: int
    unused: int
    layers: int


def pack(module: nn.Module, x: Tensor) -> Packed:
    """Replace every linear layer of a module in place by a packed one, for inputs of
    x's shape (batch, seq_len, d_model).

    Raises Unsupported where oneDNN can run no layer of the module, or packing fails.
    """
    reason = why_no_onednn(x.dtype)
    if reason:
        raise Unsupported(
            reason, "float32 runs: @dtype=float32" if x.dtype is torch.bfloat16 else ""
        )
    linear = [layer for layer in module.modules() if _can_be_packed(layer)]
    if not linear:
        raise Unsupported("it has no nn.Linear layer that oneDNN could run")
    start = perf_counter()
    try:
        packed = {layer: PackedLinear(layer, x[..., 0].numel()) for layer in linear}
    except RuntimeError as problem:
        raise Unsupported(
            f"oneDNN can't pack its weights: {_one_line(problem)}"
        ) from problem
    seconds = perf_counter() - start
    for parent in list(module.modules()):
        for name, part in list(parent._modules.items()):
            if part in packed:
                setattr(parent, name, packed[part])
    run = packed.get(module, module)
    layers = list(packed.values())
    if type(run) in (FeedForward, GatedFeedForward, OutputGatedFeedForward):
        run = FusedForm(run)
        used = layers
    else:
        used = _called_layers(run, layers, x)
    if not used:
        raise Unsupported(
            "its nn.Linear layers are never called as modules, so that nothing can take their place"
        )
    packed_weights = {id(layer.weight) for layer in used}
    rest = sum(p.nbytes for p in module.parameters() if id(p) not in packed_weights)
    return Packed(
        run=run,
        seconds=seconds,
        bytes=rest + sum(int(torch.ops.mkldnn._nbytes(layer.packed)) for layer in used),
        unused=len(layers) - len(used),
        layers=len(layers),
    )


def _can_be_packed(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer computes what nn.Linear does, from a weight that does not
    change.
    """
    return (
        isinstance(layer, nn.Linear)
        and type(layer).forward is nn.Linear.forward
        and "forward" not in vars(layer)
        # a hook may compute the weight anew at each call
        and not layer._forward_pre_hooks
        and not layer._forward_hooks
        and not nn.utils.parametrize.is_parametrized(layer)
        and layer.weight.dtype in PACKED_DTYPES
        and not (layer.weight.dtype is torch.bfloat16 and why_no_onednn(torch.bfloat16))
    )


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


def _called_layers(
    module: nn.Module, layers: list[PackedLinear], x: Tensor
) -> list[PackedLinear]:
    """Those of the layers that a call of the module calls as modules, and does not only
    read the weights of.
    """
    called = set[nn.Module]()
    handles = [
        layer.register_forward_pre_hook(lambda layer, _: called.add(layer))
        for layer in layers
    ]
    try:
        with torch.inference_mode():
            module(x)
    except RuntimeError as problem:
        raise Unsupported(
            f"oneDNN can't run its layers: {_one_line(problem)}"
        ) from problem
    finally:
        for handle in handles:
            handle.remove()
    return [layer for layer in layers if layer in called]
