"""Parameters, FLOPs and bytes in closed form: exact integers, no torch.

Conventions: 1 MAC = 2 FLOPs. Matmul and element-wise FLOPs are separate numbers, both per token. Backward is
the gradient of the input and of every weight (x requires grad). The element-wise convention is declared in
activations/table.py. Source of the formulas: Shazeer 2020 for the gated forms; counted again by torch in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.memory import peak_bytes, saved_bytes
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate, shared_expert
from ffnbench.jsonable import LATER, least

FORMULA = {Gate.NONE: "2*d*d_ff", Gate.INNER: "3*d*d_ff", Gate.OUTPUT: "2*d*d_ff + d^2"}
BIAS_FORMULA = {Gate.NONE: " + d_ff + d", Gate.INNER: " + 2*d_ff + d", Gate.OUTPUT: " + d_ff + 2*d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is known of a case without timing it. FLOPs are per token; None is "not known".

    `counted` marks numbers that come from running a module on torch's meta device instead of from a formula;
    `uncounted` then names the operations that the count knows nothing of, and `width_note` says what the module
    made of d_ff. `peak_bytes` is the most that one call holds beside weights and input, `saved_bytes` what
    autograd keeps for backward (train mode only). `params_active` are those that one token meets, and
    `weight_bytes_touched` are expected to be read in one call: they differ from the total where there are experts.
    """

    params: int = field(metadata=least(0))
    params_active: int = field(metadata=least(0))
    params_formula: str | None
    flops_forward: int | None = field(metadata=least(0))
    flops_backward: int | None = field(metadata=least(0))
    flops_elementwise: int | None
    flops_elementwise_backward: int | None
    weight_bytes: int = field(metadata=least(0))
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    counted: bool = False
    counted_how: str = ""
    uncounted: tuple[str, ...] = ()
    width_note: str = ""
    weight_bytes_touched: int | None = field(default=None, metadata=LATER)
    failed: str = field(default="", metadata=LATER)  # why nothing is known: the numbers say nothing then


def uncounted(why: str) -> Cost:
    """Of a module that can't be counted, for that reason."""
    return Cost(
        params=0, params_active=0, params_formula=None, flops_forward=None, flops_backward=None, flops_elementwise=None,
        flops_elementwise_backward=None, weight_bytes=0, counted=True, failed=why,
    )  # fmt: skip


def matrix_params(spec: FFNSpec) -> int:
    """Elements of the weight matrices, biases left out: of one expert, where there are experts."""
    return sum(rows * columns for rows, columns in spec.matrices.values())


def bias_params(spec: FFNSpec) -> int:
    """Elements of the bias vectors, one for each row of each matrix."""
    return sum(rows for rows, _ in spec.matrices.values()) if spec.bias else 0


def params(spec: FFNSpec) -> int:
    """All parameters: every expert's, where there are experts."""
    return round(_params(spec, spec.moe.experts if spec.moe else 1))


def params_active(spec: FFNSpec) -> int:
    """The parameters that one token meets."""
    return round(_params(spec, spec.moe.top_k if spec.moe else 1))


def _params(spec: FFNSpec, experts: float) -> float:
    """With so many experts; the scalars of their activation are trained together."""
    each = matrix_params(spec) + bias_params(spec)
    return experts * each + len(spec.row.learned) + (_always(spec, spec.moe) if spec.moe else 0)


def _always(spec: FFNSpec, moe: MoESpec) -> int:
    """The parameters that every token meets: the router, and the shared experts."""
    shared = shared_expert(spec)
    return moe.router_params(spec.d_model) + (params(shared) if shared else 0)


def params_formula(spec: FFNSpec) -> str:
    """The closed form in words: `2*d*4d` for the usual width, `3*d*d_ff`, `2*d*d_ff + d^2`, biases after it.

    Experts: `8*3*d*d_ff + 8*d`, which is theirs and the router's, then the shared one's.
    """
    formula = FORMULA[spec.gate] + (BIAS_FORMULA[spec.gate] if spec.bias else "")
    each = formula.replace("d_ff", "4d") if spec.d_ff == 4 * spec.d_model else formula
    learned = [str(len(spec.row.learned))] if spec.row.learned else []
    moe = spec.moe
    if moe is None:
        return " + ".join([each, *learned])
    parts = [f"{moe.experts}*({each})" if "+" in each else f"{moe.experts}*{each}", *learned, f"{moe.experts}*d"]
    parts += [str(moe.experts)] if moe.router_bias else []
    parts += [formula.replace("d_ff", str(moe.shared_d_ff)), *learned] if moe.shared_d_ff else []
    return " + ".join([*parts, "d"] if moe.shared_gate else parts)


