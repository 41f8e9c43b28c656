"""FLOPs and bytes of attention in closed form: exact integers, no torch.

Conventions, as for the FFN: 1 MAC = 2 FLOPs, per token (the mean over a sequence), backward is the gradient of every
factor of every product. A causal token needs the scores of itself and of those before it, (S + 1) / 2 on average over
S tokens, and only those count; a form that computes the whole square and masks half of it is charged for all of it.
What a fused kernel computes a second time in backward is not counted.
"""

from __future__ import annotations

from ffnbench.ffn.attention import AttentionSpec, Form
from ffnbench.ffn.cost import ITEM_BYTES, Cost

# element-wise, of one score: scaling; softmax's exp, sum, division (its backward is y * (g - sum of y * g))
SCORE, SCORE_BACKWARD = 4, 5


def twice_the_pairs(spec: AttentionSpec, seq_len: int) -> int:
    """Twice the number of (query, key) pairs of one token, on average over a sequence."""
    return seq_len + 1 if _half(spec) else 2 * seq_len


def _half(spec: AttentionSpec) -> bool:
    """Whether the masked half of the scores is left out."""
    return spec.causal and spec.form is Form.SDPA


def projection_flops(spec: AttentionSpec) -> int:
    """Of one token's forward pass through q, k, v and o, or MLA's factors of them."""
    return 2 * sum(rows * columns for rows, columns in spec.matrices.values())


def score_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Of one token's q k^T, all heads."""
    return twice_the_pairs(spec, seq_len) * spec.heads * spec.key_dim


def value_flops(spec: AttentionSpec, seq_len: int) -> int:
    """Of one token's weights times v, all heads."""
    return twice_the_pairs(spec, seq_len) * spec.heads * spec.value_dim


def kv_bytes(spec: AttentionSpec, dtype: str) -> int:
    """Bytes that a cache keeps of one token in one layer."""
    return spec.kv_per_token * ITEM_BYTES[dtype]


def overtakes_at(spec: AttentionSpec, ffn_flops: int | None) -> int | None:
    """The shortest sequence at which attention needs more FLOPs than an FFN of so many a token; None if not known."""
    if ffn_flops is None:
        return None
    gap = max(0, ffn_flops - projection_flops(spec))
    fewest = gap // (spec.heads * (spec.key_dim + spec.value_dim)) + 1  # of twice_the_pairs
    return max(1, fewest - 1 if _half(spec) else -(-fewest // 2))


def attention_cost(spec: AttentionSpec, *, seq_len: int, dtype: str) -> Cost:
    """Everything that is known of attention over sequences of `seq_len` tokens. Its bytes at work are measured only."""
    products = score_flops(spec, seq_len) + value_flops(spec, seq_len)
    forward, backward = _elementwise(spec, seq_len)
    return Cost(
        params=spec.params,
        params_active=spec.params,
        params_formula=_formula(spec),
        flops_forward=projection_flops(spec) + products,
        flops_backward=2 * (projection_flops(spec) + products),
        flops_elementwise=forward,
        flops_elementwise_backward=backward,
        weight_bytes=spec.params * ITEM_BYTES[dtype],
    )


def _elementwise(spec: AttentionSpec, seq_len: int) -> tuple[int, int]:
    """Softmax and scaling of every score that is needed, biases; backward the sums of gradients that meet as well."""
    biases = sum(spec.biases.values())
    scores = twice_the_pairs(spec, seq_len) * spec.heads
    if spec.mla is None:  # x feeds q, k and v; a key and a value feed all heads of their group
        sums = 2 * spec.d_model + 2 * (spec.heads - spec.kv_heads) * spec.head_dim
    else:  # x feeds q and the latent; all heads share the key's rope part
        sums = spec.d_model + (spec.heads - 1) * spec.mla.rope
    return scores * SCORE // 2 + biases, -(-scores * SCORE_BACKWARD // 2) + biases + sums


def _formula(spec: AttentionSpec) -> str | None:
    """The closed form in words; None for MLA, whose factors are too many for a cell."""
    if spec.mla is not None:
        return None
    q, kv = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    weights = "4*d^2" if q == kv == spec.d_model else f"2*d*{q} + 2*d*{kv}"
    biases = sum(spec.biases.values())
    return f"{weights} + {biases}" if biases else weights


def working_bytes(spec: AttentionSpec, *, batch: int, seq_len: int, item: int, train: bool) -> int:
    """About the most bytes that one call needs beside weights and input, rather too many than too few.

    Vectors of a token, and whole squares of scores in the textbook's form; latent attention has them too where its
    keys and values differ in size, for which torch has no fused kernel on the CPU.
    """
    width = max(spec.d_model, spec.heads * spec.key_dim)
    vectors = batch * seq_len * width * item * (12 if train else 8)
    if spec.form is Form.SDPA and spec.key_dim == spec.value_dim:
        return vectors
    square = batch * spec.heads * seq_len**2 * item
    return vectors + square * (7 if train else 5) // 2
