"""Report -> Table: which figures stand in which column, how they read, and what is said around them.

A Table is text in cells with priorities; how much of it fits is the writer's business (text.py). Nothing is
decided here: verdicts come from the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ffnbench.plan import Mode, Plan
from ffnbench.report.footnotes import Footnotes, case_notes
from ffnbench.result import Estimate, Report, Sample, Verdict
from ffnbench.units import IEC, SI, TIME, digits, percent, scale

Row = dict[str, Any]
UNKNOWN = "-"
STYLES = {Verdict.SLOWER.value: "red", Verdict.FASTER.value: "green", Verdict.UNCLEAR.value: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading of two lines (name, unit) and how dear the column is: 0 stays longest, EXTRA needs --wide."""

    title: str
    unit: str = ""
    left: bool = False
    priority: int = 0
    flexible: bool = False  # prose, which may be wrapped; a number never is

    @property
    def name(self) -> str:
        """The heading in one line."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


EXTRA = 9
LONGEST_TITLE = 12
TOO_NOISY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a cell, the value behind it, and a colour that repeats what the text says."""

    text: str
    value: Any = None
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with what is written above and below it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    header: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()


Field = tuple[Column, Callable[[Row], Cell]]


def compare_table(report: Report) -> Table:
    """The answer of `compare`."""
    return _table(report, _measured_fields, _compare_header(report), _summary(report))


def cost_table(report: Report) -> Table:
    """The answer of `cost`: everything that is known without measuring."""
    return _table(report, _cost_fields, _cost_header(report), ())


def _table(
    report: Report,
    fields_of: Callable[[Report, list[Row]], list[Field]],
    header: tuple[str, ...],
    summary: tuple[str, ...],
) -> Table:
    rows, notes = report.rows(), Footnotes()
    marks = {case.label: notes.marks(case_notes(report, case.label)) for case in report.plan.cases}
    first: Field = (
        Column(title="variant", left=True),
        lambda r: Cell(text=r["label"] + marks[r["label"]], value=r["label"]),
    )
    fields = [first, *_differing(report.plan), *fields_of(report, rows)]
    return Table(
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(row) for _, cell in fields) for row in rows),
        header=header,
        footnotes=notes.lines(),
        summary=summary,
    )


def _measured_fields(report: Report, rows: list[Row]) -> list[Field]:
    train = any(case.workload.train for case in report.plan.cases)
    fields = [*_static_fields(rows, {case.workload.mode for case in report.plan.cases})]
    if "latency" not in report.plan.metrics and report.failures:
        fields.append((Column(title="failure"), lambda row: _failure_cell(report, row) or Cell(text="")))
    if "latency" in report.plan.metrics:
        fields += [
            _latency_field(report, rows),
            _ratio_field(report),
            _number(rows, "tokens_per_s", "tokens", SI, 6, per="/s"),
        ]
    if "memory" in report.plan.metrics:
        fields.append(_number(rows, "peak_bytes", "peak", IEC, 4))
    if "memory" in report.plan.metrics and train:
        fields.append(_number(rows, "saved_bytes", "saved", IEC, 5))
    if "sparsity" in report.plan.metrics:
        fields += [_share("zero_share", "zeros"), _share("dead_share", "dead")]
    return [*fields, *_extra_fields(rows)]


def _cost_fields(report: Report, rows: list[Row]) -> list[Field]:
    train = any(case.workload.train for case in report.plan.cases)
    return [
        *_static_fields(rows, None),
        _text("params_formula", "closed form", 1, left=True),
        _number(rows, "flops_elementwise", "elem.-wise", SI, 5, per="/tok"),
        _number(rows, "weight_bytes", "weights", IEC, 3),
        _number(rows, "peak_bytes", "peak", IEC, 4),
        *([_number(rows, "saved_bytes", "saved", IEC, 4)] if train else []),
        _number(rows, "flops_elementwise_backward", "elem. bwd", SI, EXTRA, per="/tok"),
        _number(rows, "macs_forward", "MACs fwd", SI, EXTRA, per="/tok"),
        _text("sizing", "d_ff from", EXTRA, left=True),
    ]


