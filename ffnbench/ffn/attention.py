"""Attention, and the blocks that it makes with FFNs: what they count. Exact integers,
no torch.

Position encodings are left out everywhere; the element-wise FLOPs of norms too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from ffnbench.ffn.cost import Cost, matrix_params
from ffnbench.ffn.spec import AttentionSpec, Norm, StackSpec, item_bytes

# element-wise FLOPs of one score: scaling, and softmax's exp, sum and division
SCORE_FLOPS = 4
LONGER_THAN_ANY = 1 << 60  # tokens: longer than any sequence


def pairs(spec: AttentionSpec, seq_len: int) -> int:
    """How many (query, key) pairs of one sequence one head computes."""
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


def softmax_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Element-wise FLOPs of the softmax of one token's scores in all heads."""
    return _mean_of_tokens(SCORE_FLOPS * pairs(spec, seq_len) * spec.heads, seq_len)


def norm_params(spec: StackSpec) -> int:
    """The parameters of the two norms of a block."""
    return 2 * spec.d_model * (2 if spec.norm is Norm.LAYER else 1)


def trunk_params(spec: StackSpec) -> int:
    """The parameters of a stack without its FFNs."""
    attentions = sum(count * each.params for each, count in spec.attentions)
    return attentions + spec.layers * norm_params(spec)


def stack_cost(spec: StackSpec, ffn: Cost, *, seq_len: int, dtype: str) -> Cost:
    """What is known of a stack whose FFNs cost `ffn` each, over sequences of `seq_len`
    tokens. FLOPs are those of the matrix products.
    """
    layers, trunk = spec.layers, trunk_params(spec)
    flops = sum(
        count * attention_flops(each, seq_len) for each, count in spec.attentions
    )
    forward, backward = ffn.flops_forward, ffn.flops_backward
    return replace(
        ffn,
        params=trunk + layers * ffn.params,
        params_active=trunk + layers * ffn.params_active,
        params_formula=None,
        flops_forward=None if forward is None else flops + layers * forward,
        flops_backward=None if backward is None else 2 * flops + layers * backward,
        flops_elementwise=None,
        weight_bytes=trunk * item_bytes(dtype) + layers * ffn.weight_bytes,
        weight_bytes_touched=None,
        peak_bytes=None,
        saved_bytes=None,
    )


def working_bytes(
    spec: AttentionSpec, *, batch: int, seq_len: int, item: int, train: bool
) -> int:
    """About the most bytes that one call needs beside weights and input, rather too
    many than too few; `item` is the size of an element.

    These are vectors of each token. Latent attention has squares of seq_len x seq_len
    scores in each head where its keys and values differ in size, for which torch has no
    fused kernel on the CPU. A window is a mask of one such square: up to three copies
    of bytes, and one in the call's dtype.
    """
    vectors_of_a_token = 12 if train else 8
    width = max(spec.d_model, spec.heads * spec.key_dim)
    total = vectors_of_a_token * batch * seq_len * width * item
    if spec.windowed(seq_len):
        total += seq_len**2 * (3 + item)
    if spec.key_dim != spec.value_dim:
        squares = 3.5 if train else 2.5
        total += int(squares * batch * spec.heads * seq_len**2 * item)
    return total
