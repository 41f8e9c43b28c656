"""The attention beside an FFN in one block: what it counts. Exact integers, no torch.

Norms and position encodings are left out everywhere, as they are from the FFN.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from ffnbench.ffn.cost import Cost, matrix_params
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, item_bytes

# Element-wise FLOPs of one score: scaling, and softmax's exp, sum and division, whose
# backward is y * (g - sum of y * g).
SCORE_FLOPS, SCORE_FLOPS_BACKWARD = 4, 5
LONGER_THAN_ANY = 1 << 60  # tokens: longer than any sequence


def pairs(spec: AttentionSpec, seq_len: int) -> int:
    """How many (query, key) pairs of one sequence one head computes: in the textbook's
    form all of them, for it masks scores that it has computed.
    """
    if spec.form is AttentionForm.TEXTBOOK:
        return seq_len**2
    if spec.causal:
        # so many keys are seen by the last tokens; the first ones see fewer
        seen = min(spec.window or seq_len, seq_len)
        return seq_len * seen - seen * (seen - 1) // 2
    # the tokens at both ends see fewer
    to_one_side = min(spec.window or seq_len, seq_len - 1)
    return seq_len * (2 * to_one_side + 1) - to_one_side * (to_one_side + 1)


def _mean_of_tokens(total: int, seq_len: int) -> int:
    """The total of a sequence over its tokens, rounded to the nearest whole number:
    with a window it need not be one.
    """
    return (2 * total + seq_len) // (2 * seq_len)


def projection_flops(spec: AttentionSpec) -> int:
    """Matmul FLOPs of one token's forward pass through q, k, v and o, or through MLA's
    factors of them.
    """
    return 2 * matrix_params(spec)


def score_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Matmul FLOPs of one token's q k^T in all heads, the mean over a sequence."""
    flops = 2 * pairs(spec, seq_len) * spec.heads * spec.key_dim
    return _mean_of_tokens(flops, seq_len)


def value_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Matmul FLOPs of one token's softmax weights times v in all heads, the mean over a
    sequence.
    """
    flops = 2 * pairs(spec, seq_len) * spec.heads * spec.value_dim
    return _mean_of_tokens(flops, seq_len)


def attention_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Matmul FLOPs of one token's forward pass through the whole attention."""
    return (
        projection_flops(spec) + score_flops(spec, seq_len) + value_flops(spec, seq_len)
    )


def kv_bytes(spec: AttentionSpec, dtype: str) -> int:
    """Bytes that a cache of keys and values keeps of one token in one layer."""
    return spec.kv_per_token * item_bytes(dtype)


def cached_tokens(spec: AttentionSpec, seq_len: int) -> int:
    """Of how many tokens of a sequence a cache keeps keys and values: with causal
    attention of no more than the next token sees.
    """
    if spec.causal and spec.window is not None:
        return min(seq_len, spec.window)
    return seq_len


def overtakes_at(attention: Callable[[int], int], ffn_flops: int) -> int | None:
    """The shortest sequence at which attention needs more FLOPs than `ffn_flops`; None
    if it never does.

    `attention` gives its FLOPs at a length, and never falls.
    """
    if attention(LONGER_THAN_ANY) <= ffn_flops:
        return None
    return bisect_right(range(LONGER_THAN_ANY), ffn_flops, lo=1, key=attention)


def attention_cost(spec: AttentionSpec, *, seq_len: int, dtype: str) -> Cost:
    """Everything that is known of attention over sequences of `seq_len` tokens. The
    bytes at its peak and those saved for backward are measured only.
    """
    flops = attention_flops(spec, seq_len)
    forward, backward = _elementwise(spec, seq_len)
    return Cost(
        params=spec.params,
        params_active=spec.params,
        params_formula=_formula(spec),
        flops_forward=flops,
        flops_backward=2 * flops,
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=spec.params * item_bytes(dtype),
    )


def _elementwise(spec: AttentionSpec, seq_len: int) -> tuple[int, int]:
    """Element-wise FLOPs of one token, forward and backward: softmax and scaling of
    every score, biases, and in backward the sums of gradients that meet.
    """
    scores = pairs(spec, seq_len) * spec.heads
    biases = sum(spec.biases.values())
    if spec.mla is None:
        sums = 2 * spec.d_model  # x feeds q, k and v
        # a key and a value feed all heads of their group
        sums += 2 * (spec.heads - spec.kv_heads) * spec.head_dim
    else:
        sums = spec.d_model  # x feeds q and the latent
        sums += (spec.heads - 1) * spec.mla.rope  # all heads share the key's rope part
    forward = _mean_of_tokens(SCORE_FLOPS * scores, seq_len) + biases
    backward = _mean_of_tokens(SCORE_FLOPS_BACKWARD * scores, seq_len) + biases + sums
    return forward, backward


def _formula(spec: AttentionSpec) -> str | None:
    """The closed form of the parameters in words; None for MLA, whose factors are too
    many for a cell of a table.
    """
    if spec.mla is not None:
        return None
    q = spec.heads * spec.head_dim
    kv = spec.kv_heads * spec.head_dim
    formula = f"2*d*{q} + 2*d*{kv}"
    if q == kv == spec.d_model:
        formula = "4*d^2"
    biases = sum(spec.biases.values())
    if biases:
        formula += f" + {biases}"
    return formula


def working_bytes(
    spec: AttentionSpec, *, batch: int, seq_len: int, item: int, train: bool
) -> int:
    """About the most bytes that one call needs beside weights and input, rather too
    many than too few; `item` is the size of an element.

    These are vectors of each token and, in the textbook's form, squares of seq_len x
    seq_len scores in each head. Latent attention has the squares too where its keys and
    values differ in size, for which torch has no fused kernel on the CPU. A window is a
    mask of one such square: up to three copies of bytes, and one in the call's dtype.
    """
    vectors_of_a_token = 12 if train else 8
    width = max(spec.d_model, spec.heads * spec.key_dim)
    total = vectors_of_a_token * batch * seq_len * width * item
    if spec.windowed(seq_len):
        total += seq_len**2 * (3 + item)
    if spec.form is AttentionForm.TEXTBOOK or spec.key_dim != spec.value_dim:
        squares = 3.5 if train else 2.5
        total += int(squares * batch * spec.heads * seq_len**2 * item)
    return total
