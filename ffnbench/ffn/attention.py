"""The attention beside an FFN in one block: its projections and what they count. Exact integers, no torch.

Multi-head (Vaswani 2017), multi-query (Shazeer 2019), grouped-query (Ainslie et al. 2023) and multi-head latent
attention (DeepSeek-V2, 2024). Norms are left out everywhere, as they are from the FFN.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class MLASpec:
    """Multi-head latent attention: ranks of the compressed queries (None: not compressed) and of keys and values.

    A head's query and key have `nope` + `rope` elements, its value `v`; all heads share the key's rope part.
    """

    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """`heads` query heads and `kv_heads` heads of keys and values, each of `head_dim`; biases of q/k/v and of o."""

    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    mla: MLASpec | None = None

    def __post_init__(self) -> None:
        for name in ("d_model", "heads", "kv_heads", "head_dim"):
            require_positive(name, getattr(self, name))
        if self.heads % self.kv_heads:
            raise FfnbenchError(
                f"{self.heads} heads can't share {self.kv_heads} heads of keys and values",
                "kv_heads divides heads: 32 and 8",
            )

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name -> rows, columns of every weight: q, k, v, o, or MLA's low-rank factors."""
        d, h = self.d_model, self.heads
        if self.mla is None:
            q, kv = h * self.head_dim, self.kv_heads * self.head_dim
            return {"q": (q, d), "k": (kv, d), "v": (kv, d), "o": (d, q)}
        m = self.mla
        query = h * (m.nope + m.rope)
        queries = {"q": (query, d)} if m.q_lora is None else {"q_down": (m.q_lora, d), "q_up": (query, m.q_lora)}
        return queries | {
            "kv_down": (m.kv_lora + m.rope, d),
            "kv_up": (h * (m.nope + m.v), m.kv_lora),
            "o": (d, h * m.v),
        }

    @property
    def params(self) -> int:
        """All parameters, biases where there are any."""
        total = sum(rows * columns for rows, columns in self.matrices.values())
        if self.mla is None:
            total += self.qkv_bias * (self.heads + 2 * self.kv_heads) * self.head_dim
        return total + self.out_bias * self.d_model
