"""A block's question: an FFN, the attention beside it, the lengths of the sequence ->
Plan. Pure.

Each length has cases of its own: the FFN, which is their reference, and for each window
that the model's layers have attention and the textbook's form of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, FFNSpec
from ffnbench.models.model import LayerGroup, ModelSpec, crosses
from ffnbench.models.presets import PRESETS
from ffnbench.plan.cases import (
    Lists,
    cases_of,
    model_of,
    refuse_if_none_can_run,
)
from ffnbench.plan.plan import (
    Case,
    Kind,
    Note,
    Plan,
    Point,
    Probe,
    Protocol,
    SizedBy,
    Sizing,
)
from ffnbench.plan.protocol import with_budget
from ffnbench.plan.reading import spelling
from ffnbench.plan.variants import PRESET, typed_variants

# the names of the cases, or the beginnings of these
FFN, ATTENTION, TEXTBOOK = "ffn", "attention", "textbook"
# kinds of layers in which a token sees all others
NOT_CAUSAL = ("encoder", "vision", "audio")
HEAD_DIM = 64  # of a block whose sizes are given by hand
DEFAULT_FORM = "gelu"


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesOfLength:
    """The cases of one length of the sequence, and of one window of attention.
    `textbook` is None where that form of attention has been left out.
    """

    seq_len: int
    ffn: Case
    attention: Case
    textbook: Case | None

    @property
    def spec(self) -> AttentionSpec:
        """The spec of the attention."""
        assert isinstance(self.attention.ffn, AttentionSpec)
        return self.attention.ffn


def plan_block(
    variant: str | None,
    flags: Lists,
    *,
    probe: Probe,
    protocol: Protocol,
    preset: str | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
) -> Plan:
    """The plan of a block: of a model's main kind of layer, or of sizes by hand. A
    sweep has several blocks, each at all lengths.
    """
    if preset is None and _names_a_model(variant):
        variant, preset = None, variant
    flags = {**flags, "seq_len": tuple(sorted(flags["seq_len"] or ()))}
    main, model = None, model_of(preset)
    if model is not None:
        refuse_sizes(variant=variant, **flags)
        main, variant = model.main, PRESET
    typed = typed_variants(variant or DEFAULT_FORM, model)
    ffns, _ = cases_of(typed, flags, probe=probe)
    if len({case.row for case in ffns}) > 1:
        raise FfnbenchError(
            "a block has one FFN",
            "give one variant; `ffnbench compare` measures several",
        )
    cases: list[Case] = []
    for ffn in ffns:
        # a block has biases in all its linear layers or in none
        bias = isinstance(ffn.ffn, FFNSpec) and ffn.ffn.bias
        attentions = attentions_of(ffn.ffn.d_model, main, heads, kv_heads, bias)
        if model is not None:
            form = model.main.form
            sizing = Sizing(how=SizedBy.MODEL, what=model.name)
            ffn = replace(ffn, variant=form.name, ffn=form, sizing=sizing)
        cases += _cases_of_length(ffn, attentions)
    refuse_if_none_can_run(cases)
    return Plan(
        kind=Kind.BLOCK,
        cases=tuple(cases),
        protocol=with_budget(protocol, len(cases)),
        metrics=("latency", "memory"),
        notes=tuple(_notes(model)),
    )


def without_length(point: Point) -> Point:
    """The point of a sweep on all axes but that of lengths: it tells the blocks of a
    plan apart.
    """
    return tuple((name, value) for name, value in point if name != "seq_len")


def _cases_of_length(
    ffn: Case, attentions: list[tuple[AttentionSpec, int | None]]
) -> Iterator[Case]:
    """The case of the FFN at one length, which is the reference, then those of its
    attentions.
    """
    ffn = replace(ffn, name=FFN, residual=None)
    yield ffn
    forms = {ATTENTION: AttentionForm.SDPA, TEXTBOOK: AttentionForm.TEXTBOOK}
    for spec, layers in attentions:
        window = f"-{spec.window}" if spec.window and layers else ""
        for name, form in forms.items():
            yield replace(
                ffn,
                name=f"{name}{window}",
                variant=f"{spec.name} ({name})",
                ffn=replace(spec, form=form),
                workload=replace(ffn.workload, routing=None),
                layers=layers,
            )


def _names_a_model(variant: str | None) -> bool:
    """Whether a variant is only the name or the file of a model: it stands for the
    whole block of that model.
    """
    if variant is None or "@" in variant:
        return False
    of_file = ":" not in variant and (variant.endswith(".json") or "/" in variant)
    return variant in PRESETS or of_file


def refuse_sizes(**given: Any) -> None:
    """Raise FfnbenchError for a size given beside a model, which has its own."""
    for name in ("variant", "d_model", "d_ff"):
        if given.get(name) is not None:
            raise FfnbenchError(
                f"{spelling(name)} can't be given with a model, which sets it",
                "leave one of the two out; --heads and --kv-heads change a model's attention",
            )


def attentions_of(
    d_model: int,
    group: LayerGroup | None,
    heads: int | None,
    kv_heads: int | None,
    bias: bool,
) -> list[tuple[AttentionSpec, int | None]]:
    """The attentions of a kind of layer that are counted: one for each window, with the
    number of layers that have it, or None where all have the same.
    """
    spec = attention_of(d_model, group, heads, kv_heads, bias)
    if group is None:
        return [(spec, None)]
    windows = [window for window in group.all_windows if not window.other]
    if not windows:
        raise FfnbenchError(uncounted(group), "`ffnbench cost` counts its FFN")
    if len(windows) == 1:
        return [(replace(spec, window=windows[0].tokens), None)]
    return [(replace(spec, window=window.tokens), window.count) for window in windows]


def uncounted(group: LayerGroup) -> str:
    """What attention of a kind of layer is not counted, and how many of its layers have
    it, in words; "" where all is counted.
    """
    windows = [window for window in group.windows if window.other]
    if not windows:
        return ""
    what = " and ".join(window.other.replace("_", " ") for window in windows)
    count = sum(window.count for window in windows)
    return f"{what} is not counted: {count} of its {group.count} layers have it"


def attention_of(
    d_model: int,
    group: LayerGroup | None,
    heads: int | None = None,
    kv_heads: int | None = None,
    bias: bool = False,
) -> AttentionSpec:
    """The attention of a kind of layer, with the numbers of heads that the flags give.

    Without a model it is made by hand: causal, and multi-head with heads of HEAD_DIM
    unless the flags say otherwise. So it is where a model's attention is not known.
    """
    attention = None if group is None else group.attention
    if group is None or (attention is None and heads is not None):
        spec = _by_hand(d_model, heads, kv_heads, bias)
    elif attention is None:
        problem = "the attention of this model is not known"
        if reason := uncounted(group):
            problem += f"; {reason}"
        raise FfnbenchError(problem, "give --heads, and --kv-heads where they differ")
    elif heads is None and kv_heads is None:
        spec = attention
    elif attention.mla is not None:
        raise FfnbenchError(
            "latent attention has no heads to choose",
            "leave --heads and --kv-heads out",
        )
    else:
        spec = replace(
            attention,
            heads=heads or attention.heads,
            kv_heads=kv_heads or heads or attention.kv_heads,
        )
    return replace(spec, causal=group is None or group.kind not in NOT_CAUSAL)


def _by_hand(
    d_model: int, heads: int | None, kv_heads: int | None, bias: bool
) -> AttentionSpec:
    """The attention of that width whose heads fill it. Raises FfnbenchError where no
    whole number of heads does.
    """
    if heads is None:
        heads, rest = divmod(d_model, HEAD_DIM)
        if rest or not heads:
            raise FfnbenchError(
                f"d_model {d_model} is no multiple of {HEAD_DIM}", "give --heads"
            )
    head_dim, rest = divmod(d_model, heads)
    if rest or not head_dim:
        raise FfnbenchError(
            f"d_model {d_model} does not divide into {heads} heads",
            "a config.json may have heads of any width",
        )
    return AttentionSpec(
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
    )


def lengths_of(plan: Plan) -> Iterator[CasesOfLength]:
    """The cases of a block's plan by length and window; raises KeyError where a length
    of a saved plan lacks one.
    """
    for group in plan.groups:
        ffn = plan.case(group.reference)
        # window -> form -> case
        by_window: dict[int | None, dict[AttentionForm, Case]] = {}
        for case in group.cases:
            if isinstance(case.ffn, AttentionSpec):
                by_window.setdefault(case.ffn.window, {})[case.ffn.form] = case
        if not by_window:
            raise KeyError(ffn.label)
        for by_form in by_window.values():
            yield CasesOfLength(
                seq_len=ffn.workload.seq_len,
                ffn=ffn,
                attention=by_form[AttentionForm.SDPA],
                textbook=by_form.get(AttentionForm.TEXTBOOK),
            )


def problems(plan: Plan) -> Iterator[str]:
    """What is wrong with a saved plan of a block, each as a sentence."""
    if any(
        plan.is_reference(case.label) == isinstance(case.ffn, AttentionSpec)
        for case in plan.shown
    ):
        yield "a case is not held against an FFN"
    try:
        list(lengths_of(plan))
    except KeyError:
        yield "a length has no attention"


def plans_of_blocks(plan: Plan) -> list[Plan]:
    """The plan of a sweep cut into one for each block, at all of its lengths. The notes
    go with the last one.
    """
    cases_of_block: dict[Point, list[Case]] = {}
    for case in plan.cases:
        cases_of_block.setdefault(without_length(case.point), []).append(case)
    plans = [
        replace(plan, cases=tuple(cases), notes=()) for cases in cases_of_block.values()
    ]
    return [*plans[:-1], replace(plans[-1], notes=plan.notes)]


def _notes(model: ModelSpec | None) -> Iterator[Note]:
    """What a reader should know of a model and of what is left out of it."""
    if model is None:
        return
    for text in filter(None, (model.note, model.defaults)):
        yield Note(text=text)
    if len(model.groups) > 1:
        kinds = ", ".join(f"{group.count} {group.kind}" for group in model.groups)
        yield Note(text=f"one of its {model.main.kind} layers; it has {kinds}")
    if uncounted(model.main):
        yield Note(text=uncounted(model.main))
    if model.main.attention is None:
        yield Note(
            text="its own attention is not known: this is one with the heads that were given"
        )
    if crosses(model.groups, model.main):
        yield Note(text="its second attention, to the encoder, is not counted")
