"""What a table of config.json's keys can say of a model: stacks of layers, and the keys where their numbers stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Or:
    """A key, and what its absence or null means."""

    key: str
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The keys of a layer with experts. `shared` is a number of shared experts, `shared_d_ff` the width of one.

    Several keys are names of one number. `layout` says which layers have experts: a name of LAYOUTS in configs.py.
    """

    experts: str | tuple[str, ...] = "num_experts"
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
    layers: str | tuple[str, ...] | Or = "num_hidden_layers"
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
GATED_MLP_BIAS = Stack(gated=True, bias=Or("mlp_bias", False))