def flops_forward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's forward pass: each weight that it meets is one MAC, the router's too."""
    return 2 * _macs(spec)


def flops_backward(spec: FFNSpec) -> int:
    """Matmul FLOPs of one token's backward pass: one product for the input's gradient, one for the weight's."""
    return 4 * _macs(spec)


def _macs(spec: FFNSpec) -> int:
    moe, shared = spec.moe, shared_expert(spec)
    if moe is None:
        return matrix_params(spec)
    beside = moe.router_matrix_params(spec.d_model) + (matrix_params(shared) if shared else 0)
    return moe.top_k * matrix_params(spec) + beside


def flops_elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    """Element-wise FLOPs of one token, forward and backward: activation, gating, clamps, biases, dropout; routing.

    None where the user's own activation declares no cost.
    """
    if spec.moe is None:
        return _elementwise(spec)
    expert, routing = _elementwise(replace(spec, moe=None)), _routing(spec, spec.moe)
    shared = _elementwise(found) if (found := shared_expert(spec)) else (0, 0)
    forward, backward = (
        None if one is None or other is None else spec.moe.top_k * one + other + beside
        for one, other, beside in zip(expert, shared, routing, strict=True)
    )
    return forward, backward


def _elementwise(spec: FFNSpec) -> tuple[int | None, int | None]:
    row = spec.row
    d, h = spec.d_model, spec.d_ff
    product = {Gate.NONE: 0, Gate.INNER: h, Gate.OUTPUT: d}[spec.gate]
    # a limit compares the gate once and up twice; backward selects once more for each of the two
    bounds, bounds_backward = (0, 0) if spec.limit is None else (3 * h, 5 * h)
    offset = h if spec.up_offset else 0
    two_gradients_of_x = d if spec.gated else 0
    dropped = h if spec.dropout else 0
    forward = product + bounds + offset + bias_params(spec) + 2 * dropped
    backward = 2 * product + bounds_backward + two_gradients_of_x + bias_params(spec) + dropped
    return (
        None if row.flops is None else row.flops * h + forward,
        None if row.flops_backward is None else row.flops_backward * h + backward,
    )


def _routing(spec: FFNSpec, moe: MoESpec) -> tuple[int, int]:
    """What joins the experts, forward and backward; choosing the highest scores moves data and counts nothing.

    Scores: softmax is exp, sum, divide (backward y (g - sum of y g), 4); a sigmoid is 4 (backward 3). Weights:
    normalising is a sum and a division (backward 4), scaling 1. Outputs: k weighted vectors are summed, 2 k d;
    backward every output and every weight gets its gradient, 3 k d, and those of x are summed. The shared expert is
    added, and a gate of its own is a sigmoid and a product (backward 3 and 3 d).
    """
    d, k, shared, gate = spec.d_model, moe.top_k, int(moe.shared_d_ff > 0), int(moe.shared_gate)
    scores, scores_backward = (3, 4) if moe.scores is Scores.SOFTMAX else (4, 3)
    scaled = k if moe.routed_scale != 1 else 0
    bias = moe.experts if moe.router_bias else 0
    weights, weights_backward = (2 * k, 4 * k) if moe.normalised else (0, 0)
    gradients_of_x = k + shared + gate  # those of the experts and of the gates, added to the router's
    return (
        moe.experts * scores + bias + weights + scaled + 2 * k * d + shared * d + gate * (4 + d),
        moe.experts * scores_backward + bias + weights_backward + scaled + 3 * k * d
        + gate * (3 + 3 * d) + gradients_of_x * d,
    )  # fmt: skip


def cost(spec: FFNSpec, *, tokens: int, dtype: str, train: bool, device: str) -> Cost:
    """Everything at once for a workload of `tokens` tokens. `device` matters for dropout's mask, and for numbers."""
    item = item_bytes(dtype)
    forward, backward = flops_elementwise(spec)
    total = params(spec)
    return Cost(
        params=total,
        params_active=params_active(spec) if spec.moe else total,
        params_formula=params_formula(spec),
        flops_forward=flops_forward(spec),
        flops_backward=flops_backward(spec),
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=total * item,
        # expected, where each token chooses its experts uniformly and by itself
        weight_bytes_touched=round(_params(spec, spec.moe.distinct(tokens)) * item) if spec.moe else total * item,
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