def _static_fields(rows: list[Row], timed: set[str] | None) -> list[Field]:
    """Widths and counts; of the FLOPs the half comes first that the seconds belong to, both where nothing is timed."""
    forward, backward = 1, 2
    if timed is not None:
        forward = EXTRA if timed == {Mode.BACKWARD.value} else 5
        backward = 5 if Mode.BACKWARD.value in timed else EXTRA
    return [
        (Column(title="d_ff", priority=2), lambda r: _count(r["d_ff"])),
        (Column(title="params", priority=1), lambda r: _count(r["params"])),
        _number(rows, "flops_forward", "FLOPs", SI, forward, per="/tok"),
        _number(rows, "flops_backward", "FLOPs bwd", SI, backward, per="/tok"),
    ]


def _extra_fields(rows: list[Row]) -> list[Field]:
    return [
        _text("params_formula", "closed form", 7, left=True),
        _number(rows, "macs_forward", "MACs", SI, EXTRA, per="/tok"),
        _number(rows, "flops_elementwise", "elem.-wise", SI, EXTRA, per="/tok"),
        _number(rows, "weight_bytes", "weights", IEC, EXTRA),
        _text("activation", "activation", EXTRA, left=True),
        _text("gate", "gate", EXTRA, left=True),
        _text("sizing", "d_ff from", EXTRA, left=True),
    ]


def _differing(plan: Plan) -> list[Field]:
    """Columns for what is not the same in all cases; what is the same stands in the header."""
    keys = ("dtype", "device", "mode", "batch", "seq_len", "threads")
    differing = [k for k in keys if len({getattr(case.workload, k) for case in plan.cases}) > 1]
    return [_text(key, key, 1) for key in differing]


def _text(key: str, title: str, priority: int, *, left: bool = False) -> Field:
    def cell(row: Row) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else str(row[key]), value=row[key])

    return Column(title=title, priority=priority, left=left), cell


def _count(value: int | None) -> Cell:
    return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)


def _number(
    rows: list[Row], key: str, title: str, units: tuple[tuple[str, float], ...], priority: int, per: str = ""
) -> Field:
    """A column on one scale, its unit in the heading."""
    name, size = scale([row[key] for row in rows if row[key] is not None], units)

    def cell(row: Row) -> Cell:
        value = row[key]
        return Cell(text=UNKNOWN if value is None else digits(value / size), value=value)

    return Column(title=title, unit=f"{name}{per}", priority=priority), cell


def _share(key: str, title: str) -> Field:
    def cell(row: Row) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else f"{100 * row[key]:.1f}", value=row[key])

    return Column(title=title, unit="%", priority=3), cell


def _latency_field(report: Report, rows: list[Row]) -> Field:
    name, size = scale([row["latency_s"] for row in rows if row["latency_s"]], TIME)

    def cell(row: Row) -> Cell:
        if failed := _failure_cell(report, row):
            return failed
        estimate = report.estimate(row["label"], "latency")
        if estimate is None:
            return Cell(text=UNKNOWN)
        spread = half_width(estimate)
        return Cell(
            text=digits(estimate.value / size) + (f" ±{percent(spread)}" if spread is not None else " ±?"),
            value=estimate.value,
        )

    return Column(title="latency", unit=name), cell


def _failure_cell(report: Report, row: Row) -> Cell | None:
    """What stands in the place of a number that could not be measured."""
    failure = report.failure(row["label"])
    if failure is None:
        return None
    words = {"oom": "out of memory", "timeout": "timed out"}
    return Cell(text=words.get(failure.kind.value, failure.kind.value), style="red")


def _ratio_field(report: Report) -> Field:
    def cell(row: Row) -> Cell:
        comparison = report.comparison(row["label"])
        if comparison is None:
            return Cell(text=UNKNOWN)
        text = ratio_text(comparison.verdict, comparison.ratio)
        return Cell(
            text=text, value=comparison.ratio and comparison.ratio.value, style=STYLES.get(comparison.verdict.value, "")
        )

    reference = report.plan.reference
    return Column(title=f"vs {reference if len(reference) <= LONGEST_TITLE else 'reference'}", unit="ratio [95%]"), cell


def ratio_text(verdict: Verdict, ratio: Estimate | None) -> str:
    """`1.12 [1.10, 1.14]`, `same [0.997, 1.006]`, and `~ [0.97, 1.06]` where the run can't tell."""
    if verdict is Verdict.REFERENCE:
        return "reference"
    if ratio is None or ratio.low is None or ratio.high is None:
        return "~"
    places = 3 if math.sqrt(ratio.high / ratio.low) < 1.01 else 2
    word = {Verdict.SAME: "same", Verdict.UNCLEAR: "~"}.get(verdict, f"{ratio.value:.{places}f}")
    return f"{word} [{ratio.low:.{places}f}, {ratio.high:.{places}f}]"


