"""From a request to a Plan of variants: every mistake of the user's is found here.

Pure: text in, Plan out, before a process is started or a file opened. The one thing
that a pure function can't know is what code of the user's is and costs: `plan_compare`
asks its argument `probe` for that, and never about ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ffnbench.backends import BACKENDS
from ffnbench.choices import Backend, Match, Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.spec import FFNSpec, read_positive
from ffnbench.ffn.width_rules import DEFAULT_MULTIPLE
from ffnbench.metrics import METRIC_GROUPS, RATE
from ffnbench.plan import Case, Note, Plan, Point, Probe, Workload, group_suffix
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.fields import cut, has_list, several
from ffnbench.planning.variant_text import (
    Variant,
    as_activation_variant,
    parse_variants,
)
from ffnbench.planning.widths import Sizer
from ffnbench.planning.workload import (
    Way,
    lack_in_one_line,
    parse_backends,
    parse_weights,
    refuse_lacking,
    ways_of,
    workload_of,
)
from ffnbench.request import (
    DEFAULT_VARIANTS,
    EXAMPLES,
    CompareRequest,
    Request,
    spelling,
)

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

D_MODEL = 768  # where neither a flag nor a model has one
# a larger d_model is wide: a call of 512 tokens would take a few cores a second, and a
# first run minutes
WIDE = 2048
TOKENS, TOKENS_OF_WIDE = 512, 64  # of a sequence, where no length is given
# the names that the model of --preset has among the variants
NAMES_OF_MODEL = ("preset", "config", "model")


def plan_compare(request: CompareRequest, probe: Probe | None = None) -> Plan:
    """The plan of a request, which is parsed, checked and sized; raises FfnbenchError
    with a hint for whatever is wrong.
    """
    probe = probe or Probe()
    models: Mapping[str, ModelSpec] = {}
    if request.preset is not None:
        from ffnbench.models.published import model_of

        models = dict.fromkeys(NAMES_OF_MODEL, model_of(request.preset))
    text = with_model(request.variants, models)
    listed = None
    if "@" in text:  # there are keys, and they may have lists
        from ffnbench.planning.axes import listed_variants

        listed = listed_variants(text, models)
        parsed = listed.at(listed.first)
    else:
        parsed = parse_variants(text, models)
    variants = [identify(variant, probe) for variant in parsed]
    backends, weights = parse_backends(request.backend), parse_weights(request.weights)
    request = replace(
        _with_defaults(request, models, variants),
        backend=backends[0],
        weights=weights[0],
    )
    rows = _rows(variants, backends, weights)
    # the rows of the first variant; the first of them that can be run is the reference
    references = [row.label for row in rows if row.variant is rows[0].variant]

    if (listed and listed.axes) or any(
        has_list(getattr(request, name, None)) for name in EXAMPLES
    ):
        from ffnbench.planning.axes import requests_of_cells, swept_flags

        keys = listed.axes if listed else {}
        cells = requests_of_cells(request, keys=keys)
        refuse_own_values(swept_flags(cells), variants)
        groups = []
        for cell in cells:
            if listed and cell.keys:
                of_cell = [identify(variant, probe) for variant in listed.at(cell.keys)]
                rows = _rows(of_cell, backends, weights)
            groups.append(
                _sized_group(cell.request, cell.point, rows, references, probe)
            )
    else:
        groups = [_sized_group(request, (), rows, references, probe)]

    cases = tuple(case for group in groups for case in group.cases)
    refused = [note for group in groups for note in group.refused]
    _refuse_layer(request, models, cases)
    metrics = _metric_groups(request, cases)
    return Plan(
        cases=cases,
        reference=groups[0].reference,
        protocol=protocol_of(len(cases) - len(refused), request),
        metrics=metrics,
        match=groups[0].sizer.match,
        model=_folder_of_weights(request),
        layer=request.layer,
        multiple_of=DEFAULT_MULTIPLE,
        notes=(*(note for group in groups for note in group.notes), *refused),
    )


def _with_defaults(
    request: CompareRequest,
    models: Mapping[str, ModelSpec],
    variants: list[Variant],
) -> CompareRequest:
    """The request with defaults for d_model, the length of the sequence and biases,
    where these are not given: those of the models, or D_MODEL.
    """
    widths = shared_widths(request, models, variants)
    request = replace(request, d_model=widths[0] if len(widths) == 1 else widths)
    if request.seq_len is None:
        request = replace(
            request, seq_len=TOKENS if max(widths) <= WIDE else TOKENS_OF_WIDE
        )
    if request.bias is None:
        request = replace(
            request, bias=any(model.main.form.bias for model in models.values())
        )
    return request


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of every group: a variant, and how it is run."""

    label: str
    variant: Variant
    way: Way


