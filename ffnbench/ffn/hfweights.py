"""The weights of an MLP of transformers inside our own form, so that both can be asked for the same function.

Projections are found by the names in use. A packed gate and up stands as one weight, the gate's rows first; GPT-2's
Conv1D is stored transposed.
"""

from __future__ import annotations

from typing import Any

from ffnbench.errors import FfnbenchError
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


def as_ours(module: Any, form: FFNSpec) -> Any:
    """Our module of the form, on the very weights of theirs; None where its projections have other names."""
    from torch import nn

    from ffnbench.ffn.modules import build_module

    found = _projections(module, form)
    if found is None:
        return None
    ours = build_module(form, device="meta")
    for name, (weight, bias) in found.items():
        layer = getattr(ours, name)
        if layer.weight.shape != weight.shape or (layer.bias is None) != (bias is None):
            raise FfnbenchError(f"its {name} is {tuple(weight.shape)}, {'no bias' if bias is None else 'with a bias'}")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    return ours


def _projections(module: Any, form: FFNSpec) -> dict[str, tuple[Any, Any]] | None:
    """Name of ours -> weight (rows: outputs) and bias."""
    down, up, packed = (_child(module, names) for names in (DOWN, UP, PACKED))
    if form.moe is not None or down is None:
        return None
    found = {"down": _weights(down)}
    if form.gate is Gate.NONE:
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
