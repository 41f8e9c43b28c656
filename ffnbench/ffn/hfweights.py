"""The weights of an MLP of transformers inside our own form, so that both can be asked for the same function.

Projections are found by the names in use. A packed gate and up stands as one weight, the gate's rows first; GPT-2's
Conv1D is stored transposed. Experts are 3-D weights that say themselves whether they are transposed, and whether gate
and up stand one after the other or in turns.
"""

from __future__ import annotations

from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import FFNSpec, Gate

GATE = ("gate_proj", "gate", "w1", "wi_0")
UP = (
    "up_proj", "fc1", "c_fc", "dense_h_to_4h", "lin1", "wi", "wi_1", "w3", "intermediate_dense", "fc_in", "linear_fc1",
    "in_proj", "proj_in", "linear1", "dense1",
)  # fmt: skip
DOWN = (
    "down_proj", "fc2", "c_proj", "dense_4h_to_h", "lin2", "wo", "w2", "output_dense", "fc_out", "linear_fc2",
    "out_proj", "proj_out", "linear2", "dense2", "Wo",
)  # fmt: skip
PACKED = ("gate_up_proj", "Wi")
ROUTER = ("gate", "router")
SHARED = ("shared_expert", "shared_experts")
Weights = dict[str, tuple[Any, Any]]  # name of ours -> weight (rows: outputs) and bias


def as_ours(module: Any, form: FFNSpec) -> Any:
    """Our module of the form, on the very weights of theirs; None where its projections have other names."""
    from torch import nn

    from ffnbench.ffn.modules import build_module

    found = _projections(module, form.gate) if form.moe is None else _mixture(module, form.moe)
    if found is None:
        return None
    ours = build_module(form, device="meta")
    for name, (weight, bias) in found.items():
        layer = ours.get_submodule(name)
        if layer.weight.shape != weight.shape or (layer.bias is None) != (bias is None):
            raise FfnbenchError(f"its {name} is {tuple(weight.shape)}, {'no bias' if bias is None else 'with a bias'}")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    return ours


def _mixture(module: Any, moe: MoESpec) -> Weights | None:
    """Router, experts, shared expert and its gate; None where one of them is not found."""
    router, experts, shared = _child(module, ROUTER), getattr(module, "experts", None), None
    packed, down = (getattr(experts, name, None) for name in ("gate_up_proj", "down_proj"))
    if moe.shared_d_ff:
        inner = next((getattr(module, name) for name in SHARED if hasattr(module, name)), None)
        shared = inner and _projections(inner, Gate.INNER)
        if not shared:
            return None
    if router is None or packed is None or down is None or packed.ndim != 3 or down.ndim != 3:
        return None
    biases = [getattr(experts, f"{name}_bias", None) for name in ("gate_up_proj", "down_proj")]
    found = {"router": _weights(router)} | _stacked(experts, packed.detach(), down.detach(), *biases)
    if moe.shared_gate:
        found["shared_gate"] = _weights(module.shared_expert_gate)
    return found | {f"shared.{name}": pair for name, pair in (shared or {}).items()}


def _stacked(experts: Any, packed: Any, down: Any, packed_bias: Any, down_bias: Any) -> Weights:
    """The weights (experts, out, in) and biases (experts, out) of all experts."""
    if getattr(experts, "is_transposed", False):
        packed, down = packed.mT, down.mT

    def half(tensor: Any, which: int) -> Any:
        if tensor is None:
            return None
        in_turns = not getattr(experts, "is_concatenated", True)
        return tensor.detach()[:, which::2] if in_turns else tensor.detach().chunk(2, dim=1)[which]

    named = {name: (half(packed, i), half(packed_bias, i)) for i, name in enumerate(("gate", "up"))}
    named["down"] = (down, None if down_bias is None else down_bias.detach())
    return {f"experts.{name}": pair for name, pair in named.items()}


def _projections(module: Any, form: Gate) -> Weights | None:
    down, up, packed = (_child(module, names) for names in (DOWN, UP, PACKED))
    if down is None:
        return None
    found = {"down": _weights(down)}
    if form is Gate.NONE:
        return found | {"up": _weights(up)} if up is not None else None
    gate = _child(module, GATE)
    if gate is not None and up is not None:
        return found | {"gate": _weights(gate), "up": _weights(up)}
    if packed is None:
        return None
    weight, bias = _weights(packed)
    halves = weight.chunk(2), (None, None) if bias is None else bias.chunk(2)
    return found | {name: (halves[0][i], halves[1][i]) for i, name in enumerate(("gate", "up"))}


def _child(module: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(module, name) for name in names if hasattr(getattr(module, name, None), "weight")), None)


def _weights(layer: Any) -> tuple[Any, Any]:
    weight = layer.weight.detach()
    bias = getattr(layer, "bias", None)
    turned = type(layer).__name__ == "Conv1D"
    return weight.T if turned else weight, None if bias is None else bias.detach()
