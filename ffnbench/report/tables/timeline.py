"""Rows over time: a line each, the steps that were found with their commits, and what a pull request is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial

from ffnbench.gate.side_by_side import FLOPS, PARAMS, RATIO, apart
from ffnbench.gate.timeline import Point, Row, Shift, Timeline
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.formats import View, view_of
from ffnbench.report.page.page import page_of
from ffnbench.report.records import Record
from ffnbench.report.tables.table import Cell, Column, Field, TextTable, table_of_fields
from ffnbench.report.tables.words import CERTAIN, change_text, interval_text, seconds_text
from ffnbench.result import Environment, Estimate
from ffnbench.streams import visible
from ffnbench.units import IEC, SI, TIME, counted, percent, quantity, scale

NAMES = {LATENCY: "latency", RATIO: "time", PARAMS: "params", FLOPS: "FLOPs/tok", PEAK: "peak"}
TOLD, LEFT = 4, 6  # steps, and labels of a single run, that are told below the table
SHORT = 7  # letters of a commit
OF_STEPS = 24  # of a column: one step with its commit


def history_view(found: Timeline) -> View:
    """The answer in all its forms."""
    table = history_table(found)
    title = f"history: {', '.join(dict.fromkeys(row.case.label for row in found.rows))}"

    def picture(suffix: str) -> bytes:
        from ffnbench.report.pictures.canvas import render
        from ffnbench.report.pictures.timeline import history_figure

        return render(history_figure(found), suffix, texts=True)

    view = view_of(
        table, partial(history_records, found), pictures={"": picture},
        page=lambda: page_of(title, table, pictures=_drawn(found)), every=False,
    )  # fmt: skip
    return replace(view, stdout={**view.stdout, "github": lambda: annotations(found)})


def _drawn(found: Timeline) -> str:
    from ffnbench.report.page.pictures import inline
    from ffnbench.report.pictures.timeline import history_figure, mark_of

    told = {
        mark_of(row, at): f"{told_name(found, row)}\n{commit_text(point)}: {value_text(row, point.value)}"
        for row in found.rows for at, point in enumerate(row.points)
    }  # fmt: skip
    return inline(history_figure(found), "History", told)


def history_records(found: Timeline) -> list[Record]:
    """One flat record a row and run, everything in base units; `level` counts from 0, and a step begins each further
    one.
    """
    return [
        {
            "label": row.case.label, "metric": row.metric, "reference": row.reference if row.metric == RATIO else None,
            "machine": p.environment and p.environment.fingerprint, "created": p.run.created,
            "git_commit": p.environment and p.environment.git_commit, "value": p.value.value,
            "value_low": p.value.low, "value_high": p.value.high, "level": sum(step.at <= at for step in row.steps),
            **{f"change{end}": getattr(_change_at(row, at), part, None)
               for end, part in (("", "value"), ("_low", "low"), ("_high", "high"))},
        }
        for row in found.rows for at, p in enumerate(row.points)
    ]  # fmt: skip


def _change_at(row: Row, at: int) -> Estimate | None:
    return next((step.change for step in row.steps if step.at == at), None)


def history_table(found: Timeline) -> TextTable:
    """Rows with steps first; the machine where there are several."""
    rows = sorted(found.rows, key=lambda row: not row.steps)
    several = len({name_of_machine(found, row) for row in rows}) > 1
    shown: list[Field] = [
        (Column(title="row", left=True), lambda row: Cell(text=told_row(found, row), value=told_name(found, row))),
        (Column(title="metric", left=True, priority=2), lambda row: Cell(text=metric_text(row))),
        *[(Column(title="machine", left=True, priority=1), lambda row: Cell(text=name_of_machine(found, row)))] * several,
        (Column(title="runs", priority=1), lambda row: Cell(text=str(len(row.points)), value=len(row.points))),
        (Column(title="from", priority=4), lambda row: Cell(text=row.points[0].run.created[:10])),
        (Column(title="to", priority=4), lambda row: Cell(text=row.points[-1].run.created[:10])),
        (Column(title="first", priority=3), lambda row: _value(row, row.points[0])),
        (Column(title="last", priority=2), lambda row: _value(row, row.points[-1])),
        (Column(title="change", unit=CERTAIN, priority=1), lambda row: Cell(text=change_text(row.change), value=row.change.value)),
        (Column(title="steps", left=True, flexible=True, takes=OF_STEPS), _steps),
    ]
    first, last = (end(p.run.created[:10] for row in rows for p in row.points) for end in (min, max))
    return table_of_fields(
        shown, rows, header=[f"history of {counted(found.runs, 'run')}, {first} to {last}"],
        summary=list(_summary(found)),
    )  # fmt: skip


def _summary(found: Timeline) -> Iterator[str]:
    """The steps in words, the largest first."""
    steps = in_order(found)
    yield from (step_text(found, row, step) for row, step in steps[:TOLD])
    if more := steps[TOLD:]:
        yield f"and {counted(len(more), 'step')} more: see the column"
    if not steps:
        yield f"no step was found in {counted(len(found.rows), 'row')}"
    if found.alone:
        names, more_ = found.alone[:LEFT], len(found.alone) - LEFT
        yield f"in one run alone, and so left out: {', '.join(names)}" + f" and {more_} more" * (more_ > 0)


def in_order(found: Timeline) -> list[tuple[Row, Shift]]:
    """All steps, what has grown most first."""
    return sorted(((row, step) for row in found.rows for step in row.steps), key=lambda one: -one[1].change.value)


def step_text(found: Timeline, row: Row, step: Shift) -> str:
    """`swiglu has become 5.1% [4.2, 6.0] slower at 3f2a1c0 (2026-11-03), of 30 runs`."""
    at = row.points[step.at]
    where = f"{commit_text(at)}, of {counted(len(row.points), 'run')}"
    machines = {name_of_machine(found, one) for one in found.rows}
    where += f" on {name_of_machine(found, row)}" * (row.timed and len(machines) > 1)
    if not row.timed:
        was, now = (value_text(row, row.points[n].value) for n in (step.at - 1, step.at))
        return f"{told_row(found, row)}: {metric_text(row)} {was} before, {now} from {where}"
    ends = [one - 1 for one in (step.change.value, step.change.low, step.change.high) if one is not None]
    slower = ends[0] > 0
    value, *interval = ends if slower else [-one for one in (ends[0], *ends[:0:-1])]
    told = percent(value) + (f" [{', '.join(percent(one).removesuffix('%') for one in interval)}]" if interval else "")
    itself = any(_at(o, n) == _at(row, step) for o, n in in_order(found) if o.case.label == row.reference)
    against = f", against {row.reference}{', which has changed there itself' * itself}," * (row.metric == RATIO)
    return f"{told_row(found, row)} has become {told} {'slower' if slower else 'faster'}{against} at {where}"


def _at(row: Row, step: Shift) -> str:
    return row.points[step.at].run.created


def commit_text(point: Point) -> str:
    """`3f2a1c0 (2026-11-03)`; the day alone where no commit is known."""
    here, day = point.environment, point.run.created[:10]
    return f"{here.git_commit[:SHORT]}{'+' * bool(here.git_dirty)} ({day})" if here and here.git_commit else day


def metric_text(row: Row) -> str:
    """`time vs relu`; `latency`."""
    return f"time vs {row.reference}" if row.metric == RATIO else NAMES[row.metric]


def value_text(row: Row, value: Estimate) -> str:
    """A value with its interval and unit."""
    if row.metric == RATIO:
        return interval_text(value)
    if row.metric != LATENCY:
        return quantity(value.value, IEC if row.metric == PEAK else SI)
    unit, size = scale([value.value], TIME)
    return f"{seconds_text(value, size)} {unit}"


def told_row(found: Timeline, row: Row) -> str:
    """Its label, with what is not the same where rows share one."""
    others = [one.case for one in found.rows if one.case.label == row.case.label and one.case != row.case]
    parts = {name: now for other in others for name, _, now in apart(other, row.case)}
    return row.case.label + (f" ({', '.join(f'{name} {now}' for name, now in parts.items())})" if parts else "")


def told_name(found: Timeline, row: Row) -> str:
    """A row told from all others."""
    machines = {name_of_machine(found, one) for one in found.rows}
    machine = f", {name_of_machine(found, row)}" * (len(machines) > 1)
    return visible(f"{told_row(found, row)}: {metric_text(row)}{machine}")


def name_of_machine(found: Timeline, row: Row) -> str:
    """What tells the machine of a row from those of others; of what is exact none."""
    here = _machine(row)
    others = [one for row in found.rows if (one := _machine(row)) and here and one.fingerprint != here.fingerprint]
    if here is None or not others:
        return ""
    names = [one.name for one in fields(Environment) if one.name in TELLING]
    parts = [n for n in names if any(getattr(one, n) != getattr(here, n) for one in others) and getattr(here, n)]
    return ", ".join(f"{TELLING[name]}{getattr(here, name)}" for name in parts[:2]) or here.fingerprint[:SHORT]


TELLING = {"cpu": "", "gpu": "", "usable_cpus": "CPUs ", "torch": "torch ", "cpu_capability": "", "blas": "", "cuda": "CUDA "}


def _machine(row: Row) -> Environment | None:
    return row.points[0].environment if row.timed else None


def _value(row: Row, point: Point) -> Cell:
    return Cell(text=value_text(row, point.value), value=point.value.value)


def _steps(row: Row) -> Cell:
    """`+5.1% at 3f2a1c0 (2026-11-03)`, one behind another."""
    told = [f"{change_text(replace(s.change, low=None))} at {commit_text(row.points[s.at])}" for s in row.steps]
    grown = any(step.change.value > 1 for step in row.steps)
    return Cell(text="; ".join(told) or "none", style="red" if grown else "green" if told else "")


def annotations(found: Timeline) -> str:
    """GitHub's workflow commands: a warning for what has grown, a notice for what has shrunk."""
    return "".join(
        f"::{'warning' if step.change.value > 1 else 'notice'} title=ffnbench history::"
        + visible(step_text(found, row, step)).replace("%", "%25") + "\n"
        for row, step in in_order(found)
    )  # fmt: skip
