"""From a request to a Plan of variants: every mistake is found here.

Pure: text in, Plan out, before a process is spawned or a file opened. The one thing that a pure function can't
know is what code of the user's is and costs; `plan_compare` is handed a `probe` for that, and never asks it about
ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.width_rules import Match
from ffnbench.metrics import CEILINGS, METRIC_GROUPS
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import model_of
from ffnbench.plan import Backend, Case, NoProbe, Note, Plan, Probe, Workload, control_of, group_suffix
from ffnbench.planning.axes import READ, CellAsked, Listed, axes_of, listed_variants
from ffnbench.planning.effort import protocol_of
from ffnbench.planning.fields import cut, several
from ffnbench.planning.variant_text import WORKLOAD_KEYS, Variant, as_activation_variant
from ffnbench.planning.widths import Sizer
from ffnbench.planning.workload import labels_of, lacks, parse_backends, refuse_lacking, workload_of
from ffnbench.request import DEFAULT_VARIANTS, CompareRequest, Request, spelling


def plan_compare(request: CompareRequest, probe: Probe | None = None, d_model: int = 768) -> Plan:
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever is wrong. `d_model` is the width
    where nothing says it.
    """
    probe = probe or NoProbe()
    chosen = {} if request.preset is None else dict.fromkeys(STANDS_FOR_IT, model_of(request.preset))
    listed = listed_variants(with_model(request.variants, chosen), chosen)
    rows_at = _Rows(listed, parse_backends(request.backend), probe)
    rows = rows_at({name: texts[0] for name, texts in listed.axes.items()})
    variants = [row.variant for row in rows]
    widths = shared_widths(request, chosen, variants, d_model)
    asked = replace(
        request,
        d_model=widths,
        seq_len=(TOKENS if max(widths) <= WIDE else TOKENS_OF_WIDE) if request.seq_len is None else request.seq_len,
        bias=any(model.main.ffn.bias for model in chosen.values()) if request.bias is None else request.bias,
        backend=rows_at.backends[0],
    )
    _refuse_twins(rows)
    axes = axes_of(asked, keys=listed.axes)
    refuse_own_values(axes.flags, variants)
    references, shared = _references(request.reference, rows), _Shared(probe)
    found = [_group(cell, rows_at(cell.keys), references, shared) for cell in axes.cells()]
    cases = tuple(case for group in found for case in group.cases)
    refused = [Note(label=label, text=why) for group in found for label, why in group.refused.items()]
    notes = [
        replace(note, label=case.label)
        for group in found
        for case, row in zip(group.cases, rows, strict=True)
        for note in row.variant.notes
    ]
    metrics, reference = _metrics(request, cases), found[0].against
    control = (control_of(cases, reference),) if request.control and "latency" in metrics else ()
    return Plan(
        cases=(*cases, *control),
        reference=reference,
        protocol=protocol_of(len(cases) - len(refused), request),
        metrics=metrics,
        match=found[0].sizer.match,
        multiple_of=found[0].sizer.multiple_of,
        notes=(*notes, *refused),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of every group: the variant, and the backend that a flag gives it; None where it says that itself.

    `several`: a list of backends made it, so that it may be one that can't be run.
    """

    label: str
    variant: Variant
    backend: Backend | None
    several: bool


class _Rows:
    """The rows at one value of each key that has a list; where no such key is another the same ones again."""

    def __init__(self, listed: Listed, backends: tuple[Backend, ...], probe: Probe) -> None:
        self.backends = backends
        self._listed, self._identify = listed, partial(identify, probe=probe)
        self._plain = listed.plain(self._identify)
        self._found: dict[tuple[str, ...], list[_Row]] = {}

    def __call__(self, keys: Mapping[str, str]) -> list[_Row]:
        at = tuple(keys[name] for name in self._listed.axes)
        if at not in self._found:
            several = len(self.backends) > 1
            self._found[at] = [
                _Row(label, variant, backend, several=backend is not None and several)
                for variant in self._listed.at(keys, self._plain, self._identify)
                for label, backend in labels_of(variant, self.backends).items()
            ]
        return self._found[at]


class _Shared:
    """What cells have in common: widths where they differ in what they are fed alone, and what they are fed where they
    differ in nothing of that.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._sizers: dict[object, Sizer] = {}
        self._works: dict[object, list[Workload]] = {}

    def sizer(self, cell: CellAsked[CompareRequest], rows: list[_Row], reference: str) -> Sizer:
        """What finds the widths of a cell; code of the user's is looked at anew in each."""
        own = any(row.variant.target for row in rows)
        at = tuple(one for one in cell.point if own or one[0] in cell.keys or one[0] not in WORKLOAD_KEYS)
        if at not in self._sizers:
            variant = next(row.variant for row in rows if row.label == reference)
            self._sizers[at] = Sizer(cell.request, variant, self._probe)
        return self._sizers[at]

    def workloads(self, cell: CellAsked[CompareRequest], rows: list[_Row]) -> list[Workload]:
        """What each row of a cell is fed, and its backend."""
        at = tuple(one for one in cell.point if one[0] in cell.keys or one[0] in WORKLOAD_KEYS)
        if at not in self._works:
            self._works[at] = list(_workloads(cell, rows))
        return self._works[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """The cases of one group, row by row; why some of them can't be run; and the label of the reference."""

    cases: tuple[Case, ...]
    refused: dict[str, str]
    against: str
    sizer: Sizer


def _group(cell: CellAsked[CompareRequest], rows: list[_Row], references: list[str], shared: _Shared) -> _Sized:
    """One group sized: every one has its own target to match, and so its own widths."""
    sizer, works = shared.sizer(cell, rows, references[0]), shared.workloads(cell, rows)
    sized = [sizer.case(row.variant, work) for row, work in zip(rows, works, strict=True)]
    refused = _lacking(rows, sized, works)
    against = next((label for label in references if label not in refused), None)
    if against is None:
        raise FfnbenchError(
            f"the reference {references[0]!r} can't be run: {refused[references[0]]}", "give another with --reference"
        )
    end = group_suffix(dict(cell.point))
    # what is of the reference's own variant is as wide as it
    own = 0.0 if sizer.match is not Match.NONE and len({row.variant.label for row in rows}) > 1 else None
    cases = tuple(
        replace(
            case, label=row.label + end, workload=work, point=cell.point, against=against + end if end else None,
            residual=own if case.residual is None and row.label != against else case.residual,
        )
        for row, case, work in zip(rows, sized, works, strict=True)
    )  # fmt: skip
    refused = {label + end: why for label, why in refused.items()}
    return _Sized(cases=cases, refused=refused, against=against + end, sizer=sizer)


def _workloads(cell: CellAsked[CompareRequest], rows: list[_Row]) -> Iterator[Workload]:
    """What each row is fed, and its backend; variants without keys of their own are fed alike."""
    request = cell.request
    found: dict[str, Workload] = {}
    for row in rows:
        alone = row.variant.workload_keys or row.variant.spec_keys.get("moe") is not None
        key = row.variant.label if alone else ""
        if key not in found:
            found[key] = workload_of(request, row.variant)
        work = found[key]
        backend = work.backend if row.backend is None else row.backend
        yield work if backend == work.backend else replace(work, backend=backend)


def _lacking(rows: list[_Row], sized: list[Case], works: list[Workload]) -> dict[str, str]:
    """Why cases of a list of backends can't be run, by label; raises FfnbenchError for a case that stands by itself,
    and where none at all is left.
    """
    found: dict[str, str] = {}
    for row, case, work in zip(rows, sized, works, strict=True):
        if not row.several:
            refuse_lacking(row.label, case.ffn, work)
        elif why := lacks(case.ffn, work):
            found[row.label] = why
    if len(found) == len(rows):
        refuse_lacking(rows[0].label, sized[0].ffn, works[0])
    return found


def identify(variant: Variant, probe: Probe) -> Variant:
    """A target is a module or an activation; which of the two shows when it is loaded."""
    probe = probe.within(variant.arm)
    own = probe.describe(variant.target) if variant.target else None
    return as_activation_variant(variant, own) if own else variant


def refuse_own_values(swept: Set[str], variants: Iterable[Variant]) -> None:
    """A variant has no value of its own of what groups differ in: it is the same in all."""
    for variant in variants:
        if own := sorted((variant.workload_keys.keys() | dict(variant.arguments).keys()) & swept):
            raise FfnbenchError(
                f"{variant.text!r} has a {own[0]} of its own, and {spelling(own[0])} makes a group of each of several",
                f"leave @{own[0]} out, or the list",
            )


def _refuse_twins(rows: list[_Row]) -> None:
    """Two variants may be called alike, and a row that a list of backends makes as a variant that was typed."""
    labels = [row.label for row in rows]
    for place, row in enumerate(rows):
        if row.label in labels[:place]:
            raise FfnbenchError(
                f"two variants have the label {row.label!r}", f"name one of them: other={row.variant.text}"
            )


def _references(label: str | None, rows: list[_Row]) -> list[str]:
    """The label of the reference; where none was named those of the first variant, of which the first that runs is."""
    if label is None:
        return [row.label for row in rows if row.variant is rows[0].variant]
    known = {other + row.label.removeprefix(row.variant.label): row.label for row in rows
             for other in row.variant.also}  # fmt: skip
    known |= {row.label: row.label for row in rows}
    if label not in known:
        labels = [row.label for row in rows]
        raise FfnbenchError(
            f"no variant has the label {label!r}", hint_for(label, labels, "labels: " + ", ".join(labels))
        )
    return [known[label]]


def _metrics(request: CompareRequest, cases: tuple[Case, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(cut("--metrics ", request.metrics, CompareRequest.metrics)))
    for name in names:
        if name not in METRIC_GROUPS:
            raise FfnbenchError(
                f"unknown metric {name!r}", hint_for(name, METRIC_GROUPS, "metrics: " + ", ".join(METRIC_GROUPS))
            )
    if CEILINGS in names and "latency" not in names:
        raise FfnbenchError("ceilings are about latency, and latency is not measured", "add it: --metrics latency")
    experts = any(case.workload.routing for case in cases)
    if not experts and "routing" in names:
        raise FfnbenchError("routing is about experts, and no variant has any", "for example swiglu@moe=8x2")
    return (*names, "routing") if experts and "routing" not in names else names


WIDE = 2048  # above it a call of 512 tokens takes a second of a few cores, and a first run minutes
TOKENS, TOKENS_OF_WIDE = 512, 64  # of a sequence, where none is given
STANDS_FOR_IT = ("preset", "config", "model")  # what the model that is named is called among the variants
Chosen = Mapping[str, ModelSpec]  # at most one model, under these names


def as_compare(request: Request, **more: Any) -> CompareRequest:
    """What another command's request says of what `compare` asks as well, with these fields in place of its own."""
    shared = {one.name: getattr(request, one.name) for one in fields(CompareRequest) if hasattr(request, one.name)}
    return CompareRequest(**shared | more)


def with_model(variants: str, chosen: Chosen) -> str:
    """The list of variants; the model's own FFN stands first where it is not among them, and beside it a form that
    nobody asked for does not stand twice.
    """
    names = [part.strip().partition("@")[0].rpartition("=")[2] for part in variants.split(",")]
    if not chosen or chosen.keys() & {*names}:
        return variants
    first, model = next(iter(chosen.items()))
    if variants == DEFAULT_VARIANTS:
        names = [name for name in names if name != model.main.ffn.name]
        return ",".join((first, *names))
    return f"{first},{variants}"


def shared_widths(request: CompareRequest, chosen: Chosen, variants: list[Variant], default: int) -> tuple[int, ...]:
    """d_model of the comparison, or of each group: the flag's, the models', or the default; raises FfnbenchError where
    they differ, and for several beside what has one width.
    """
    named = {model.key: model.main.ffn.d_model for model in chosen.values()}
    named |= {(*variant.also, variant.label)[0]: variant.d_model for variant in variants if variant.d_model}
    widths = tuple(sorted(set(named.values())))
    if len(widths) > 1:
        shown = ", ".join(f"{name} {width:,}" for name, width in named.items())
        raise FfnbenchError(f"these models have different d_model: {shown}", "compare models of one width")
    if request.d_model is None:
        return widths or (default,)
    given = tuple(int(width) for width in several("d_model", request.d_model, READ["d_model"]))
    typed = request.d_model if isinstance(request.d_model, str) else ",".join(map(str, given))
    if widths and given != widths:
        raise FfnbenchError(
            f"--d-model {typed} is not the width of {next(iter(named))}, {widths[0]:,}",
            "leave --d-model out: the model sets it",
        )
    if len(given) > 1 and isinstance(request.d_ff, int):
        raise FfnbenchError(
            f"--d-ff {request.d_ff:,} is one width, and --d-model {typed} are several",
            "leave --d-ff out: each group finds its own; --ratio says how wide",
        )
    return given