def half_width(estimate: Estimate) -> float | None:
    """Half the interval, relative to the value; None without an interval."""
    return math.sqrt(estimate.high / estimate.low) - 1 if estimate.low and estimate.high else None


def _workload_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode", "backend")) -> str:
    first = plan.cases[0].workload

    def same(key: str) -> bool:
        return len({getattr(case.workload, key) for case in plan.cases}) == 1

    tokens = (
        f"{first.tokens:,} tokens ({first.batch} x {first.seq_len})"
        if same("batch") and same("seq_len")
        else "tokens vary"
    )
    threads = (
        f" ({first.threads} thread{'s' if first.threads > 1 else ''})"
        if same("threads") and first.device == "cpu"
        else ""
    )
    parts = [f"d_model {plan.cases[0].ffn.d_model}", tokens]
    parts += [getattr(first, key) + (threads if key == "device" else "") for key in keys if same(key)]
    return ", ".join(parts)


def _sizing_line(plan: Plan) -> str:
    """Where the widths come from: one phrase for all but the reference, or one for each."""
    others = {case.sizing for case in plan.cases if case.label != plan.reference}
    if others == {f"matched on {plan.match}"}:
        width = plan.case(plan.reference).ffn.d_ff
        how = f"matched on {plan.match} to {plan.reference} (d_ff {width:,}), multiple of {plan.multiple_of}"
    else:
        groups: dict[str, list[str]] = {}
        for case in plan.cases:
            groups.setdefault(case.sizing, []).append(case.label)
        how = "; ".join(f"{sizing} ({', '.join(labels)})" for sizing, labels in groups.items())
    return f"d_ff {how}; 1 MAC = 2 FLOPs"


def _compare_header(report: Report) -> tuple[str, ...]:
    protocol = report.plan.protocol
    timed = (
        f"{protocol.workers} fresh processes x {protocol.rounds} shuffled rounds; "
        "± and [ ] are 95% intervals over processes"
    )
    how = timed if "latency" in report.plan.metrics else "exact metrics only: measured once, in one process"
    return (f"FFN compare: {_workload_line(report.plan)}", _sizing_line(report.plan), how)


def _cost_header(report: Report) -> tuple[str, ...]:
    return (f"FFN cost: {_workload_line(report.plan, ('dtype', 'mode'))}", _sizing_line(report.plan))


def _summary(report: Report) -> tuple[str, ...]:
    """The answer in words, and how far it can be trusted."""
    groups: dict[Verdict, list[str]] = {}
    for comparison in report.comparisons:
        ratio = comparison.ratio
        decided = comparison.verdict in (Verdict.SLOWER, Verdict.FASTER)
        times = f" ({ratio.value:.2f}x the time)" if ratio and decided else ""
        groups.setdefault(comparison.verdict, []).append(comparison.case + times)
    words = {
        Verdict.SLOWER: "slower",
        Verdict.FASTER: "faster",
        Verdict.SAME: "the same within 2%",
        Verdict.UNCLEAR: "can't tell (~)",
    }
    said = "; ".join(f"{words[v]}: {', '.join(groups[v])}" for v in words if v in groups)
    lines = [f"against {report.plan.reference}, {said}"] if said else []
    if report.resolution is not None:
        wall = f", measured in {report.wall_s:.0f} s" if report.wall_s else ""
        fine = report.resolution < TOO_NOISY
        resolves = f"this run resolves differences of {percent(report.resolution)}"
        lines.append((resolves if fine else "too noisy to tell much: see `ffnbench env`, then run again") + wall)
    lines += [note.text for note in report.warnings if not note.label]
    if report.interrupted or report.stopped:
        lines += ended_early(report.samples, report.plan.protocol.workers)
    return tuple(lines)


def ended_early(samples: tuple[Sample, ...], workers: int) -> tuple[str, ...]:
    """What is said under the table of a run that did not come to its end."""
    done = max((sample.worker + 1 for sample in samples), default=0)
    return (f"ended early, in worker {done} of {workers}; this is what was measured by then",)
