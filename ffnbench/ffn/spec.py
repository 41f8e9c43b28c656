"""The specification of one FFN: final numbers only, validated on construction.

Width rules and matching run before (sizing.py); a spec never computes a width. What text means which spec is
the business of grammar.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isfinite

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.variants import ACTIVATIONS, GATED_BY_ACTIVATION

Scalar = bool | int | float | str | None


class Gate(Enum):
    """Where the second factor stands.

    NONE: W_down act(W_up x). INNER: W_down(act(W_gate x) * (W_up x)), Shazeer 2020, LLaMA.
    OUTPUT: (W_down act(W_up x)) * (W_gate x) with W_gate of d_model x d_model, near RWKV's channel mix.
    """

    NONE = "none"
    INNER = "inner"
    OUTPUT = "output"


class Init(Enum):
    """How weights are filled: torch's nn.Linear default, He on the way up and Xavier * 0.02 on the way down
    (zero biases), or N(0, 0.02) with zero biases."""

    TORCH = "torch"
    HE_XAVIER = "he_xavier"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class FFNSpec:
    """A feed-forward network of ffnbench's own forms.

    d_ff is the final width per branch: what multiplies d_model in one matrix. `activation` is the canonical
    name of a row of variants.py; `beta` is set exactly where that row has one.
    """

    d_model: int
    d_ff: int
    activation: str
    gate: Gate = Gate.NONE
    bias: bool = False
    beta: float | None = None
    dropout: float = 0.0
    init: Init = Init.TORCH

    def __post_init__(self) -> None:
        require_positive("d_model", self.d_model)
        require_positive("d_ff", self.d_ff)
        if not 0 <= self.dropout < 1:
            raise FfnbenchError(f"dropout {self.dropout:g} is not in [0, 1)", "it is a probability, e.g. 0.1")
        if self.beta is not None and not isfinite(self.beta):
            raise FfnbenchError(f"beta {self.beta:g} is not finite", "for beta -> infinity use relu")
        if (ACTIVATIONS.get(self.activation).beta is None) != (self.beta is None):
            raise FfnbenchError(f"activation {self.activation!r} and beta {self.beta} do not fit", "use swish@beta=2")

    @property
    def gated(self) -> bool:
        """Whether there is a second factor at all."""
        return self.gate is not Gate.NONE

    @property
    def name(self) -> str:
        """The published name of the form: `relu`, `swiglu`, `mish_glu`, `silu@gate=output`."""
        if self.gate is Gate.INNER:
            return GATED_BY_ACTIVATION.get(self.activation, f"{self.activation}_glu")
        return self.activation + ("@gate=output" if self.gate is Gate.OUTPUT else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSpec:
    """A module of the user's own: `package.module:Attr` or `path/to/file.py:Attr`.

    d_ff is what its constructor is given; what it makes of it shows in the counts. `arguments` are the
    user's `@key=value` pairs for the constructor, which win over what ffnbench fills in by name.
    """

    target: str
    d_model: int
    d_ff: int
    arguments: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        require_positive("d_model", self.d_model)
        require_positive("d_ff", self.d_ff)


AnySpec = FFNSpec | ImportedSpec


def require_positive(name: str, value: object) -> int:
    """A width or a count is a positive integer; anything else is the user's mistake."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FfnbenchError(
            f"{name} must be a positive integer, not {value!r}", f"for example --{name.replace('_', '-')} 768"
        )
    return value
