"""How variants side by side read: the records of the CSV, and the tables of `compare` and `cost`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ffnbench.ffn.spec import FFNSpec, Gate, ImportedSpec
from ffnbench.metrics import (
    CEILINGS,
    COMPILE,
    DEVICE_TIME,
    ERROR,
    HELD,
    HOST_TIME,
    LATENCY,
    MEMORY,
    METRIC_GROUPS,
    METRICS,
    PACK,
    PEAK,
    SAVED,
    WORKSPACE,
    Metric,
)
from ffnbench.plan import Backend, Case, Mode, Plan, Time
from ffnbench.report.ceilings import ceiling_fields, ceiling_record, rate_fields
from ffnbench.report.conditions import condition_values
from ffnbench.report.conditions import differing as conditions_differing
from ffnbench.report.footnotes import Footnotes, case_notes
from ffnbench.report.groups import headings, in_groups, swept_columns
from ffnbench.report.records import Record, seconds_record
from ffnbench.report.summary import compare_header, cost_header, summary
from ffnbench.report.table import (
    EXTRA,
    FAILED,
    UNKNOWN,
    Cell,
    Column,
    Field,
    Table,
    count_field,
    latency_cell,
    number_field,
    ratio_cell,
    share_field,
    table_of_fields,
    text_field,
)
from ffnbench.report.words import error_text, seconds_text, sizing_text
from ffnbench.result import Report
from ffnbench.stats.ceilings import needed_by
from ffnbench.stats.launch_bound import launch_bound
from ffnbench.stats.rounds import Row, table_of
from ffnbench.units import IEC, SI, TIME, scale

LONGEST_TITLE = 12
LATER = [m.name for m in METRICS if m.name not in (LATENCY, WORKSPACE) and m.group not in ("", CEILINGS)]
UNITS = {"bytes": IEC, "s": TIME, "": SI}  # of a metric's column, by the unit of the metric


def compare_records(report: Report) -> list[Record]:
    """One flat record a case: the contract of the CSV, these columns in this order; further ones follow at the end."""
    table = table_of(report)
    return [_record(report, case, table.row(case.label)) for case in report.plan.shown]


def _record(report: Report, case: Case, row: Row) -> Record:
    cost, work, latency = report.cost(case.label), case.workload, report.estimate(case.label, LATENCY)
    comparison, failure = report.comparison(case.label), report.failure(case.label)
    ratio = comparison.ratio if comparison else None
    own = case.ffn if isinstance(case.ffn, FFNSpec) else None
    found = {
        "label": case.label,
        "variant": case.variant,
        "d_model": case.ffn.d_model,
        "d_ff": case.ffn.d_ff,
        "activation": own.activation if own else None,
        "gated": own.gate is not Gate.NONE if own else None,
        "gate": own.gate.value if own else None,
        "bias": own.bias if own else None,
        "dtype": work.dtype,
        "device": work.device,
        "mode": work.mode,
        "backend": work.backend,
        "batch": work.batch,
        "seq_len": work.seq_len,
        "threads": work.threads,
        "params": None if cost.failed else cost.params,
        "params_active": None if cost.failed else cost.params_active,
        "flops_forward": cost.flops_forward,
        "flops_backward": cost.flops_backward,
        "flops_elementwise": cost.flops_elementwise,
        "latency_s": latency.value if latency else None,
        "latency_low_s": latency.low if latency else None,
        "latency_high_s": latency.high if latency else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": comparison.verdict.value if comparison else None,
        "tokens_per_s": work.tokens / latency.value if latency else None,
        "peak_bytes": _whole(report.value(case.label, PEAK)),
        "saved_bytes": _whole(report.value(case.label, SAVED)),
        "weight_bytes": None if cost.failed else cost.weight_bytes,
        "workers": latency.workers if latency else None,
        "rounds": report.rounds(case.label) if latency else None,
        "failure": f"{failure.kind.value}: {failure.message}" if failure else None,
        "flops_elementwise_backward": cost.flops_elementwise_backward,
        "macs_forward": cost.flops_forward // 2 if cost.flops_forward is not None else None,
        "params_formula": cost.params_formula,
        "beta": own.beta if own else None,
        "dropout": own.dropout if own else None,
        "init": own.init.value if own else None,
        "sizing": sizing_text(case.sizing),
        "residual": case.residual,
        "counted": cost.counted,
        "zero_share": report.value(case.label, "zero_share"),
        "dead_share": report.value(case.label, "dead_share"),
        "resolution": comparison.resolution if comparison else None,
        "slowdown": work.slowdown,
        **_experts(report, case),
        **_compiling(report, case),
        **_disturbed(report, case, row),
        **ceiling_record(report, case),
    }
    found |= {name: report.value(case.label, name) for name in LATER if name not in found}
    return found | _running(report, case) | _summed(report, case) | _on_device(report, case)


def _on_device(report: Report, case: Case) -> Record:
    """Under what it was timed; of an accelerator the time of device and of host, whether the host's is longer, and what
    its libraries keep for themselves.
    """
    return {
        **condition_values(case.workload),
        **seconds_record(report, case.label, DEVICE_TIME),
        **seconds_record(report, case.label, HOST_TIME),
        "launch_bound": launch_bound(report, case.label),
        "workspace_bytes": _whole(report.value(case.label, WORKSPACE)),
    }


def _summed(report: Report, case: Case) -> Record:
    """FLOPs of a token in the passes that the mode has; the weights that a call computes with beside all that it holds
    at its peak, to which in training the gradients belong that are there by then.
    """
    needed, peak = needed_by(case, report.cost(case.label)), _whole(report.value(case.label, PEAK))
    weights = _whole(report.value(case.label, HELD)) or report.cost(case.label).weight_bytes
    return {
        "flops_timed": None if needed.flops is None else needed.flops // case.workload.tokens,
        "total_bytes": None if peak is None else weights + peak,
    }


def _experts(report: Report, case: Case) -> Record:
    """The columns about experts and clamped gates, empty without them."""
    own = case.ffn if isinstance(case.ffn, FFNSpec) else None
    moe = own.moe if own else None
    return {
        "limit": own.limit if own else None,
        "up_offset": own.up_offset if own else None,
        "experts": moe.experts if moe else None,
        "top_k": moe.top_k if moe else None,
        "shared_d_ff": moe.shared_d_ff if moe else None,
        "dispatch": moe.dispatch.value if moe else None,
        "routing": case.workload.routing,
        "expert_load_max": report.value(case.label, "expert_load_max"),
        "experts_hit": report.value(case.label, "experts_hit"),
        "weight_bytes_touched": report.cost(case.label).weight_bytes_touched,
    }


def _disturbed(report: Report, case: Case, row: Row) -> Record:
    """How many of the row's rounds nothing disturbed, and the mean share of its time that threads waited for a CPU."""
    shares = [s.waited for s in report.samples if s.case == case.label and s.waited is not None]
    return {
        "clean_rounds": row.clean_rounds if row.rounds else None,
        "made_rounds": row.rounds or None,
        "waited_share": sum(shares) / len(shares) if shares else None,
    }


