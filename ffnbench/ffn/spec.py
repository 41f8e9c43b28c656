"""The specification of one FFN: final numbers only, validated on construction.

Width rules and matching run before (planning/widths.py); a spec never computes a width. What text means which spec is
the business of planning/variant_text.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import LATER
from ffnbench.common.names import Registry
from ffnbench.common.units import read_count
from ffnbench.ffn.activations import ACTIVATIONS, Activation
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.user_activation import OwnActivation, row_of_own

Scalar = bool | int | float | str | None
LIKE = "like"  # the key of a module of the user's that names the form of ffnbench that it is said to be
LARGEST = 10**12


class Gate(StrEnum):
    """Where the second factor stands.

    NONE: W_down act(W_up x). INNER: W_down(act(W_gate x) * (W_up x)), Shazeer 2020, LLaMA.
    OUTPUT: (W_down act(W_up x)) * (W_gate x) with W_gate of d_model x d_model, near RWKV's channel mix.
    """

    NONE = "none"
    INNER = "inner"
    OUTPUT = "output"


class Init(StrEnum):
    """How weights are filled: torch's nn.Linear default, He on the way up and Xavier * 0.02 on the way down
    (zero biases), or N(0, 0.02) with zero biases."""

    TORCH = "torch"
    HE_XAVIER = "he_xavier"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class FFNSpec:
    """A feed-forward network of ffnbench's own forms.

    d_ff is the final width per branch: what multiplies d_model in one matrix. `activation` is the canonical
    name of a row of ffn/activations.py, or with `own` the target of a function of the user's; `beta` is set exactly
    where that row has one. With `moe` this is one expert, and d_ff its width.

    `limit` and `up_offset` are those of clamped gates: with g, u = W_gate x, W_up x the hidden state is
    act(min(g, limit)) * (clamp(u, -limit, limit) + up_offset) (gpt-oss 2025: quick_gelu, limit 7, offset 1).
    """

    d_model: int
    d_ff: int
    activation: str
    gate: Gate = Gate.NONE
    bias: bool = False
    beta: float | None = None
    dropout: float = 0.0
    init: Init = Init.TORCH
    own: OwnActivation | None = None
    moe: MoESpec | None = field(default=None, metadata=LATER)
    limit: float | None = field(default=None, metadata=LATER)
    up_offset: float = field(default=0.0, metadata=LATER)

    def __post_init__(self) -> None:
        require_positive("d_model", self.d_model)
        require_positive("d_ff", self.d_ff)
        self._check_clamps()
        if not 0 <= self.dropout < 1:
            raise FfnbenchError(f"dropout {self.dropout:g} is not in [0, 1)", "it is a probability, e.g. 0.1")
        check_beta(self.row, self.beta)

    def _check_clamps(self) -> None:
        if self.gate is not Gate.INNER and (self.limit is not None or self.up_offset):
            raise FfnbenchError("a limit and an offset belong to a gate", "for example swiglu@limit=7@offset=1")
        if self.limit is not None and not (isfinite(self.limit) and self.limit > 0):
            raise FfnbenchError(f"limit {self.limit:g} is not a positive number", "gpt-oss has swiglu_oai@limit=7")
        if not isfinite(self.up_offset):
            raise FfnbenchError(f"offset {self.up_offset:g} is not finite", "gpt-oss has swiglu_oai@offset=1")

    @property
    def row(self) -> Activation:
        """What is known of the activation."""
        return row_of(self.activation, self.own)

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name -> rows, columns of every weight: of one expert, where there are experts."""
        d, h = self.d_model, self.d_ff
        classic = {"up": (h, d), "down": (d, h)}
        match self.gate:
            case Gate.NONE:
                return classic
            case Gate.INNER:
                return {"gate": (h, d), **classic}
            case Gate.OUTPUT:
                return {**classic, "gate": (d, d)}

    @property
    def gated(self) -> bool:
        """Whether there is a second factor at all."""
        return self.gate is not Gate.NONE

    @property
    def name(self) -> str:
        """The published name of the form: `relu`, `swiglu`, `mish_glu`, `silu@gate=output`, `swiglu@moe=8x2`."""
        return self.form + (f"@moe={self.moe.experts}x{self.moe.top_k}" if self.moe else "")

    @property
    def form(self) -> str:
        """The name of the form, without the experts around it."""
        if self.gate is Gate.INNER:
            return self._gated_name()
        return self.activation + {Gate.NONE: "", Gate.OUTPUT: "@gate=output"}[self.gate]

    def _gated_name(self) -> str:
        for row in CLAMPED:
            if (row.activation, row.limit, row.offset) == (self.activation, self.limit, self.up_offset):
                return row.name
        limit = "" if self.limit is None else f"@limit={self.limit:g}"
        offset = f"@offset={self.up_offset:g}" if self.up_offset else ""
        return GATED_BY_ACTIVATION.get(self.activation, f"{self.activation}_glu") + limit + offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSpec:
    """A module of the user's own: `package.module:Attr` or `path/to/file.py:Attr`.

    d_ff is what its constructor is given; what it makes of it shows in the counts. `arguments` are the
    user's `@key=value` pairs for the constructor, which win over what ffnbench fills in by name. `like` is
    what `@like` names: the same function as one of ours, whose d_ff and bias are those of the module's weights.
    """

    target: str
    d_model: int
    d_ff: int
    arguments: tuple[tuple[str, Scalar], ...] = ()
    like: FFNSpec | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        require_positive("d_model", self.d_model)
        require_positive("d_ff", self.d_ff)
        if self.like is not None and (self.like.moe is not None or self.like.d_model != self.d_model):
            raise FfnbenchError(f"{self.target} can't be like experts, or like a form of another d_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationSpec:
    """One activation by itself, a row of ffn/activations.py or the user's own, applied to `elements` numbers."""

    activation: str
    beta: float | None = None
    own: OwnActivation | None = None
    elements: int = 1

    def __post_init__(self) -> None:
        require_positive("elements", self.elements)
        check_beta(self.row, self.beta)

    @property
    def row(self) -> Activation:
        """What is known of the activation."""
        return row_of(self.activation, self.own)

    @property
    def d_model(self) -> int:
        """The width of the vector that it is applied to: all elements are one token."""
        return self.elements

    @property
    def d_ff(self) -> int:
        """As d_model: there is nothing between."""
        return self.elements


NetworkSpec = FFNSpec | ImportedSpec


def shared_expert(spec: FFNSpec) -> FFNSpec | None:
    """All shared experts together, as one network; None where there are none."""
    if spec.moe is None or not spec.moe.shared_d_ff:
        return None
    return replace(spec, d_ff=spec.moe.shared_d_ff, moe=None)


def row_of(activation: str, own: OwnActivation | None) -> Activation:
    """The row of a built-in activation, or one made from what the user declares."""
    return ACTIVATIONS.get(activation) if own is None else row_of_own(own)


def check_beta(row: Activation, beta: float | None) -> None:
    """Beta is finite, and given exactly where the activation has one."""
    if beta is not None and not isfinite(beta):
        raise FfnbenchError(f"beta {beta:g} is not finite", "for beta -> infinity use relu")
    if (row.beta is None) != (beta is None):
        raise FfnbenchError(f"activation {row.name!r} and beta {beta} do not fit", "use swish@beta=2")


def require_positive(name: str, value: object) -> int:
    """A width or a count is a positive integer; anything else is the user's mistake."""
    hint = f"for example --{name.replace('_', '-')} 64"
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FfnbenchError(f"{name} must be a positive integer, not {value!r}", hint)
    if value > LARGEST:
        raise FfnbenchError(f"{name} is larger than {LARGEST:,}", hint)
    return value


def read_positive(name: str, value: object) -> int:
    """As `require_positive`, of what was typed: `2k` is 2,000."""
    if isinstance(value, str):
        with suppress(FfnbenchError):
            value = read_count(value)
    return require_positive(name, value)


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
