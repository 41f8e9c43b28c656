"""A block's question: an FFN, the attention beside it, the lengths of the sequence ->
Plan. Pure.

Each length has cases of its own: the FFN, which is their reference, and for each window
that the model's layers have attention and the textbook's form of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, read_positive
from ffnbench.models.model import LayerGroup, ModelSpec, crosses
from ffnbench.models.presets import PRESETS
from ffnbench.models.published import model_of
from ffnbench.plan import Case, Kind, Note, Plan, Point, Probe, Sizing, group_suffix
from ffnbench.planning.axes import (
    CellRequest,
    listed_variants,
    requests_of_cells,
    swept_flags,
)
from ffnbench.planning.compare import as_compare, plan_compare, refuse_own_values
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.fields import several
from ffnbench.planning.variant_text import parse_variant
from ffnbench.planning.workload import refuse_lacking, workload_of
from ffnbench.request import BlockRequest

# the beginnings of the cases' labels
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


def plan_block(request: BlockRequest, probe: Probe | None = None) -> Plan:
    """The plan of a block: of a model's main kind of layer, or of sizes by hand. A
    sweep has several blocks, each at all lengths.
    """
    request = with_named_model(request)
    model = None if request.preset is None else model_of(request.preset)
    variants = listed_variants(request.variant or DEFAULT_FORM)
    lengths = ",".join(map(str, parse_lengths(request.seq_len)))
    cells = requests_of_cells(replace(request, seq_len=lengths), keys=variants.axes)
    refuse_own_values({*swept_flags(cells), "seq_len"}, variants.at(variants.first))
    main = None if model is None else model.main
    ffns: dict[Point, Case] = {}  # by block: planned once, for all of its lengths
    cases: list[Case] = []
    for cell in cells:
        block = without_length(cell.point)
        if block not in ffns:
            variant = request.variant
            if cell.keys:
                variant = ",".join(variants.texts(cell.keys))
            ffns[block] = _ffn_case(
                replace(cell.request, variant=variant), model, probe
            )
        suffix = f"@{cell.request.seq_len}{group_suffix(dict(block))}"
        cases += _cases_of_cell(cell, ffns[block], suffix, main)
    for case in cases:
        refuse_lacking(case.label, case.ffn, case.workload)
    return Plan(
        kind=Kind.BLOCK,
        cases=tuple(cases),
        reference=cases[0].label,
        protocol=protocol_of(len(cases), request),
        metrics=("latency", "memory"),
        notes=tuple(_notes(model)),
    )


def without_length(point: Point) -> Point:
    """The point of a sweep on all axes but that of lengths: it tells the blocks of a
    plan apart.
    """
    return tuple((name, value) for name, value in point if name != "seq_len")


def _cases_of_cell(
    cell: CellRequest[BlockRequest], ffn: Case, suffix: str, group: LayerGroup | None
) -> Iterator[Case]:
    """The case of the FFN at one length, which is the reference, then those of its
    attentions; the suffix ends their labels.
    """
    request = cell.request
    work = replace(ffn.workload, seq_len=int(request.seq_len))
    ffn = replace(
        ffn,
        label=FFN + suffix,
        workload=work,
        against=FFN + suffix,
        residual=None,
        point=cell.point,
    )
    yield ffn
    forms = {ATTENTION: AttentionForm.SDPA, TEXTBOOK: AttentionForm.TEXTBOOK}
    for spec, layers in attentions_of(request, ffn.ffn.d_model, group):
        window = f"-{spec.window}" if spec.window and layers else ""
        for name, form in forms.items():
            yield replace(
                ffn,
                label=f"{name}{window}{suffix}",
                variant=f"{spec.name} ({name})",
                ffn=replace(spec, form=form),
                workload=replace(work, routing=None),
                layers=layers,
            )


def _ffn_case(
    request: BlockRequest, model: ModelSpec | None, probe: Probe | None
) -> Case:
    """The case of the FFN: the model's own, or a variant's as `compare` plans it."""
    if model is not None:
        refuse_sizes(request)
        ffn, backend = model.main.form, request.backend
        work = workload_of(
            as_compare(request, backend=backend),
            parse_variant("model", {"model": model}),
        )
        sizing = Sizing(how="model", what=model.name)
        return Case(label=FFN, variant=ffn.name, ffn=ffn, workload=work, sizing=sizing)
    plan = plan_compare(
        as_compare(request, variants=request.variant or DEFAULT_FORM), probe
    )
    if len(plan.cases) > 1:
        raise FfnbenchError(
            "a block has one FFN",
            "give one variant; `ffnbench compare` measures several",
        )
    return plan.cases[0]


def with_named_model(request: BlockRequest) -> BlockRequest:
    """The request with a variant that is only the name or the file of a model taken as
    `preset`: it stands for the whole block of that model.
    """
    named = request.variant or ""
    name = named.partition("@")[0]  # a key may hold a range with a step
    of_file = ":" not in name and (name.endswith(".json") or "/" in name)
    if request.preset is None and (named in PRESETS or of_file):
        return replace(request, variant=None, preset=named)
    return request


def refuse_sizes(request: BlockRequest) -> None:
    """Raise FfnbenchError for a size given beside a model, which has its own."""
    for name in ("variant", "d_model", "d_ff", "bias"):
        if getattr(request, name) is not None:
            raise FfnbenchError(
                f"--{name.replace('_', '-')} can't be given with a model, which sets it",
                "leave one of the two out; --heads and --kv-heads change a model's attention",
            )


def attentions_of(
    request: BlockRequest, d_model: int, group: LayerGroup | None
) -> list[tuple[AttentionSpec, int | None]]:
    """The attentions of a kind of layer that are counted: one for each window, with the
    number of layers that have it, or None where all have the same.
    """
    spec = attention_of(request, d_model, group)
    if group is None:
        return [(spec, None)]
    windows = [window for window in group.all_windows if not window.other]
    if not windows:
        raise FfnbenchError(
            uncounted(group),
            f"`ffnbench cost --preset {request.preset}` counts its FFN",
        )
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
    request: BlockRequest, d_model: int, group: LayerGroup | None
) -> AttentionSpec:
    """The attention of a kind of layer, with the numbers of heads that the flags give.

    Without a model it is made by hand: causal, and multi-head with heads of HEAD_DIM
    unless the flags say otherwise. So it is where a model's attention is not known.
    """
    sizes: dict[str, Any] = {}
    if request.heads is not None:
        sizes["heads"] = read_positive("heads", request.heads)
    if request.kv_heads is not None:
        sizes["kv_heads"] = read_positive("kv_heads", request.kv_heads)
    if group is None or (group.attention is None and "heads" in sizes):
        spec = _by_hand(sizes, d_model, bool(request.bias))
    elif group.attention is None:
        problem = "the attention of this model is not known"
        if reason := uncounted(group):
            problem += f"; {reason}"
        raise FfnbenchError(problem, "give --heads, and --kv-heads where they differ")
    elif sizes and group.attention.mla is not None:
        raise FfnbenchError(
            "latent attention has no heads to choose",
            "leave --heads and --kv-heads out",
        )
    else:
        if "heads" in sizes:
            sizes.setdefault("kv_heads", sizes["heads"])
        spec = replace(group.attention, **sizes)
    return replace(spec, causal=group is None or group.kind not in NOT_CAUSAL)


def _by_hand(sizes: dict[str, int], d_model: int, bias: bool) -> AttentionSpec:
    """The attention of that width whose heads fill it; `sizes` are those that the flags
    give. Raises FfnbenchError where no whole number of heads does.
    """
    heads = sizes.get("heads")
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
    kv_heads = sizes.get("kv_heads", heads)
    return AttentionSpec(
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
    )


def parse_lengths(text: str) -> list[int]:
    """The lengths of a text such as `128,1024,8192`, ascending."""
    return sorted(
        int(length)
        for length in several("seq_len", text, partial(read_positive, "seq_len"))
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
        replace(plan, cases=tuple(cases), reference=cases[0].label, notes=())
        for cases in cases_of_block.values()
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
