"""A block's question: variants in a stack of blocks, its attention, the lengths of the
sequence -> Plan. Pure.

A point of a sweep has a stack for each variant, one without FFNs, and each FFN alone.
The stacks are compared with the first one, and the FFNs alone with the first of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import AttentionSpec, FFNSpec, NetworkSpec, Norm, StackSpec
from ffnbench.models.model import LayerGroup, ModelSpec, crosses
from ffnbench.models.presets import PRESETS
from ffnbench.plan.cases import (
    Lists,
    cases_of,
    model_of,
    refuse_if_none_can_run,
    variants_beside,
)
from ffnbench.plan.plan import (
    GIVEN,
    Case,
    Group,
    Kind,
    Note,
    Plan,
    Point,
    Probe,
    Protocol,
)
from ffnbench.plan.protocol import with_budget
from ffnbench.plan.reading import spelling
from ffnbench.plan.variants import DEFAULT_VARIANTS, PRESET, typed_variants
from ffnbench.stats.in_place import alone, without_ffns

WITHOUT = "(no FFN)"  # the name of the stack without FFNs; no variant can have it
ALONE = (("place", "alone"),)  # how an FFN by itself is told from its stack
HEAD_DIM = 64  # of a block whose sizes are given by hand
LAYERS = 4  # of a stack, where neither a flag nor a model has them
# so many blocks of a stack get the time of one case
BLOCKS_A_CASE = 2
MOST_BUDGETED = 64  # blocks; memory may not hold more


def plan_block(
    variants: str | None,
    flags: Lists,
    *,
    probe: Probe,
    protocol: Protocol,
    preset: str | None = None,
    layers: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
) -> Plan:
    """The plan of variants in a stack of blocks: of a model's main kind of layer, or of
    sizes by hand.
    """
    if preset is None and _names_a_model(variants):
        variants, preset = None, variants
    flags = {**flags, "seq_len": tuple(sorted(flags["seq_len"] or ()))}
    model = model_of(preset)
    main = None if model is None else model.main
    if model is not None:
        refuse_sizes(**flags)
        typed = typed_variants(PRESET, model)
    if variants is not None or model is None:
        typed = variants_beside(variants or DEFAULT_VARIANTS, model)
    ffns, notes = cases_of(typed, flags, probe=probe)
    by_point: dict[Point, list[Case]] = {}
    for case in ffns:
        by_point.setdefault(case.point, []).append(case)
    cases: list[Case] = []
    for of_point in by_point.values():
        form = of_point[0].ffn if main is None else main.form
        # a block has biases in all its linear layers or in none
        bias = isinstance(form, FFNSpec) and form.bias
        stack = StackSpec(
            attentions=attentions_of(form.d_model, main, heads, kv_heads, bias),
            norm=Norm.LAYER if bias else Norm.RMS,
        )
        if layers or main is None:
            stack = stack.with_layers(layers or LAYERS)
        cases += _cases_of_point(of_point, stack)
    refuse_if_none_can_run(case for case in cases if case.in_place)
    return Plan(
        kind=Kind.BLOCK,
        cases=tuple(cases),
        protocol=with_budget(protocol, sum(map(_share_of_budget, cases))),
        metrics=("latency", "memory"),
        notes=(*notes, *_notes(model)),
    )


def _share_of_budget(case: Case) -> int:
    """How many cases' time a case gets: more, the more blocks it has, which memory may
    not hold.
    """
    if isinstance(case.ffn, StackSpec):
        return math.ceil(min(case.ffn.layers, MOST_BUDGETED) / BLOCKS_A_CASE)
    return 1


def _cases_of_point(ffns: Sequence[Case], stack: StackSpec) -> Iterator[Case]:
    """The stacks of these FFNs, the stack without any, and the FFNs alone."""
    for ffn in ffns:
        assert isinstance(ffn.ffn, NetworkSpec)
        yield replace(ffn, ffn=replace(stack, ffn=ffn.ffn))
    work = replace(ffns[0].workload, routing=None)
    yield replace(
        ffns[0],
        name=WITHOUT,
        variant=WITHOUT,
        ffn=stack,
        workload=work,
        sizing=GIVEN,
        residual=None,
    )
    for ffn in ffns:
        yield replace(ffn, run_by=ALONE)


def _names_a_model(variants: str | None) -> bool:
    """Whether the variants are only the name or the file of a model: it stands for the
    whole block of that model.
    """
    if variants is None or "@" in variants or "," in variants:
        return False
    of_file = ":" not in variants and (variants.endswith(".json") or "/" in variants)
    return variants in PRESETS or of_file


def refuse_sizes(**given: Any) -> None:
    """Raise FfnbenchError for a size given beside a model, which has its own."""
    for name in ("d_model", "d_ff"):
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
) -> tuple[tuple[AttentionSpec, int], ...]:
    """The attentions of a kind of layer that are counted: one for each window, with the
    number of layers that have it.
    """
    spec = attention_of(d_model, group, heads, kv_heads, bias)
    if group is None:
        return ((spec, 1),)
    windows = [window for window in group.all_windows if not window.other]
    if not windows:
        raise FfnbenchError(uncounted(group), "`ffnbench cost` counts its FFN")
    return tuple(
        (replace(spec, window=window.tokens), window.count) for window in windows
    )


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
    return replace(spec, causal=group is None or group.is_causal)


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
            "give --heads that divide it; a config.json may have heads of any width",
        )
    return AttentionSpec(
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
    )


def problems(plan: Plan) -> Iterator[str]:
    """What is wrong with a saved plan of stacks, each as a sentence."""
    for group in plan.groups:
        if not group.cases[0].in_place or without_ffns(group) is None:
            yield "a point has no stack, or none without FFNs"
        elif any(alone(group, case) is None for case in stacks_of(group)):
            yield "a stack has no FFN alone beside it"


def stacks_of(group: Group) -> list[Case]:
    """The stacks with FFNs of a group: the rows of the answer."""
    return [
        case for case in group.cases if isinstance(case.ffn, StackSpec) and case.ffn.ffn
    ]


def _notes(model: ModelSpec | None) -> Iterator[Note]:
    """What a reader should know of a model and of what is left out of it."""
    if model is None:
        return
    if model.note:
        yield Note(text=model.note)
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