def _compiling(report: Report, case: Case) -> Record:
    """Seconds of a cold compilation, empty where nothing is compiled."""
    found = report.estimate(case.label, COMPILE)
    return {
        "compile_s": found.value if found else None,
        "compile_low_s": found.low if found else None,
        "compile_high_s": found.high if found else None,
    }


def _running(report: Report, case: Case) -> Record:
    """How its code came about, what packing took, the weights that a call computes with, and how far off it is."""
    work = case.workload
    return {
        "compile_mode": work.compile if work.compiled else None,
        "freeze": work.freeze if work.compiled else None,
        "pack_s": report.value(case.label, PACK),
        "held_bytes": _whole(report.value(case.label, HELD)),
        "error": _error(report, case.label),
        **_judging(report, case),
    }


def _error(report: Report, label: str) -> float | None:
    """The largest relative error that is known of a row: what was found before timing, and of its timed calls."""
    judged = report.judgement(label)
    known = [report.value(label, ERROR), judged.error if judged else None]
    return max((error for error in known if error is not None), default=None)


def _judging(report: Report, case: Case) -> Record:
    """What the outputs of its timed calls were held against, how many of them, and the inputs that they had."""
    judged, inputs = report.judgement(case.label), report.inputs_of(case.label)
    return {
        "judged_against": judged.against.value if judged else None,
        "judged_name": (judged.name or None) if judged else None,
        "judged_outputs": judged.outputs if judged else None,
        "judged_gradients": judged.gradients if judged else None,
        "inputs": inputs.count if inputs else None,
        "input_bytes": inputs.bytes if inputs else None,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def compare_table(report: Report) -> Table:
    """The answer of `compare`; where nothing was measured, that of `cost`."""
    rows, notes = in_groups(report.plan, compare_records(report)), Footnotes()
    marks = {case.label: notes.marks(case_notes(report, case.label)) for case in report.plan.shown}
    first: Field = (
        Column(title="variant", left=True, key="label"),
        lambda row: Cell(text=report.plan.name_of(row["label"]) + marks[row["label"]], value=row["label"]),
    )
    measured = report.environment is not None
    others = _measured_fields(report, rows) if measured else _cost_fields(report, rows)
    table = table_of_fields(
        [first, *_differing(report.plan), *others],
        rows,
        header=compare_header(report) if measured else cost_header(report),
        footnotes=notes.lines,
        summary=summary(report) if measured else tuple(note.text for note in report.notes("")),
    )
    return replace(table, headings=headings(report.plan))


def _measured_fields(report: Report, rows: list[Record]) -> list[Field]:
    modes = {case.workload.mode for case in report.plan.shown}
    fields = [*_static_fields(rows, modes, timed=True)]
    if "latency" not in report.plan.metrics and report.failures:
        fields.append((Column(title="failure"), lambda row: _failure_cell(report, row["label"])))
    if "latency" in report.plan.metrics:
        fields += [
            _latency_field(report, rows),
            (
                _ratio_column(report.plan.name_of(report.plan.reference).partition(" (")[0]),
                lambda row: ratio_cell(report.comparison(row["label"])),
            ),
            *_beside_fields(report, rows),
            *_once_fields(report, rows),
            *_backend_fields(report, rows),
            *rate_fields(),
            number_field(rows, "tokens_per_s", "tokens", SI, 7, per="/s"),
        ]
    train = modes != {Mode.FORWARD.value}
    for group in METRIC_GROUPS:
        if group in report.plan.metrics:
            fields += [
                _metric_field(m, rows, train) for m in METRIC_GROUPS[group] if m.column and train >= m.train_only
            ]
            fields += [_total_field(rows, 6)] if group == MEMORY else []
    return [*fields, *ceiling_fields(report), *_extra_fields(rows)]


def _metric_field(metric: Metric, rows: list[Record], train: bool) -> Field:
    if metric.unit == "share":
        return share_field(metric.name, metric.column, metric.priority)
    if metric.name == PEAK:
        return _peak_field(rows, metric.priority, train)
    return number_field(rows, metric.name, metric.column, UNITS[metric.unit], metric.priority)


def _peak_field(rows: list[Record], priority: int, train: bool) -> Field:
    """What a call holds beside its weights and input; in training gradients are a part of it."""
    return number_field(rows, PEAK, "act. +grad. peak" if train else "act. peak", IEC, priority, stacked=True)


def _total_field(rows: list[Record], priority: int) -> Field:
    return number_field(rows, "total_bytes", "total", IEC, priority)


def _cost_fields(report: Report, rows: list[Record]) -> list[Field]:
    modes = {case.workload.mode for case in report.plan.shown}
    train = modes != {Mode.FORWARD.value}
    return [
        *_static_fields(rows, modes, timed=False),
        text_field("params_formula", "closed form", 3 if _any_experts(rows) else 1 + 2 * train, left=True),
        number_field(rows, "flops_elementwise", "elem.-wise", SI, 6, per="/tok"),
        number_field(rows, "weight_bytes", "weights", IEC, 3 + train),
        _peak_field(rows, 3 - train, train),
        *([number_field(rows, "saved_bytes", "saved", IEC, 2)] if train else []),
        _total_field(rows, 4 - train),
        number_field(rows, "flops_elementwise_backward", "elem. bwd", SI, EXTRA, per="/tok"),
        number_field(rows, "macs_forward", "MACs fwd", SI, EXTRA, per="/tok"),
        text_field("sizing", "d_ff from", EXTRA, left=True),
    ]


def _static_fields(rows: list[Record], modes: set[str], *, timed: bool) -> list[Field]:
    """Widths and counts."""
    backends = timed and _several_storages(rows)  # their errors tell more than sizes that are the same
    return [
        count_field("d_ff", "d_ff", 2 + 2 * backends),
        count_field("params", "params", 1 + 2 * backends),
        *_expert_fields(rows, 3 if timed else 1),
        *_flops_fields(rows, modes, timed=timed),
    ]


def _flops_fields(rows: list[Record], modes: set[str], *, timed: bool) -> list[Field]:
    """FLOPs of the passes that the mode has first; each pass alone with --wide, and where a forward is only counted."""
    forward, backward = ({Mode.FORWARD.value}, {Mode.BACKWARD.value})
    titles = {Mode.FORWARD.value: "FLOPs", Mode.TRAIN.value: "FLOPs fwd+bwd", Mode.BACKWARD.value: "FLOPs bwd"}
    title = titles[next(iter(modes))] if len(modes) == 1 else "FLOPs timed"
    fields = [number_field(rows, "flops_timed", title, SI, 5 if timed else 1, per="/tok", stacked=True)]
    if modes != forward:
        fields.append(number_field(rows, "flops_forward", "FLOPs fwd", SI, EXTRA, per="/tok", stacked=True))
    if modes != backward:
        priority = 2 if modes == forward and not timed else EXTRA
        fields.append(number_field(rows, "flops_backward", "FLOPs bwd", SI, priority, per="/tok", stacked=True))
    return fields


def _expert_fields(rows: list[Record], priority: int) -> list[Field]:
    """What differs from the total where there are experts: parameters that a token meets, weights that a call reads."""
    if not _any_experts(rows):
        return []
    return [
        count_field("params_active", "active", priority),
        number_field(rows, "weight_bytes_touched", "touched", IEC, priority + 1),
    ]


def _any_experts(rows: list[Record]) -> bool:
    return any(row["experts"] for row in rows)


def _extra_fields(rows: list[Record]) -> list[Field]:
    return [
        text_field("params_formula", "closed form", 7, left=True),
        number_field(rows, "macs_forward", "MACs fwd", SI, EXTRA, per="/tok"),
        number_field(rows, "flops_elementwise", "elem.-wise", SI, EXTRA, per="/tok"),
        *([] if _held(rows) else [number_field(rows, "weight_bytes", "weights", IEC, EXTRA)]),
        text_field("activation", "activation", EXTRA, left=True),
        text_field("gate", "gate", EXTRA, left=True),
        text_field("sizing", "d_ff from", EXTRA, left=True),
    ]


def _differing(plan: Plan) -> list[Field]:
    """Columns for what is not the same in all cases of a group; what is the same stands in the header."""
    keys = ("dtype", "device", "mode", "batch", "seq_len", "threads")
    differing = {k for k in keys for group in plan.groups if len({getattr(c.workload, k) for c in group.cases}) > 1}
    shown = [*swept_columns(plan), *(key for key in keys if key in differing)]
    conditions = [text_field(one.key, one.column, 1) for one in conditions_differing(plan)]
    return [*(text_field(key, key, 1) for key in shown), *conditions]


def _latency_field(report: Report, rows: list[Record]) -> Field:
    name, size = scale([row["latency_s"] for row in rows if row["latency_s"]], TIME)
    return Column(title="latency", unit=name, key="latency_s"), lambda row: latency_cell(report, row["label"], size)


def _beside_fields(report: Report, rows: list[Record]) -> list[Field]:
    """What the device works and what issuing a call takes the CPU, where that is known; not what is the latency."""

    def field(metric: Metric) -> Field:
        name, size = scale([row[metric.name] for row in rows if row[metric.name]], TIME)

        def cell(row: Any) -> Cell:
            found = report.estimate(row["label"], metric.name)
            return Cell(text=UNKNOWN) if found is None else Cell(text=seconds_text(found, size), value=found.value)

        return Column(title=metric.column, unit=name, priority=metric.priority, key=metric.name), cell

    shown: tuple[str, ...] = (DEVICE_TIME, HOST_TIME)
    if all(case.workload.time == Time.DEVICE.value for case in report.plan.shown):
        shown = (HOST_TIME,)
    return [field(metric) for metric in METRICS if metric.name in shown and any(row[metric.name] for row in rows)]


def _once_fields(report: Report, rows: list[Record]) -> list[Field]:
    """What compiling or packing took, where anything is compiled or packed."""
    titles = [title for title, key in (("compile", "compile_s"), ("pack", "pack_s")) if any(row[key] for row in rows)]
    if not titles:
        return []

    def cell(row: Any) -> Cell:
        estimate = report.estimate(row["label"], COMPILE) or report.estimate(row["label"], PACK)
        return Cell(text=UNKNOWN) if estimate is None else Cell(text=seconds_text(estimate, 1), value=estimate.value)

    return [
        (
            Column(
                title=titles[0] if len(titles) == 1 else "one-off",
                unit="s",
                priority=3 if _errors(report, rows) else 1,
                key="compile_s" if "compile" in titles else "pack_s",
            ),
            cell,
        )
    ]


def _backend_fields(report: Report, rows: list[Record]) -> list[Field]:
    """Beside other backends than eager: the error of each row, and the bytes of its weights. With @like: the error."""

    def error(row: Any) -> Cell:
        value = row["error"]
        return Cell(text=UNKNOWN if value is None else error_text(value), value=value)

    fields: list[Field] = []
    if _errors(report, rows):
        fields.append((Column(title="error", priority=1, key="error"), error))
    if _held(rows):
        fields.append(number_field(rows, "held_bytes", "weights", IEC, 4))
    return fields


def _several_storages(rows: list[Record]) -> bool:
    return any(row["backend"] != Backend.EAGER.value for row in rows)


def _errors(report: Report, rows: list[Record]) -> bool:
    """Whether errors stand in a column: then it stays longer than the one-off cost, which a footnote tells too."""
    likened = any(isinstance(case.ffn, ImportedSpec) and case.ffn.like for case in report.plan.shown)
    return (likened or _several_storages(rows)) and any(row["error"] is not None for row in rows)


def _held(rows: list[Record]) -> bool:
    """Whether the weights that calls compute with stand in a column."""
    return _several_storages(rows) and any(row["held_bytes"] is not None for row in rows)


def _failure_cell(report: Report, label: str) -> Cell:
    """What stands in the place of a number that could not be measured."""
    failure = report.failure(label)
    return Cell(text=FAILED.get(failure.kind, failure.kind.value), style="red") if failure else Cell(text="")


def _ratio_column(reference: str) -> Column:
    title = f"vs {reference if len(reference) <= LONGEST_TITLE else 'reference'}"
    return Column(title=title, unit="ratio [95%]", key="ratio")
