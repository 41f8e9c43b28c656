"""The FFN of a published model, written as a variant is: `swiglu@d_ff=14336@bias=false`."""

from __future__ import annotations

from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import FFNSpec, Gate, Scalar


def variant_keys(spec: FFNSpec) -> dict[str, Scalar]:
    """The keys that make the form of a spec's name into that spec; those that say nothing are left out."""
    keys: dict[str, Scalar] = {"d_ff": spec.d_ff, "bias": spec.bias}
    if spec.limit is not None:
        keys["limit"] = spec.limit
    if spec.up_offset:
        keys["offset"] = spec.up_offset
    return keys | (_of_experts(spec.moe) if spec.moe else {})


def _of_experts(moe: MoESpec) -> dict[str, Scalar]:
    default = MoESpec(experts=moe.experts, top_k=moe.top_k)
    keys: dict[str, Scalar] = {"moe": f"{moe.experts}x{moe.top_k}"}
    if moe.shared_d_ff:
        keys["shared"] = moe.shared_d_ff
    if moe.scores is not default.scores:
        keys["scores"] = moe.scores.value
    for name in ("shared_gate", "router_bias", "normalised", "routed_scale"):
        if getattr(moe, name) != getattr(default, name):
            keys[name] = getattr(moe, name)
    return keys


def as_text(spec: FFNSpec, keys: dict[str, Scalar]) -> str:
    """A variant that can be typed again."""
    name = f"{spec.activation}_glu" if spec.gate is Gate.INNER else spec.activation
    words = {True: "true", False: "false", None: "none"}
    return "@".join(
        [name, *(f"{k}={words[v] if isinstance(v, bool) or v is None else v}" for k, v in keys.items())]
    )  # fmt: skip