def _rows(
    variants: list[Variant], backends: tuple[Backend, ...], weights: tuple[Weights, ...]
) -> list[_Row]:
    """The rows of the variants, several of one where flags have lists of backends or of
    formats of weights; raises FfnbenchError where two have one label.
    """
    rows: list[_Row] = []
    labels: set[str] = set()
    for variant in variants:
        for label, way in ways_of(variant, backends, weights).items():
            if label in labels:
                raise FfnbenchError(
                    f"two variants have the label {label!r}",
                    f"name one of them: other={variant.text}",
                )
            labels.add(label)
            rows.append(_Row(label, variant, way))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The cases of one group, a case for each row."""

    cases: tuple[Case, ...]
    notes: tuple[Note, ...]
    refused: tuple[Note, ...]  # why some of the cases can't be run
    reference: str  # its label
    sizer: Sizer


def _sized_group(
    request: CompareRequest,
    point: Point,
    rows: list[_Row],
    references: list[str],
    probe: Probe,
) -> _Group:
    """The group at one point, whose widths are found by matching its own reference.

    The first of `references` that can be run is the reference. Raises FfnbenchError
    where none of them can be run, and for a row that can't be run and is the only one
    of its variant.
    """
    by_label = {row.label: row.variant for row in rows}
    sizer = Sizer(request, by_label[references[0]], probe)
    # by the label of the variant, which has one width however it is run
    sized: dict[str, Case] = {}
    cases: list[Case] = []
    lacking: dict[str, str] = {}  # why a row can't be run
    workloads: dict[str, list[Workload]] = {}  # by the label of the variant
    for row in rows:
        variant, work = row.variant, row.way.of(workload_of(request, row.variant))
        workloads.setdefault(variant.label, []).append(work)
        if variant.label not in sized:
            sized[variant.label] = sizer.case(variant, work)
        arm = variant.arm
        if BACKENDS[work.backend].is_runtime and not arm.name:
            # threads that spin would take the CPUs from those that sleep
            spinning = " whose threads spin" if work.spin else ""
            arm = replace(arm, name=work.backend + spinning)
        case = replace(sized[variant.label], label=row.label, workload=work, arm=arm)
        cases.append(case)
        if row.way.one_of_several:
            why = lack_in_one_line(case.ffn, work, arm)
            if why:
                lacking[row.label] = why
        else:
            refuse_lacking(row.label, case.ffn, work, arm)
    for row in rows:
        if row.variant.workload_keys:
            from ffnbench.planning.keys import refuse_unread

            of_variant = workloads[row.variant.label]
            refuse_unread(row.variant.text, row.variant.workload_keys, of_variant)
    if len(lacking) == len(rows):
        refuse_lacking(rows[0].label, cases[0].ffn, cases[0].workload, cases[0].arm)
    runnable = [label for label in references if label not in lacking]
    if not runnable:
        raise FfnbenchError(
            f"the reference {references[0]!r} can't be run: {lacking[references[0]]}",
            "put another variant first",
        )

    suffix = group_suffix(dict(point))
    reference = runnable[0] + suffix
    is_matched = len(sized) > 1 and sizer.match is not Match.NONE
    placed = []
    notes = []
    for row, case in zip(rows, cases, strict=True):
        label = row.label + suffix
        residual = case.residual
        is_of_reference = row.variant.label == sizer.reference.label
        if is_matched and is_of_reference and label != reference:
            residual = 0.0  # it is the network of the reference, run another way
        placed.append(
            replace(
                case,
                label=label,
                point=point,
                against=reference if suffix else None,
                residual=residual,
            )
        )
        notes += [replace(note, label=label) for note in row.variant.notes]
    return _Group(
        cases=tuple(placed),
        notes=tuple(notes),
        refused=tuple(
            Note(label=label + suffix, text=why) for label, why in lacking.items()
        ),
        reference=reference,
        sizer=sizer,
    )


def identify(variant: Variant, probe: Probe) -> Variant:
    """The variant, or where its target is an activation the form around that. Only the
    probe can tell a module from an activation.
    """
    if not variant.target:
        return variant
    own = probe.within(variant.arm).describe(variant.target)
    if own is None:
        return variant
    return as_activation_variant(variant, own)


def refuse_own_values(swept: Set[str], variants: Iterable[Variant]) -> None:
    """Raise FfnbenchError where a variant has a key whose flag is an axis of the sweep:
    it would have one value in all groups.
    """
    for variant in variants:
        for key in [*variant.workload_keys, *dict(variant.arguments)]:
            if key in swept:
                raise FfnbenchError(
                    f"{variant.text!r} has a {key} of its own, but {spelling(key)} has a list",
                    f"leave @{key} out, or the list",
                )


def _folder_of_weights(request: CompareRequest) -> str:
    """The folder of the model whose weights --layer takes; "" without it."""
    if request.layer is None or request.preset is None:
        return ""
    from ffnbench.models.published import config_folder

    return config_folder(request.preset)


def _refuse_layer(
    request: CompareRequest, models: Mapping[str, ModelSpec], cases: Iterable[Case]
) -> None:
    """Raise FfnbenchError for a case that is not of the form whose weights --layer
    gives, and for --layer without a model's folder.
    """
    if request.layer is None:
        return
    from ffnbench.models.presets import PRESETS

    if request.preset is None or request.preset in PRESETS:
        raise FfnbenchError(
            "--layer needs the folder of a model, with its weights",
            "for example --preset path/to/model --layer 0",
        )
    form = models["preset"].main.form
    for case in cases:
        if not isinstance(case.ffn, FFNSpec) or case.ffn != form:
            raise FfnbenchError(
                f"--layer has no weights for {case.label!r}",
                "they are those of the model's own form: --variants preset --weights none,int8,int4",
            )


def _metric_groups(request: CompareRequest, cases: tuple[Case, ...]) -> tuple[str, ...]:
    """The groups of metrics that are asked for, and routing wherever there are experts.
    Raises FfnbenchError for a group that does not exist or can't be measured.
    """
    names = list(
        dict.fromkeys(cut("--metrics ", request.metrics, CompareRequest.metrics))
    )
    for name in names:
        if name not in METRIC_GROUPS:
            hint = hint_for(name, METRIC_GROUPS, "metrics: " + ", ".join(METRIC_GROUPS))
            raise FfnbenchError(f"unknown metric {name!r}", hint)
    if RATE in names and "latency" not in names:
        raise FfnbenchError(
            "rate needs latency, which is not measured",
            "add it: --metrics latency",
        )
    experts = any(case.workload.routing for case in cases)
    if not experts and "routing" in names:
        raise FfnbenchError(
            "the metric routing needs experts, and no variant has any",
            "for example swiglu@moe=8x2",
        )
    if experts and "routing" not in names:
        names.append("routing")
    return tuple(names)


def as_compare(request: Request, **more: Any) -> CompareRequest:
    """A request of `compare` with the fields of another request that it has in common,
    and with `more` in place of some.
    """
    names = [field.name for field in fields(CompareRequest)]
    shared = {name: getattr(request, name) for name in names if hasattr(request, name)}
    return CompareRequest(**shared | more)


def with_model(variants: str, models: Mapping[str, ModelSpec]) -> str:
    """The list of variants with the FFN of the model first, where the list does not
    name it. The default variants are then without the form of that FFN.
    """
    names = [
        part.strip().partition("@")[0].rpartition("=")[2]
        for part in variants.split(",")
    ]
    if not models or models.keys() & {*names}:
        return variants
    first, model = next(iter(models.items()))
    if variants == DEFAULT_VARIANTS:
        variants = ",".join(name for name in names if name != model.main.form.name)
    return f"{first},{variants}"


def shared_widths(
    request: CompareRequest,
    models: Mapping[str, ModelSpec],
    variants: list[Variant],
) -> tuple[int, ...]:
    """The d_model of each group of a sweep, or the one of all cases: those of the flag,
    that of the models, or D_MODEL. Raises FfnbenchError where flag and models
    differ, and for several beside a --d-ff, which is the width for one.
    """
    named = {model.key: model.main.form.d_model for model in models.values()}
    for variant in variants:
        if variant.d_model:
            named[(*variant.also, variant.label)[0]] = variant.d_model
    widths = tuple(sorted(set(named.values())))
    if len(widths) > 1:
        shown = ", ".join(f"{name} {width:,}" for name, width in named.items())
        raise FfnbenchError(
            f"these models have different d_model: {shown}",
            "compare models of one width",
        )
    if request.d_model is None:
        return widths or (D_MODEL,)
    given = several("d_model", request.d_model, partial(read_positive, "d_model"))
    if isinstance(request.d_model, str):
        typed = request.d_model
    else:
        typed = ",".join(map(str, given))
    if widths and given != widths:
        raise FfnbenchError(
            f"--d-model {typed} is not the width of {next(iter(named))}, {widths[0]:,}",
            "leave --d-model out: the model sets it",
        )
    if len(given) > 1 and isinstance(request.d_ff, int):
        raise FfnbenchError(
            f"--d-ff {request.d_ff:,} can't be the width for several --d-model {typed}",
            "leave --d-ff out, so that each group has its own; @ratio=2 of the first variant sets d_ff / d_model",
        )
    return given
