"""Which keys of a config.json say what, for every model type that is known: data alone; configs.py reads by it.

A model type is one or more stacks of layers. Every entry is held against transformers' own model, built from its
default configuration and from changed ones (tests/test_configs.py); what can't be told by keys is not in the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Or:
    """A key, and what its absence or null means."""

    key: str
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The keys of a layer with experts. `shared` is a number of shared experts, `shared_d_ff` the width of one.

    `layout` says which layers have experts: a name of LAYOUTS in configs.py.
    """

    experts: str = "num_experts"
    top_k: str = "num_experts_per_tok"
    d_ff: str = "moe_intermediate_size"
    shared: str | Or | int = 0
    shared_d_ff: str | Or | None = None
    shared_gate: bool = False
    router_bias: bool = False
    sigmoid: bool = False
    normalised: bool | Or = True
    bias: bool | Or = False
    limit: Or | None = None
    up_offset: float = 0.0
    layout: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack of layers: under which keys its numbers stand. A number or a truth value is itself.

    Where d_ff has no key, or its key is absent or null, it is int(`ratio` * d_model). `acts_as` is the activation
    that the code computes whatever the key says; `assumes` are switches whose other setting is another form.
    """

    kind: str = "dense"
    layers: str | Or = "num_hidden_layers"
    d_model: str = "hidden_size"
    d_ff: str | Or | None = "intermediate_size"
    ratio: str | float | Or | None = None
    activation: str | Or = "hidden_act"
    acts_as: str | None = None
    gated: bool | str | Or = False
    bias: bool | str | Or = True
    experts: Experts | None = None
    assumes: tuple[tuple[str, object], ...] = ()


CLASSIC = Stack()  # BERT's: two matrices with biases
GATED = Stack(gated=True, bias=False)  # Llama's: three without
MLP_BIAS = replace(GATED, bias=Or("mlp_bias", False))
GPT2 = Stack(layers="n_layer", d_model="n_embd", d_ff="n_inner", ratio=4, activation="activation_function")
VISION = replace(CLASSIC, kind="vision")
ENCODER = Stack(
    kind="encoder", layers="encoder_layers", d_model="d_model", d_ff="encoder_ffn_dim", activation="activation_function"
)
DECODER = replace(ENCODER, kind="decoder", layers="decoder_layers", d_ff="decoder_ffn_dim")
T5 = Stack(
    kind="encoder", layers="num_layers", d_model="d_model", d_ff="d_ff", activation="feed_forward_proj", bias=False
)
T5_DECODER = replace(T5, kind="decoder", layers=Or("num_decoder_layers", None))

FAMILIES: dict[str, tuple[Stack, ...]] = {"llama": (MLP_BIAS,), "bert": (CLASSIC,)}
COMPOSITES: dict[str, tuple[str, ...]] = {}
