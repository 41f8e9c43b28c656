"""The names of the gated forms: one row each, no behaviour. Their activations stand in ffn/activations.py."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.names import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedName:
    """A published name of W_down(act(W_gate x) * (W_up x)) and the activation on its gate.

    A clamped one has a `limit` and an `offset`: act(min(gate, limit)) * (clamp(up, -limit, limit) + offset).
    """

    name: str
    activation: str
    aliases: tuple[str, ...] = ()
    note: str = ""
    limit: float | None = None
    offset: float = 0.0


_GATED_ROWS = (
    GatedName(name="glu", activation="sigmoid", note="glu is the original form: the sigmoid is on the gate"),
    GatedName(name="bilinear", activation="identity", aliases=("liglu",)),
    GatedName(name="reglu", activation="relu"),
    GatedName(
        name="geglu",
        activation="gelu",
        aliases=("geglu_erf",),
        note="geglu is the exact erf form; TransformerEngine, Gemma and T5 v1.1 mean geglu_tanh",
    ),
    GatedName(name="geglu_tanh", activation="gelu_tanh"),
    GatedName(name="swiglu", activation="silu"),
    GatedName(
        name="swiglu_oai",
        activation="quick_gelu",
        limit=7.0,
        offset=1.0,
        aliases=("swigluoai", "clamped_swiglu"),
        note="swiglu_oai is quick_gelu(min(gate, 7)) * (clamp(up, -7, 7) + 1), as in gpt-oss, "
        "whose hidden_act says silu",
    ),
)
GATED: Registry[GatedName] = Registry("gated form", "`ffnbench list variants` shows all")
for _gated in _GATED_ROWS:
    GATED.add(_gated.name, _gated, _gated.aliases)
GATED_BY_ACTIVATION = {row.activation: row.name for row in _GATED_ROWS if row.limit is None}
CLAMPED = tuple(row for row in _GATED_ROWS if row.limit is not None)
