"""Parameters, FLOPs and bytes in closed form: exact integers, no torch.

Conventions: 1 MAC = 2 FLOPs. Matmul and element-wise FLOPs are separate numbers, both per token. Backward is
the gradient of the input and of every weight (x requires grad). The element-wise convention is declared in
variants.py. Source of the formulas: Shazeer 2020 for the gated forms; counted again by torch in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ffnbench.ffn.memory import peak_bytes, saved_bytes
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate

FORMULA = {Gate.NONE: "2*d*d_ff", Gate.INNER: "3*d*d_ff", Gate.OUTPUT: "2*d*d_ff + d^2"}
BIAS_FORMULA = {Gate.NONE: " + d_ff + d", Gate.INNER: " + 2*d_ff + d", Gate.OUTPUT: " + d_ff + 2*d"}
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is known of a case without timing it. FLOPs are per token; None is "not known".

    `counted` marks numbers that come from running a module on torch's meta device instead of from a formula;
    `uncounted` then names the operations that the count knows nothing of, and `width_note` says what the module
    made of d_ff. `peak_bytes` is the most that one call holds beside weights and input, `saved_bytes` what
    autograd keeps for backward (train mode only).
    """

    params: int
    params_active: int
    params_formula: str | None
    flops_forward: int | None
    flops_backward: int | None
    flops_elementwise: int | None
    flops_elementwise_backward: int | None
    weight_bytes: int
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    counted: bool = False
    counted_how: str = ""
    uncounted: tuple[str, ...] = ()
    width_note: str = ""


def matrix_params(spec: FFNSpec) -> int:
    """Elements of the weight matrices, biases left out."""
    d, h = spec.d_model, spec.d_ff
    return {Gate.NONE: 2 * d * h, Gate.INNER: 3 * d * h, Gate.OUTPUT: 2 * d * h + d * d}[spec.gate]


def bias_params(spec: FFNSpec) -> int:
    """Elements of the bias vectors."""
    d, h = spec.d_model, spec.d_ff
    return {Gate.NONE: h + d, Gate.INNER: 2 * h + d, Gate.OUTPUT: h + 2 * d}[spec.gate] if spec.bias else 0


def params(spec: FFNSpec) -> int:
    """All parameters: every expert's, where there are experts."""
    if spec.moe is None:
        return matrix_params(spec) + bias_params(spec)
    return spec.moe.experts * _expert(spec, spec.d_ff) + _always(spec)


def params_active(spec: FFNSpec) -> int:
    """The parameters that one token meets."""
    if spec.moe is None:
        return params(spec)
    return spec.moe.top_k * _expert(spec, spec.d_ff) + _always(spec)


def _expert(spec: FFNSpec, d_ff: int) -> int:
    return params(replace(spec, d_ff=d_ff, moe=None)) if d_ff else 0


def _always(spec: FFNSpec) -> int:
    """The router, and the shared experts."""
    return spec.moe.router_params(spec.d_model) + _expert(spec, spec.moe.shared_d_ff) if spec.moe else 0


def params_formula(spec: FFNSpec) -> str:
    """The closed form in words: `2*d*4d` for the usual width, `3*d*d_ff`, `2*d*d_ff + d^2`, biases after it."""
    formula = FORMULA[spec.gate] + (BIAS_FORMULA[spec.gate] if spec.bias else "")
    return formula.replace("d_ff", "4d") if spec.d_ff == 4 * spec.d_model else formula


def flops_forward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's forward pass: each weight is one MAC."""
    return 2 * matrix_params(spec)


def flops_backward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's backward pass: one product for the input's gradient, one for the weight's."""
    return 4 * matrix_params(spec)


def flops_elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    """Element-wise FLOPs of one token, forward and backward: activation, gating, biases, dropout.

    None where the user's own activation declares no cost.
    """
    row = spec.row
    d, h = spec.d_model, spec.d_ff
    product = {Gate.NONE: 0, Gate.INNER: h, Gate.OUTPUT: d}[spec.gate]
    two_gradients_of_x = d if spec.gated else 0
    dropped = h if spec.dropout else 0
    forward = product + bias_params(spec) + 2 * dropped
    backward = 2 * product + two_gradients_of_x + bias_params(spec) + dropped
    return (
        None if row.flops is None else row.flops * h + forward,
        None if row.flops_backward is None else row.flops_backward * h + backward,
    )


def cost(spec: FFNSpec, *, tokens: int, dtype: str, train: bool, device: str) -> Cost:
    """Everything at once for a workload of `tokens` tokens. `device` matters for dropout's mask alone."""
    item = ITEM_BYTES[dtype]
    forward, backward = flops_elementwise(spec)
    total = params(spec)
    return Cost(
        params=total,
        params_active=params_active(spec),
        params_formula=params_formula(spec),
        flops_forward=flops_forward(spec),
        flops_backward=flops_backward(spec),
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=total * item,
        peak_bytes=peak_bytes(spec, tokens=tokens, item=item, train=train, device=device),
        saved_bytes=saved_bytes(spec, tokens=tokens, item=item, device=device) if train else None,
    )


def activation_cost(spec: ActivationSpec) -> Cost:
    """An activation by itself: no parameters; a token is one element."""
    row = spec.row
    return Cost(
        params=0,
        params_active=0,
        params_formula=None,
        flops_forward=0,
        flops_backward=0,
        flops_elementwise=row.flops,
        flops_elementwise_backward=row.flops_backward,
        weight_bytes=0,
    )
