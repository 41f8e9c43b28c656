"""The specs: of one FFN, of experts of it, of an activation alone, of the attention
beside it; and dtypes and formats of quantised weights.

Pure data, final numbers only, validated on construction. Width rules and matching run
before (plan/widths.py); a spec never computes a width. Which text means which spec
is decided in plan/variants.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import cycle, islice
from math import ceil, isfinite
from typing import Any

from ffnbench.common.choices import Backend, Init, Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import Registry
from ffnbench.common.units import require_positive
from ffnbench.ffn.activations import ACTIVATIONS, Activation, OwnActivation, row_of_own

Scalar = bool | int | float | str | None
# the key of a target that names the form which it should compute
LIKE = "like"
Parameters = tuple[tuple[str, float], ...]  # names and values
# parameters of every activation, with the values that change nothing
OF_EVERY_ACTIVATION = {"limit": None, "offset": 0.0}
PARAMETERS = ("beta", "limit", "offset", "slope", "smooth")
POSITIVE = ("limit", "smooth")
UP = "up_"  # before the names of what belongs to the activation on up


class Gate(StrEnum):
    """Where the gate, the second factor, stands.

    NONE: there is none, W_down act(W_up x). INNER: W_down(act(W_gate x) * (W_up x)),
    Shazeer 2020, LLaMA. OUTPUT: (W_down act(W_up x)) * (W_gate x) with W_gate of
    d_model x d_model, near RWKV's channel mix.
    """

    NONE = "none"
    INNER = "inner"
    OUTPUT = "output"


class Norm(StrEnum):
    """RMSNorm (Zhang & Sennrich 2019), or LayerNorm (Ba et al. 2016), which has a
    bias.
    """

    LAYER = "LayerNorm"
    RMS = "RMSNorm"


class Scores(StrEnum):
    """How router logits become weights: softmax over all experts, or a sigmoid each
    (DeepSeek-V3).
    """

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class Dispatch(StrEnum):
    """How the experts are run: one after another over those that are hit, all in one
    grouped matrix product, or all in one batched product over as many rows for each as
    its capacity (GShard: arXiv 2006.16668).
    """

    EAGER = "eager"
    GROUPED = "grouped"
    BATCHED = "batched"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoESpec:
    """The experts around one FFN form. Widths are per branch, as d_ff is.

    A token goes to the `top_k` experts of the highest score; each is a network of
    FFNSpec's form with d_ff per expert (Shazeer et al. 2017; Mixtral, Jiang et al.
    2024). A shared expert sees every token (DeepSeekMoE, Dai et al. 2024).

    `shared_d_ff` is the width of all shared experts together, 0 for none; `shared_gate`
    multiplies their output by sigmoid(w x), one number a token (Qwen2-MoE).
    `router_bias` is a trained bias of the logits (gpt-oss). `normalised` divides the
    chosen weights by their sum (Mixtral; Qwen's norm_topk_prob), and `routed_scale`
    multiplies them (DeepSeek-V3's routed_scaling_factor). With `groups` a token's
    experts come from the `top_groups` groups of neighbouring experts whose two best
    scores have the largest sum (DeepSeek-V3's n_group and topk_group). With `latent`
    tokens are projected to that width, the routed experts work at it, and their sum is
    projected back; router and shared experts see the full width (LatentMoE: arXiv
    2601.18089; Nemotron 3, Kimi K3). The router chooses among `zero` experts more that
    give back what they are given (MoE++: arXiv 2410.07348; LongCat-Flash). With
    `capacity` an expert takes so many times the mean number of choices at most, of the
    first tokens (Switch Transformer: arXiv 2101.03961); what is dropped adds nothing.
    """

    experts: int
    top_k: int
    shared_d_ff: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    scores: Scores = Scores.SOFTMAX
    normalised: bool = True
    routed_scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    dispatch: Dispatch = Dispatch.EAGER
    latent: int = 0
    zero: int = 0
    capacity: float | None = None

    def __post_init__(self) -> None:
        least_of = {"experts": 1, "top_k": 1, "shared_d_ff": 0, "latent": 0, "zero": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:  # nor a bool
                raise FfnbenchError(
                    f"{name} must be a whole number of at least {least}, not {value!r}",
                    "e.g. moe=8x2",
                )
        if self.top_k > self.outputs:
            raise FfnbenchError(
                f"top_k {self.top_k} is above the number of experts, {self.outputs}",
                "for example moe=8x2",
            )
        self._check_groups()
        if self.dispatch is Dispatch.BATCHED and self.capacity is None:
            raise FfnbenchError(
                "batched experts need a capacity: their rows are padded to it",
                "for example @experts=batched@capacity=1.25",
            )
        if self.shared_gate and not self.shared_d_ff:
            raise FfnbenchError(
                "a shared gate needs a shared expert", "for example @shared=2048"
            )
        if not (isfinite(self.routed_scale) and self.routed_scale > 0):
            raise FfnbenchError(
                f"routed_scale {self.routed_scale:g} is not positive",
                "for example 2.5, as in DeepSeek-V3",
            )

    def _check_groups(self) -> None:
        """Raise FfnbenchError unless the groups are equal, each has at least two
        experts, and the chosen groups have enough of them for a token.
        """
        equal = self.groups > 0 and self.outputs % self.groups == 0
        size = self.outputs // self.groups if equal else 0
        enough = (
            0 < self.top_groups <= self.groups and size * self.top_groups >= self.top_k
        )
        if not enough or (self.groups > 1 and size < 2):
            raise FfnbenchError(
                f"{self.top_k} of {self.outputs} experts can't come from {self.top_groups} of {self.groups} groups",
                "groups=8x4 is 8 groups of equal size, of at least two experts, and 4 of them for each token",
            )

    @property
    def outputs(self) -> int:
        """The experts that the router chooses among."""
        return self.experts + self.zero

    @property
    def partial(self) -> bool:
        """Whether some choices are of no expert with weights."""
        return bool(self.zero) or self.capacity is not None

    @property
    def choices(self) -> float:
        """Experts with weights that a token goes to, where all are chosen evenly."""
        return self.top_k * self.experts / self.outputs

    def most_rows(self, tokens: int) -> int:
        """The tokens that an expert takes at most, of so many in a call."""
        if self.capacity is None:
            return tokens
        mean = tokens * self.top_k / self.outputs
        return min(tokens, ceil(round(self.capacity * mean, 6)))

    def router_params(self, d_model: int) -> int:
        """Parameters of the router, of the shared expert's gate, and of the projections
        to the latent width and back.
        """
        params = self.router_matrix_params(d_model) + 2 * d_model * self.latent
        if self.router_bias:
            params += self.outputs
        return params

    def router_matrix_params(self, d_model: int) -> int:
        """Parameters without the router's bias: one MAC each for every token."""
        outputs = self.outputs
        if self.shared_gate:
            outputs += 1
        return outputs * d_model


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationSpec:
    """An activation with values of its parameters: f(min(x, limit)) + offset, where f
    is a row of ffn/activations.py or the user's own.

    `activation` is the canonical name of the row, or with `own` the target of a
    function of the user's. `parameters` are those that are not at their default, in
    alphabetical order. Every activation has an `offset`, and a `limit`: where the row
    itself has a parameter of that name, it is that one.
    """

    activation: str
    parameters: Parameters = ()
    own: OwnActivation | None = None

    def __post_init__(self) -> None:
        own = dict(self.row.parameters)
        for name, value in self.parameters:
            if name not in own and name not in OF_EVERY_ACTIVATION:
                having = [
                    f"{r.name}@{name}="
                    for r in ACTIVATIONS
                    if name in dict(r.parameters)
                ]
                raise FfnbenchError(
                    f"{self.activation} has no {name}",
                    f"activations that have one: {', '.join(having)}",
                )
            if not isfinite(value) or (name in POSITIVE and value <= 0):
                needed = "positive number" if name in POSITIVE else "finite number"
                raise FfnbenchError(
                    f"{name} {value:g} of {self.activation} is not a {needed}",
                    f"for example {name}=1",
                )

    @property
    def row(self) -> Activation:
        """What is known of the activation, without limit and offset."""
        if self.own is None:
            return ACTIVATIONS.get(self.activation)
        return row_of_own(self.own)

    @property
    def values(self) -> tuple[float, ...]:
        """The values of the row's own parameters."""
        given = dict(self.parameters)
        return tuple(given.get(name, value) for name, value in self.row.parameters)

    @property
    def limit(self) -> float | None:
        """The upper bound of the argument, where there is one that is not the row's."""
        if "limit" in dict(self.row.parameters):
            return None
        return dict(self.parameters).get("limit")

    @property
    def offset(self) -> float:
        """What is added to the result."""
        return dict(self.parameters).get("offset", 0.0)

    @property
    def flops(self) -> int | None:
        """FLOPs of an element."""
        if self.row.flops is None:
            return None
        return self.row.flops + (self.limit is not None) + (self.offset != 0)

    @property
    def flops_backward(self) -> int | None:
        """FLOPs of an element's gradient: a limit compares and selects."""
        if self.row.flops_backward is None:
            return None
        return self.row.flops_backward + 2 * (self.limit is not None)

    @property
    def name(self) -> str:
        """As a user types it: `silu`, `swish@beta=0.5`."""
        return self.activation + self.keys("")

    def keys(self, prefix: str) -> str:
        """The keys of its parameters, whose names have a prefix: `@up_limit=7`."""
        return "".join(f"@{prefix}{name}={v:g}" for name, v in self.parameters)

    def with_parameters(self, given: Mapping[str, float]) -> ActivationSpec:
        """The activation with these parameters; silu with a beta is swish, and the
        other way round.
        """
        spec = self
        if "beta" in given and self.activation == "silu":
            spec = replace(self, activation="swish")
        defaults = dict(spec.row.parameters)
        values = dict(spec.parameters) | {n: float(v) for n, v in given.items()}
        parameters = tuple(
            (name, value)
            for name, value in sorted(values.items())
            if value != defaults.get(name, OF_EVERY_ACTIVATION.get(name))
        )
        if spec.activation == "swish" and "beta" not in dict(parameters):
            return replace(spec, activation="silu", parameters=parameters)
        return replace(spec, parameters=parameters)


class Applied:
    """The function of an activation, ready to be called often. `learned` are the names
    of its trained scalars, behind a prefix.
    """

    def __init__(self, spec: ActivationSpec, prefix: str = "") -> None:
        self.apply, self.values = spec.row.apply, spec.values
        self.limit, self.offset = spec.limit, spec.offset
        self.learned = [prefix + name for name, _ in spec.row.learned]

    def of(self, functional: Any, x: Any, learned: Sequence[Any] = ()) -> Any:
        """f(min(x, limit)) + offset, by the functions of torch.nn.functional."""
        # rebinding lets go of what is no longer used
        if self.limit is not None:
            x = x.clamp(max=self.limit)
        x = self.apply(functional, x, *self.values, *learned)
        if self.offset:
            x = x + self.offset
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class FFNSpec:
    """A feed-forward network of ffnbench's own forms.

    d_ff is the final width per branch: what multiplies d_model in one matrix.
    `activation`, `parameters` and `own` are those of an ActivationSpec. `up` is a
    second activation, on the up branch of an inner gate: act(W_gate x) * up(W_up x).
    `subnorm` is between the hidden layer and W_down (sub-LN: Wang et al. 2022, arXiv
    2210.06423).
    The tokens are computed in `tile` parts, one after another (Arctic's tiled MLP:
    arXiv 2506.13996); with `checkpoint` the forward is computed again in the backward
    (Chen et al. 2016, arXiv 1604.06174).
    With `moe` this is one expert, and d_ff its width.
    """

    d_model: int
    d_ff: int
    activation: str
    parameters: Parameters = ()
    gate: Gate = Gate.NONE
    bias: bool = False
    dropout: float = 0.0
    init: Init = Init.TORCH
    own: OwnActivation | None = None
    up: ActivationSpec | None = None
    subnorm: Norm | None = None
    checkpoint: bool = False
    tile: int = 0  # as 1: all tokens at once
    moe: MoESpec | None = None

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff"):
            require_positive(name, getattr(self, name))
        assert self.act.row
        if self.up is not None and self.gate is not Gate.INNER:
            raise FfnbenchError(
                f"a second activation needs a gate, and {self.activation} has none",
                "for example relu_glu@up=relu",
            )
        of_dense_forms = {
            "subnorm": self.subnorm is not None,
            "checkpoint": self.checkpoint,
            "tile": self.tile > 1,
        }
        for key, is_given in of_dense_forms.items():
            if is_given and self.moe is not None:
                raise FfnbenchError(
                    f"{key} is not built in experts", f"leave @{key} or @moe out"
                )
        if not 0 <= self.dropout < 1:
            raise FfnbenchError(
                f"dropout {self.dropout:g} is not in [0, 1)",
                "it is a probability, e.g. 0.1",
            )

    @property
    def act(self) -> ActivationSpec:
        """The activation: of the gate, where that is inner."""
        return ActivationSpec(
            activation=self.activation, parameters=self.parameters, own=self.own
        )

    @property
    def activations(self) -> dict[str, ActivationSpec]:
        """The activation, and the one on up; by the prefix of their parameters."""
        if self.up is None:
            return {"": self.act}
        return {"": self.act, UP: self.up}

    @property
    def learned(self) -> dict[str, float]:
        """The trained scalars of the activations, with the values that they begin
        with.
        """
        return {
            prefix + name: start
            for prefix, act in self.activations.items()
            for name, start in act.row.learned
        }

    def tokens_of_tiles(self, tokens: int) -> list[int]:
        """The tokens of each tile, as torch's chunk cuts them: the last tile may have
        fewer than the others.
        """
        size = ceil(tokens / max(1, self.tile))
        return [min(size, tokens - start) for start in range(0, tokens, size)]

    @property
    def norm_params(self) -> int:
        """Trained factors of the norm, and its biases."""
        return {None: 0, Norm.RMS: 1, Norm.LAYER: 2}[self.subnorm] * self.d_ff

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name -> rows, columns of every weight: of one expert, where there are
        experts.
        """
        d, h = self.expert_width, self.d_ff
        classic = {"up": (h, d), "down": (d, h)}
        match self.gate:
            case Gate.NONE:
                return classic
            case Gate.INNER:
                return {"gate": (h, d), **classic}
            case Gate.OUTPUT:
                return {**classic, "gate": (d, d)}

    def matrices_of(self, experts: float | None = None) -> list[tuple[int, int, float]]:
        """Rows, columns and number of the weights of so many routed experts, or of all,
        and of shared ones, without router and gate of these; of a dense form its
        weights.
        """
        count = experts
        if count is None:
            count = 1 if self.moe is None else self.moe.experts
        matrices = [(*shape, count) for shape in self.matrices.values()]
        if self.moe is not None and self.moe.latent:
            shape = (self.moe.latent, self.d_model)
            matrices += [(*shape, 1), (*shape[::-1], 1)]
        if self.moe is not None and (shared := shared_expert(self)):
            matrices += [(*shape, 1) for shape in shared.matrices.values()]
        return matrices

    @property
    def expert_width(self) -> int:
        """The width of what an expert is given: d_model, where it is not latent."""
        if self.moe is None or not self.moe.latent:
            return self.d_model
        return self.moe.latent

    @property
    def gated(self) -> bool:
        """Whether there is a gate."""
        return self.gate is not Gate.NONE

    @property
    def name(self) -> str:
        """The name of the form with its experts, as a user types it: `relu`, `swiglu`,
        `mish_glu`, `silu@gate=output`, `swiglu@moe=8x2`.
        """
        if self.moe is None:
            return self.form_name
        return f"{self.form_name}@moe={self.moe.experts}x{self.moe.top_k}"

    @property
    def form_name(self) -> str:
        """As `name`, without the experts."""
        for row in GATED:
            if row.names(self):
                return row.name
        keys = ""
        if self.up is not None:
            keys += f"@up={self.up.activation}{self.up.keys(UP)}"
        if self.subnorm is not None:
            keys += f"@subnorm={self.subnorm.name.lower()}"
        match self.gate:
            case Gate.NONE:
                return self.act.name + keys
            case Gate.INNER:
                name = f"{self.activation}_glu"
                if self.activation in GATED_BY_ACTIVATION:
                    name = GATED_BY_ACTIVATION[self.activation]
                elif name in GATED:  # which has more than this activation
                    name = f"{self.activation}@gate=inner"
                return name + self.act.keys("") + keys
            case Gate.OUTPUT:
                return f"{self.act.name}@gate=output{keys}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSpec:
    """A module of the user's own: `package.module:Attr` or `path/to/file.py:Attr`.

    d_ff is what its constructor is given; what it makes of it shows in the counts.
    `arguments` are the user's `@key=value` pairs for the constructor, which win over
    what ffnbench fills in by name. `like` is the form that `@like` names, which the
    module should compute; d_ff and bias of that form are read off the module's weights.
    """

    target: str
    d_model: int
    d_ff: int
    arguments: tuple[tuple[str, Scalar], ...] = ()
    like: FFNSpec | None = None

    def __post_init__(self) -> None:
        require_positive("d_model", self.d_model)
        require_positive("d_ff", self.d_ff)
        if self.like is not None and self.like.d_model != self.d_model:
            raise FfnbenchError(
                f"{self.target} can't be like a form of another d_model"
            )


NetworkSpec = FFNSpec | ImportedSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MLASpec:
    """Multi-head latent attention (DeepSeek-V2, 2024). `q_lora` is the rank of the
    compressed queries, None where they are not compressed, `kv_lora` that of keys and
    values.

    A head's query and key have `nope` + `rope` elements, its value `v`; all heads share
    the key's rope part.
    """

    q_lora: int | None
    kv_lora: int
    nope: int
    rope: int
    v: int

    def __post_init__(self) -> None:
        if self.q_lora is not None:
            require_positive("q_lora", self.q_lora)
        for name in ("kv_lora", "nope", "rope", "v"):
            require_positive(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """Multi-head (Vaswani 2017), multi-query (Shazeer 2019), grouped-query (Ainslie et
    al. 2023) or latent attention.

    It has `heads` query heads and `kv_heads` heads of keys and values, each of
    `head_dim` elements. `qkv_bias` and `out_bias` give q, k and v, and o, a bias.

    Where it is `causal`, a token sees itself and those before it, else its whole
    sequence. A `window` leaves it the last so many of these, itself among them, and
    where it is not causal so many to either side; None leaves it all.
    """

    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    mla: MLASpec | None = None
    causal: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("d_model", "heads", "kv_heads", "head_dim"):
            require_positive(name, getattr(self, name))
        if self.window is not None:
            require_positive("window", self.window)
        if self.heads % self.kv_heads:
            raise FfnbenchError(
                f"{self.heads} heads can't share {self.kv_heads} heads of keys and values",
                "kv_heads divides heads: 32 and 8",
            )
        if self.qkv_bias and self.mla is not None:
            raise FfnbenchError(
                "biases of q, k and v are not those of latent attention",
                "its factors have none here",
            )

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name -> rows, columns of every weight: q, k, v and o, or MLA's low-rank
        factors and o.
        """
        d, h, mla = self.d_model, self.heads, self.mla
        if mla is None:
            q, kv = h * self.head_dim, self.kv_heads * self.head_dim
            return {"q": (q, d), "k": (kv, d), "v": (kv, d), "o": (d, q)}
        q = h * (mla.nope + mla.rope)
        if mla.q_lora is None:
            matrices = {"q": (q, d)}
        else:
            matrices = {"q_down": (mla.q_lora, d), "q_up": (q, mla.q_lora)}
        matrices["kv_down"] = (mla.kv_lora + mla.rope, d)
        matrices["kv_up"] = (h * (mla.nope + mla.v), mla.kv_lora)
        matrices["o"] = (d, h * mla.v)
        return matrices

    @property
    def biases(self) -> dict[str, int]:
        """Name -> elements of the bias of every weight that has one. MLA has none on
        its factors.
        """
        biased = []
        if self.qkv_bias:
            biased += ["q", "k", "v"]
        if self.out_bias:
            biased.append("o")
        return {name: self.matrices[name][0] for name in biased}

    @property
    def params(self) -> int:
        """The number of all parameters, biases included."""
        matrices = sum(rows * columns for rows, columns in self.matrices.values())
        return matrices + sum(self.biases.values())

    @property
    def key_dim(self) -> int:
        """Elements of one head's query, and of its key."""
        if self.mla is None:
            return self.head_dim
        return self.mla.nope + self.mla.rope

    @property
    def value_dim(self) -> int:
        """Elements of one head's value."""
        if self.mla is None:
            return self.head_dim
        return self.mla.v

    @property
    def kv_per_token(self) -> int:
        """Elements that a cache keeps of one token: those of its keys and values, or
        of MLA's latent vector and the key's shared rope part.
        """
        if self.mla is None:
            return 2 * self.kv_heads * self.head_dim
        return self.mla.kv_lora + self.mla.rope

    def windowed(self, seq_len: int) -> bool:
        """Whether the window hides any token of a sequence of so many tokens."""
        if self.window is None:
            return False
        if self.causal:  # the last token sees them all by a window of seq_len
            return self.window < seq_len
        return self.window < seq_len - 1  # the first token counts the others only

    @property
    def name(self) -> str:
        """`multi-head`, `grouped-query`, `multi-query` or `latent`."""
        if self.mla is not None:
            return "latent"
        if self.kv_heads == self.heads:
            return "multi-head"
        if self.kv_heads == 1:
            return "multi-query"
        return "grouped-query"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """Pre-norm blocks one after another: x += attention(norm(x)); x += ffn(norm(x)).

    `attentions` are the kinds of attention, each with how many layers have it. Where
    `ffn` is None, x += norm(x) takes the place of the FFN's half.
    """

    ffn: NetworkSpec | None = None
    attentions: tuple[tuple[AttentionSpec, int], ...]
    norm: Norm = Norm.RMS

    @property
    def layers(self) -> int:
        """The number of blocks."""
        return sum(count for _, count in self.attentions)

    @property
    def d_model(self) -> int:
        """The width of the model."""
        return self.attentions[0][0].d_model

    @property
    def d_ff(self) -> int | None:
        """The width of the FFNs; None without them."""
        return None if self.ffn is None else self.ffn.d_ff

    @property
    def in_order(self) -> list[AttentionSpec]:
        """The attention of each layer; the layers of a kind are spread evenly."""
        places = [
            ((number + 0.5) / count, kind)
            for kind, (_, count) in enumerate(self.attentions)
            for number in range(count)
        ]
        return [self.attentions[kind][0] for _, kind in sorted(places)]

    def with_layers(self, layers: int) -> StackSpec:
        """The stack with so many of its layers, from the first on, and once more from
        the first where it has fewer.
        """
        taken = Counter(islice(cycle(self.in_order), layers))
        return replace(
            self,
            attentions=tuple(
                (spec, taken[spec]) for spec, _ in self.attentions if taken[spec]
            ),
        )


def shared_expert(spec: FFNSpec) -> FFNSpec | None:
    """All shared experts together, as one network; None where there are none."""
    if spec.moe is None or not spec.moe.shared_d_ff:
        return None
    return replace(spec, d_ff=spec.moe.shared_d_ff, moe=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedName:
    """A published name of W_down norm(act(W_gate x) * up(W_up x)): the two activations,
    and the norm.
    """

    name: str
    activation: ActivationSpec
    up: ActivationSpec | None = None
    subnorm: Norm | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    source: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but an activation on the gate."""
        return self.parts == (replace(self.activation, parameters=()), None, None)

    @property
    def parts(self) -> tuple[ActivationSpec, ActivationSpec | None, Norm | None]:
        """What tells the forms of an inner gate apart."""
        return self.activation, self.up, self.subnorm

    def names(self, spec: FFNSpec) -> bool:
        """Whether a form has this name."""
        of_spec = spec.act, spec.up, spec.subnorm
        return spec.gate is Gate.INNER and of_spec == self.parts

    @property
    def form(self) -> FFNSpec:
        """The form, with widths of 1."""
        return FFNSpec(
            d_model=1,
            d_ff=1,
            activation=self.activation.activation,
            parameters=self.activation.parameters,
            gate=Gate.INNER,
            up=self.up,
            subnorm=self.subnorm,
        )


def act(activation: str, **parameters: float) -> ActivationSpec:
    """An activation with these parameters."""
    return ActivationSpec(activation=activation).with_parameters(parameters)


_GATED_ROWS = (
    GatedName(
        name="glu",
        activation=act("sigmoid"),
        note="glu is the original form: the sigmoid is on the gate",
        source="Dauphin et al. 2016",
    ),
    GatedName(name="bilinear", activation=act("identity"), aliases=("liglu",)),
    GatedName(name="reglu", activation=act("relu")),
    GatedName(
        name="geglu",
        activation=act("gelu"),
        aliases=("geglu_erf",),
        note="geglu is the exact erf form; TransformerEngine, Gemma and T5 v1.1 mean geglu_tanh",
    ),
    GatedName(name="geglu_tanh", activation=act("gelu_tanh")),
    GatedName(name="swiglu", activation=act("silu")),
    GatedName(
        name="swiglu_oai",
        activation=act("quick_gelu", limit=7),
        up=act("clamp", limit=7, offset=1),
        aliases=("swigluoai", "clamped_swiglu"),
        note="swiglu_oai is quick_gelu(min(gate, 7)) * (clamp(up, -7, 7) + 1), as in gpt-oss, "
        "whose hidden_act says silu",
        source="gpt-oss 2025; MiniMax-M3",
    ),
    GatedName(
        name="swiglu_v4",
        activation=act("silu", limit=10),
        up=act("clamp", limit=10),
        note="swiglu_v4 is silu(min(gate, 10)) * clamp(up, -10, 10)",
        source="DeepSeek-V4 2026",
    ),
    GatedName(
        name="situ_glu",
        activation=act("situ"),
        up=act("softcap"),
        note="situ_glu is 4 tanh(gate/4) sigmoid(gate) * 25 tanh(up/25)",
        source="Kimi K3 2026, eq. 12",
    ),
    GatedName(
        name="drelu",
        activation=act("relu"),
        up=act("relu"),
        note="drelu is relu(gate) * relu(up)",
        source="TurboSparse 2024, arXiv 2406.05955",
    ),
    GatedName(
        name="bitnet_glu",
        activation=act("relu2"),
        subnorm=Norm.RMS,
        note="bitnet_glu is relu2(gate) * up with an RMSNorm before down",
        source="BitNet b1.58 2B4T 2025, arXiv 2504.12285",
    ),
    GatedName(
        name="eva02_glu",
        activation=act("silu"),
        subnorm=Norm.LAYER,
        note="eva02_glu is swiglu with a LayerNorm before down",
        source="EVA-02 2023, arXiv 2303.11331",
    ),
)
GATED: Registry[GatedName] = Registry(
    "gated form", "`ffnbench list variants` shows all"
)
for _gated in _GATED_ROWS:
    GATED.add(_gated.name, _gated, _gated.aliases)
GATED_BY_ACTIVATION = {
    row.activation.activation: row.name for row in _GATED_ROWS if row.is_plain
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A dtype by torch's name.

    `tolerance` is the relative error (Frobenius) that rounding alone explains, which
    grows as the square root of d_ff, with room to spare.
    """

    name: str
    bytes: int
    tolerance: float
    aliases: tuple[str, ...]


_DTYPE_ROWS = (
    Dtype(name="float64", bytes=8, tolerance=1e-10, aliases=("double", "fp64")),
    Dtype(name="float32", bytes=4, tolerance=1e-4, aliases=("float", "fp32")),
    Dtype(name="bfloat16", bytes=2, tolerance=5e-2, aliases=("bf16",)),
    Dtype(name="float16", bytes=2, tolerance=1e-2, aliases=("half", "fp16")),
)
DTYPES: Registry[Dtype] = Registry("dtype", "float64, float32, bfloat16 or float16")
for _dtype in _DTYPE_ROWS:
    DTYPES.add(_dtype.name, _dtype, _dtype.aliases)


# Relative error of rounding to nearest (unit roundoff) of the factors of a float32
# product, by what torch calls the precision of such products. TF32 keeps 10 explicit
# bits of the significand and so rounds by 2^-11 at most (NVIDIA, "A100 Tensor Core GPU
# Architecture", 2020), bfloat16 keeps 7 (2^-8); sums stay float32
# (torch.set_float32_matmul_precision).
FACTOR_ROUNDOFF = {"high": 2.0**-11, "medium": 2.0**-8}
# An FFN rounds the factors of two products, one after the other, and a gated one those
# of three. On emulated TF32 and bfloat16 its worst row is off by 0.6 to 2.4 of these,
# and by 7 at most where hardware cuts bits off in place of rounding
# (tests/worker/test_precision.py). A module that is 1 % off is still found at HIGH.
FACTOR_ROUNDINGS = 10


def tolerance(dtype: str, matmul_precision: str = "highest") -> float:
    """The relative error that rounding alone explains, with room to spare.
    `matmul_precision` is torch's setting for products of float32; it does not change
    those of other dtypes.
    """
    row = DTYPES.get(dtype)
    if row.name == "float32" and matmul_precision in FACTOR_ROUNDOFF:
        return max(row.tolerance, FACTOR_ROUNDINGS * FACTOR_ROUNDOFF[matmul_precision])
    return row.tolerance


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPES.get(dtype).bytes


DEFAULT_GROUP = 32  # columns of a weight that share a scale


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """What a quantised matrix (rows, columns) is made of: elements of `bits` bits, and
    for each block of `rows` x `columns` so many `numbers` that give them back, such as
    a scale and a zero point; None stands for all rows, or all columns. With `grouped`,
    the columns of a block are those of @group. `number_bytes` is the size of such a
    number; None is the size of an element of the call's dtype. `matrix_bytes` are there
    once.
    """

    bits: int
    rows: int | None = 1
    columns: int | None = None
    grouped: bool = False
    numbers: int = 1
    number_bytes: int | None = None
    matrix_bytes: int = 0

    def bytes_of(self, rows: int, columns: int, *, group: int, item: int) -> int:
        """The bytes of a matrix; `item` is the size of an element of the call's
        dtype. A block at an edge may be smaller.
        """
        block_columns = group if self.grouped else self.columns or columns
        blocks = ceil(rows / (self.rows or rows)) * ceil(columns / block_columns)
        number_bytes = self.number_bytes or item
        of_numbers = blocks * self.numbers * number_bytes + self.matrix_bytes
        return ceil(rows * columns * self.bits / 8) + of_numbers


# What torch's own operations hold: a scale for each row (int8); scale, zero point and
# sum of each row, all of 32 bits (int8-dynamic); a scale and the middle of the range
# for each group (int4).
TORCH_FORMATS = {
    Weights.INT8: WeightFormat(bits=8),
    Weights.INT8_DYNAMIC: WeightFormat(bits=8, numbers=3, number_bytes=4),
    Weights.INT4: WeightFormat(bits=4, grouped=True, numbers=2),
}
# ONNX's operators are symmetric, with a scale of float32.
ONNX_FORMATS = {
    Weights.INT8: WeightFormat(bits=8, grouped=True, number_bytes=4),
    Weights.INT8_DYNAMIC: WeightFormat(bits=8, number_bytes=4),
    Weights.INT4: WeightFormat(bits=4, grouped=True, number_bytes=4),
}
# what GPUs of this year compute with, and no backend here: their bytes are counted
COUNTED_FORMATS = {
    Weights.FP8: WeightFormat(bits=8, rows=None, number_bytes=4),
    Weights.FP8_ROW: WeightFormat(bits=8, number_bytes=4),
    Weights.FP8_BLOCK: WeightFormat(bits=8, rows=128, columns=128, number_bytes=4),
    Weights.MXFP4: WeightFormat(bits=4, columns=32, number_bytes=1),
    Weights.NVFP4: WeightFormat(bits=4, columns=16, number_bytes=1, matrix_bytes=4),
}
# the backends that quantise weights
WEIGHT_FORMATS = {
    Backend.EAGER: TORCH_FORMATS,
    Backend.ORT: ONNX_FORMATS,
    Backend.OPENVINO: ONNX_FORMATS,
}


def format_of(weights: Weights, backend: Backend) -> WeightFormat | None:
    """How a backend holds weights, or would; None where they stay as they are, or where
    it has no such format.
    """
    of_backend = WEIGHT_FORMATS.get(backend, {}).get(weights)
    return of_backend or COUNTED_FORMATS.get(weights)
