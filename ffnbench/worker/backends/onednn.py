"""Linear layers through oneDNN, reached from torch alone. Runs in a worker; needs torch. Inference on the CPU.

nn.Linear in float32 goes to MKL, which on some processors stays far below what they reach. oneDNN takes the same
product with its weight packed once, in the layout that is fastest for a number of tokens; where it has the activation,
or the product of gate and up, that is done on the way out. A module's nn.Linear layers are given another class, and
keep their parameters: whoever counts them, or reads their weights, finds what was there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.common.errors import Unsupported
from ffnbench.ffn.modules import ClampedFeedForward, FeedForward, GatedFeedForward
from ffnbench.messages import Opened
from ffnbench.metrics import HELD, PACK
from ffnbench.plan import Workload
from ffnbench.worker.subject import Subject

Fused = tuple[str, list[float], str]  # oneDNN's name, its scalars, its algorithm
PLAIN: Fused = ("none", [], "")
# an activation by its name here, as oneDNN calls it
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
DTYPES = (torch.float32, torch.bfloat16)


def unavailable(device: torch.device, dtype: torch.dtype | None = None) -> str:
    """Why oneDNN can't run here; "" if it can, as far as a look tells."""
    return no_onednn(dtype) if device.type == "cpu" else "oneDNN runs on the CPU alone"


def prepare(subject: Subject, work: Workload) -> Opened:
    """Put oneDNN under the linear layers of a subject's module, in place."""
    packed = pack(subject.module, subject.x.detach())
    notes: tuple[str, ...] = ()
    if packed.unused:
        called = f"{packed.layers - packed.unused} of {packed.layers} linear layers"
        notes = (f"oneDNN runs {called}: the others are not called as modules",)
    return Opened(calls=1, values={PACK: packed.seconds, HELD: packed.bytes}, notes=notes)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, fused: Fused) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, *fused)
    return y


class PackedLinear(nn.Linear):
    """nn.Linear with a second, packed copy of its weight, which is what it computes with."""

    packed: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.then(x, PLAIN)

    def then(self, x: Tensor, fused: Fused) -> Tensor:
        """The layer and an activation after it."""
        return _linear(x, self.packed, self.bias, fused)

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The layer's output times another tensor of its shape."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self.packed, self.bias, "mul")
        return y


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What packing a module came to: seconds, bytes of all weights that it computes with, and its layers, of which some
    are never called as modules.
    """

    seconds: float
    bytes: int
    unused: int
    layers: int


def pack(module: nn.Module, x: Tensor) -> Packed:
    """Put oneDNN under every linear layer of a module, for inputs of x's shape (batch, seq_len, d_model).

    Raises Unsupported where nothing of the module can be run by oneDNN, or packing fails.
    """
    if reason := no_onednn(x.dtype):
        raise Unsupported(reason, "float32 runs: @dtype=float32" if x.dtype is torch.bfloat16 else "")
    layers: list[Any] = [layer for layer in module.modules() if _takes(layer)]
    if not layers:
        raise Unsupported("it has no nn.Linear layer that oneDNN could run")
    tokens = x[..., 0].numel()
    for layer in layers:
        layer.__class__ = PackedLinear
    for part in module.modules():
        if isinstance(part, FeedForward):
            _fuse(part)
    seconds = _pack_all(layers, tokens)
    used = _used(module, layers, x)
    if not used:
        raise Unsupported("its nn.Linear layers are never called as modules, so that nothing can take their place")
    held = {id(layer.weight) for layer in used}
    rest = sum(p.nbytes for p in module.parameters() if id(p) not in held)
    return Packed(
        seconds=seconds,
        bytes=rest + sum(int(torch.ops.mkldnn._nbytes(layer.packed)) for layer in used),
        unused=len(layers) - len(used),
        layers=len(layers),
    )


def _takes(layer: nn.Module) -> bool:
    """Whether a layer computes what nn.Linear does, from a weight that stays as it is."""
    return (
        isinstance(layer, nn.Linear)
        and type(layer).forward is nn.Linear.forward
        and "forward" not in vars(layer)
        and not layer._forward_pre_hooks  # such a hook may make the weight anew at each call
        and not nn.utils.parametrize.is_parametrized(layer)
        and layer.weight.dtype in DTYPES
        and not (layer.weight.dtype is torch.bfloat16 and no_onednn(torch.bfloat16))
    )


def _pack_all(layers: list[Any], tokens: int) -> float:
    """Pack every layer for that many tokens; the seconds."""
    start = perf_counter()
    try:
        for layer in layers:
            layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), tokens)
    except RuntimeError as problem:
        raise Unsupported(f"oneDNN can't pack its weights: {_one_line(problem)}") from problem
    return perf_counter() - start


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


def _used(module: nn.Module, layers: list[Any], x: Tensor) -> list[Any]:
    """The layers that a call of the module runs as modules, or that its fused forms run."""
    fused = {id(layer) for part in module.modules() if isinstance(part, FeedForward) for layer in part.modules()}
    called = set[int]()
    handles = [layer.register_forward_pre_hook(lambda layer, _: called.add(id(layer))) for layer in layers]
    try:
        with torch.inference_mode():
            module(x)
    except RuntimeError as problem:
        raise Unsupported(f"oneDNN can't run its layers: {_one_line(problem)}") from problem
    finally:
        for handle in handles:
            handle.remove()
    return [layer for layer in layers if id(layer) in called | fused]


def _fuse(form: FeedForward) -> None:
    """Let oneDNN do what comes after the layers of one of ffnbench's forms, where it can."""
    if isinstance(form, ClampedFeedForward):
        return
    fused = FUSED.get(form.spec.activation) if form.spec.beta is None else None
    hidden: Any = _gated if isinstance(form, GatedFeedForward) else _classic if fused else None
    if hidden is not None:
        object.__setattr__(form, "hidden", partial(hidden, form, fused))


def _classic(form: Any, fused: Fused, x: Tensor) -> Tensor:
    y: Tensor = form.up.then(x, fused)
    return y


def _gated(form: Any, fused: Fused | None, x: Tensor) -> Tensor:
    g = form.gate.then(x, fused) if fused else form.act(form.gate(x))
    y: Tensor = form.up.times(x, g)
    return y


def no_onednn(dtype: torch.dtype | None = None) -> str:
    """Why oneDNN can't run here; "" if it can."""
    ops = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available():
        return "this torch is built without oneDNN"
    if not (hasattr(ops, "_linear_pointwise") and hasattr(ops, "_reorder_linear_weight")):
        return f"torch {torch.__version__} does not offer oneDNN's linear layers for this processor"
    if dtype is torch.bfloat16 and not ops._is_mkldnn_bf16_supported():
        return "oneDNN has no bfloat16 products for this processor (it wants AVX-512 or AVX-NE-CONVERT)"
    if dtype is torch.float16 and not getattr(ops, "_is_mkldnn_fp16_supported", bool)():
        return "oneDNN has no float16 products for this processor"
    return "oneDNN has no float64 products" if dtype is torch.float64 else ""
