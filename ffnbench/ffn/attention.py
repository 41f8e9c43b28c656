"""The attention beside an FFN in one block: its projections and what they count. Exact integers, no torch.

Multi-head (Vaswani 2017), multi-query (Shazeer 2019), grouped-query (Ainslie et al. 2023) and multi-head latent
attention (DeepSeek-V2, 2024). Norms and position encodings are left out everywhere, as they are from the FFN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive


class Form(Enum):
    """How scores become values: torch's scaled_dot_product_attention, or as a textbook writes it.

    TEXTBOOK: all scores q k^T / sqrt(dim), masked, softmax, times v, each a tensor of its own (Vaswani 2017).
    """

    SDPA = "sdpa"
    TEXTBOOK = "textbook"


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
    """`heads` query heads and `kv_heads` heads of keys and values, each of `head_dim`; biases of q/k/v and of o.

    `causal`: a token sees itself and those before it, else all of its sequence. `form` is how it is computed.
    """

    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    mla: MLASpec | None = None
    causal: bool = False
    form: Form = Form.SDPA

    def __post_init__(self) -> None:
        for name in ("d_model", "heads", "kv_heads", "head_dim"):
            require_positive(name, getattr(self, name))
        if self.heads % self.kv_heads:
            raise FfnbenchError(
                f"{self.heads} heads can't share {self.kv_heads} heads of keys and values",
                "kv_heads divides heads: 32 and 8",
            )

        if self.qkv_bias and self.mla is not None:
            raise FfnbenchError("biases of q, k and v are not those of latent attention", "its factors have none here")

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
    def biases(self) -> dict[str, int]:
        """Name -> elements of the bias of every weight that has one. MLA has none on its factors."""
        biased = {"q", "k", "v"} if self.qkv_bias else set()
        return {
            name: rows for name, (rows, _) in self.matrices.items() if name in biased or (name == "o" and self.out_bias)
        }

    @property
    def params(self) -> int:
        """All parameters, biases where there are any."""
        return sum(rows * columns for rows, columns in self.matrices.values()) + sum(self.biases.values())

    @property
    def key_dim(self) -> int:
        """Elements of one head's query, and of its key."""
        return self.head_dim if self.mla is None else self.mla.nope + self.mla.rope

    @property
    def value_dim(self) -> int:
        """Elements of one head's value."""
        return self.head_dim if self.mla is None else self.mla.v

    @property
    def kv_per_token(self) -> int:
        """Elements that a cache keeps of one token: keys and values, or MLA's latent and its shared rope part."""
        return 2 * self.kv_heads * self.head_dim if self.mla is None else self.mla.kv_lora + self.mla.rope

    @property
    def d_ff(self) -> None:
        """There is no hidden layer."""
        return None

    @property
    def name(self) -> str:
        """`multi-head`, `grouped-query`, `multi-query` or `latent`."""
        if self.mla is not None:
            return "latent"
        if self.kv_heads == self.heads:
            return "multi-head"
        return "multi-query" if self.kv_heads == 1 else "grouped-query"
