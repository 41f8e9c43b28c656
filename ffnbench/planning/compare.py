"""From a request to a Plan of variants: every mistake is found here.

Pure: text in, Plan out, before a process is spawned or a file opened. The one thing that a pure function can't
know is what code of the user's is and costs; `plan_compare` is handed a `probe` for that, and never asks it about
ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import HF
from ffnbench.ffn.width_rules import Match
from ffnbench.metrics import CEILINGS, METRIC_GROUPS
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import model_of
from ffnbench.names import hint_for
from ffnbench.plan import Backend, Case, NoProbe, Note, NoteKind, Plan, Probe, control_of, group_suffix
from ffnbench.planning.backends import labels_of, lacks, parse_backends, refuse_lacking
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.grammar import Variant, as_activation_variant, as_model_variant, parse_variants
from ffnbench.planning.groups import GroupAsked, groups_asked, refuse_own_values
from ffnbench.planning.lists import one
from ffnbench.planning.widths import Sizer
from ffnbench.request import CompareRequest


def plan_compare(request: CompareRequest, probe: Probe | None = None) -> Plan:
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever is wrong."""
    probe = probe or NoProbe()
    chosen = chosen_model(request.preset, request.config)
    parsed = parse_variants(with_model(request.variants, chosen), chosen)
    variants = [identify(variant, probe) for variant in parsed]
    backends = parse_backends(request.backend)
    asked = replace(
        request,
        d_model=shared_widths(request, chosen, variants),
        bias=biased(request.bias, chosen),
        backend=backends[0].value,
    )
    rows = [_Rows(variant, labels_of(variant, backends)) for variant in variants]
    _refuse_twins(rows)
    groups = groups_asked(asked)
    refuse_own_values(groups, variants)
    reference, named = _reference(request.reference, rows, groups)
    sized = [_group(group, rows, reference, named, probe) for group in groups]
    cases = tuple(case for group in sized for case in group.cases)
    refused = {label: why for group in sized for label, why in group.refused.items()}
    metrics = _metrics(request, cases)
    of_variant = {label: row.variant for row in rows for label in row.labels}
    notes = [replace(note, label=label) for group in sized for label, bare in group.bare.items()
             for note in of_variant[bare].notes]  # fmt: skip
    return Plan(
        cases=(*cases, *_control(request, metrics, cases, sized[0].against)),
        reference=sized[0].against,
        protocol=protocol_of(len(cases) - len(refused), request),
        metrics=metrics,
        match=sized[0].sizer.match.value,
        multiple_of=sized[0].sizer.multiple_of,
        notes=(*notes, *(Note(label=label, text=why, kind=NoteKind.GENERAL) for label, why in refused.items())),
        request=request,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The cases of one combination of the lists' values: those that can't be run with the reason, and the reference.

    `bare` has the label of each as it would be if there were no other group.
    """

    cases: tuple[Case, ...]
    refused: dict[str, str]
    against: str
    sizer: Sizer
    bare: dict[str, str]


def _group(group: GroupAsked, rows: list[_Rows], reference: _Rows, named: str | None, probe: Probe) -> _Group:
    """One group sized: every one has its own target to match, and so its own widths."""
    with group.told():
        sizer = Sizer(group.request, reference.variant, probe)
        sized = [(row, sizer.case(row.variant)) for row in rows]
        cases = tuple(case for row, base in sized for case in row.cases(base))
        refused = _lacking(cases, {label for row in rows if row.several for label in row.labels})
        against = _first_that_runs(named, reference, cases, refused)
    if sizer.match is not Match.NONE and len(rows) > 1:  # what is of the reference's own variant is as wide as it
        cases = tuple(replace(c, residual=0.0) if c.residual is None and c.label != against else c for c in cases)
    end = group_suffix(group.values)
    return _Group(
        cases=tuple(replace(c, label=c.label + end, against=against + end) for c in cases) if end else cases,
        refused={label + end: why for label, why in refused.items()},
        against=against + end,
        sizer=sizer,
        bare={case.label + end: case.label for case in cases},
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that are made of one variant: their labels, and by which backend each is run, None for its own."""

    variant: Variant
    labels: dict[str, Backend | None]

    @property
    def several(self) -> bool:
        """Whether a list of backends made them."""
        return len(self.labels) > 1

    def cases(self, base: Case) -> list[Case]:
        """Its cases: of one width, and of one workload but for the backend."""
        return [
            replace(
                base, label=label, workload=replace(base.workload, backend=backend.value) if backend else base.workload
            )
            for label, backend in self.labels.items()
        ]


def _lacking(cases: Iterable[Case], of_lists: Collection[str]) -> dict[str, str]:
    """Why cases of a list of backends can't be run, by label; raises FfnbenchError for a case that stands by itself,
    and where none at all is left.
    """
    found: dict[str, str] = {}
    whole = list(cases)
    for case in whole:
        if case.label not in of_lists:
            refuse_lacking(case)
        elif why := lacks(case.ffn, case.workload):
            found[case.label] = why
    if len(found) == len(whole):
        refuse_lacking(whole[0])
    return found


def _first_that_runs(named: str | None, reference: _Rows, cases: Iterable[Case], refused: Mapping[str, str]) -> str:
    """The label of the reference: the one that was named, or the first row of the first variant that can be run."""
    labels = list(reference.labels) if named is None else [named]
    for label in labels:
        if label not in refused:
            return label
    raise FfnbenchError(
        f"the reference {labels[0]!r} can't be run: {refused[labels[0]]}", "give another one with --reference"
    )


def identify(variant: Variant, probe: Probe) -> Variant:
    """A target is a module, an activation or a model of transformers; which of these shows when it is loaded."""
    probe = probe.within(variant.arm)
    if variant.target.startswith(HF):
        return as_model_variant(variant, probe.own_mlp(variant.target))
    own = probe.describe(variant.target) if variant.target else None
    return as_activation_variant(variant, own) if own else variant


def _refuse_twins(rows: list[_Rows]) -> None:
    """A row that a list of backends makes may have the label of a variant that was typed."""
    seen: dict[str, Variant] = {}
    for row in rows:
        for label in row.labels:
            if label in seen:
                typed = row.variant if len(row.labels) == 1 else seen[label]
                hint = f"--backend makes a row of that name: leave {typed.text} out, or name it: other={typed.text}"
                raise FfnbenchError(f"two variants have the label {label!r}", hint)
            seen[label] = row.variant


def _reference(label: str | None, rows: list[_Rows], groups: list[GroupAsked]) -> tuple[_Rows, str | None]:
    """The rows that the reference is among, and its own label where it was named."""
    if label is None:
        return rows[0], None
    labels = [known for row in rows for known in row.labels]
    short = {other + known.removeprefix(row.variant.label): known for row in rows for known in row.labels
             for other in row.variant.also if known.startswith(row.variant.label)}  # fmt: skip
    label = short.get(label, label) if label not in labels else label
    of_group = {
        name + group_suffix(group.values): name for name in (*labels, *short) for group in groups if group.values
    }
    if label not in labels and label in of_group:
        raise FfnbenchError(
            f"every group has its own reference, and {label!r} is of one", f"for all: --reference={of_group[label]}"
        )
    if label not in labels:
        raise FfnbenchError(
            f"no variant has the label {label!r}", hint_for(label, labels, "labels: " + ", ".join(labels))
        )
    return next(row for row in rows if label in row.labels), label


def _control(
    request: CompareRequest, metrics: tuple[str, ...], cases: tuple[Case, ...], reference: str
) -> tuple[Case, ...]:
    """The reference a second time, where that was asked for and something is timed."""
    return (control_of(cases, reference),) if request.control and "latency" in metrics else ()


def _metrics(request: CompareRequest, cases: tuple[Case, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in request.metrics.split(",") if part.strip()))
    for name in names:
        if name not in METRIC_GROUPS:
            raise FfnbenchError(
                f"unknown metric {name!r}", hint_for(name, METRIC_GROUPS, "metrics: " + ", ".join(METRIC_GROUPS))
            )
    if not names:
        raise FfnbenchError("no metric given", "metrics: " + ", ".join(METRIC_GROUPS))
    if CEILINGS in names and "latency" not in names:
        raise FfnbenchError("ceilings are about latency, and latency is not measured", "add it: --metrics latency")
    experts = any(case.workload.routing for case in cases)
    if not experts and "routing" in names:
        raise FfnbenchError("routing is about experts, and no variant has any", "for example swiglu@moe=8x2")
    return (*names, "routing") if experts and "routing" not in names else names


DEFAULT_D_MODEL = 768
Chosen = Mapping[str, ModelSpec]  # at most one model, under the name that stands for it among the variants


def named_model(preset: str | None, config: str | None) -> str | None:
    """What --preset or --config names, either of them a preset or a file; raises FfnbenchError for both."""
    if preset is not None and config is not None:
        raise FfnbenchError("--preset and --config each name a model", "give one of the two")
    return config if preset is None else preset


def chosen_model(preset: str | None, config: str | None) -> Chosen:
    """The model of the flags, `preset` or `config` in the list of variants; raises FfnbenchError for both, and for what
    is none.
    """
    name = named_model(preset, config)
    return {} if name is None else {"config" if preset is None else "preset": model_of(name)}


def with_model(variants: str, chosen: Chosen) -> str:
    """The list of variants; the model's own FFN stands first where it is not among them."""
    for name in chosen:
        if name not in (part.strip().partition("@")[0].rpartition("=")[2] for part in variants.split(",")):
            return f"{name},{variants}"
    return variants


def biased(given: bool | None, chosen: Chosen) -> bool:
    """Whether the forms beside the model's have biases: as was asked for, else where the model has some."""
    return any(model.main.ffn.bias for model in chosen.values()) if given is None else given


def shared_widths(request: CompareRequest, chosen: Chosen, variants: list[Variant]) -> int | tuple[int, ...]:
    """d_model of the comparison, or of each group: the flag's, the models', or the default; raises FfnbenchError where
    they differ, and for several beside what has one width.
    """
    named = {model.key: model.main.ffn.d_model for model in chosen.values()}
    named |= {(*variant.also, variant.label)[0]: variant.d_model for variant in variants if variant.d_model}
    widths = sorted(set(named.values()))
    if len(widths) > 1:
        shown = ", ".join(f"{name} {width:,}" for name, width in named.items())
        raise FfnbenchError(f"these models have different d_model: {shown}", "compare models of one width")
    given, name = request.d_model, next(iter(named), "")
    if isinstance(given, tuple | list) and len(given) > 1:
        typed = ",".join(map(str, given))
        if named:
            raise FfnbenchError(
                f"--d-model {typed} are several widths, and {name} has one, {widths[0]:,}",
                "leave --d-model out: the model sets it",
            )
        if request.d_ff is not None:
            raise FfnbenchError(
                f"--d-ff {request.d_ff:,} is one width, and --d-model {typed} are several",
                "leave --d-ff out: each group finds its own; --ratio says how wide",
            )
        return tuple(given)
    given = one("d_model", given)
    if given is not None and widths and widths != [given]:
        raise FfnbenchError(
            f"--d-model {given:,} is not the width of {name}, {widths[0]:,}", "leave --d-model out: the model sets it"
        )
    return given if given is not None else widths[0] if widths else DEFAULT_D_MODEL
