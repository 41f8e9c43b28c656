"""Rows over time: a line each, the steps that were found with their commits, and what a pull request is told."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.streams import visible
from ffnbench.common.units import IEC, SI, TIME, counted, percent, quantity, scale
from ffnbench.extras.history.timeline import Series, Shift, Timeline, unlike
from ffnbench.features import function_of
from ffnbench.gate.side_by_side import FLOPS, RATIO
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.formats import View
from ffnbench.report.frame import Column, Frame, Row, in_row
from ffnbench.report.words import CERTAIN, change_text, interval_text, seconds_text
from ffnbench.result import Estimate

NAMES = {FLOPS: "FLOPs/tok", PEAK: "peak"}
TOLD, LEFT = 4, 6  # steps, and labels of a single run, that are told below the table
SHORT = 7  # letters of a commit
OF_STEPS = 24  # letters: a step with its commit


def history_records(found: Timeline) -> list[Row]:
    """One flat record a row and run, in base units; `change` stands where a run begins a level."""
    records = []
    for row in found.rows:
        changes = {step.at: step.change for step in row.steps}
        for at, point in enumerate(row.points):
            here = point.run.environment
            records.append({
                "label": row.case.label, "metric": row.metric,
                "reference": row.reference if row.metric == RATIO else None,
                "machine": row.machine and row.machine.fingerprint, "created": point.run.created,
                "git_commit": here and here.git_commit,
                **in_row("value", point.value), **in_row("change", changes.get(at)),
            })  # fmt: skip
    return records


def history_frame(found: Timeline) -> Frame:
    """A line each row; the steps in words below, the largest first."""
    rows = [_row(found, series) for series in found.rows]
    days = sorted(day for series in found.rows for day in _days(series))
    told = [step_text(found, row, step) for row, step in found.steps]
    said = told[:TOLD] or [f"no step was found in {counted(len(rows), 'row')}"]
    if len(told) > TOLD:
        said.append(f"and {len(told) - TOLD} more")
    if found.alone:
        more = f" and {len(found.alone) - LEFT} more" if len(found.alone) > LEFT else ""
        said.append(f"left out, as one run alone has them: {', '.join(found.alone[:LEFT])}{more}")
    header = f"history of {runs_text(found)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    return Frame(columns=COLUMNS, rows=rows, saved=history_records(found), header=[header], summary=said)


def _row(found: Timeline, series: Series) -> Row:
    """A row over time."""
    steps = [
        f"{change_text(replace(step.change, low=None))} at {commit_text(series, step.at)}" for step in series.steps
    ]
    style = ""
    if steps:
        style = "red" if any(step.change.value > 1 for step in series.steps) else "green"
    return {
        "row": named(found, series),
        "metric": metric_text(series),
        "runs": len(series.points),
        "days": " .. ".join(_days(series)),
        "first": value_text(series, series.points[0].value),
        "last": value_text(series, series.points[-1].value),
        **in_row("change", series.change),
        "steps": "; ".join(steps) or "none",
        "style": style,
    }


COLUMNS = (
    Column(key="row", left=True),
    Column(key="metric", left=True, priority=2),
    Column(key="runs", priority=1, write=str),
    Column(key="days", title="from .. to", priority=5),
    Column(key="first", priority=4),
    Column(key="last", priority=3),
    Column(key="change", unit=CERTAIN, priority=1, interval=change_text),
    Column(key="steps", left=True, flexible=True, takes=OF_STEPS, style=lambda row: row["style"]),
)


def runs_text(found: Timeline) -> str:
    """`12 runs`; `3 of 13 runs, 2 to 3 a row` where not all of them are runs of one row."""
    followed = len({id(point.run) for row in found.rows for point in row.points})
    sizes = sorted({len(row.points) for row in found.rows})
    part = f"{followed} of " * (followed < found.runs)
    return f"{part}{counted(found.runs, 'run')}" + f", {sizes[0]} to {sizes[-1]} a row" * (len(sizes) > 1)


def step_text(found: Timeline, row: Series, step: Shift) -> str:
    """`mine has become 5.1% [4.2, 6.0] slower at 3f2a1c0 (2026-11-03), of 30 runs; at 1d878f9 (2026-11-02) not yet`."""
    name, before = named(found, row), commit_text(row, step.at - 1)
    at = f"{commit_text(row, step.at)}, of {counted(len(row.points), 'run')}; at {before} not yet"
    if row.machine is None:
        was, now = (value_text(row, row.points[place].value) for place in (step.at - 1, step.at))
        return f"{name}: {metric_text(row)} {was} before, {now} from {at}"
    change, grown = step.change, step.change.value > 1
    ends = (change.value, change.low, change.high) if grown else (change.value, change.high, change.low)
    value, low, high = (percent(abs((one or 0) - 1)) for one in ends)
    told = f"{value} [{low[:-1]}, {high[:-1]}] {'slower' if grown else 'faster'}"
    begun = {one.points[other.at].run.created for one, other in found.steps if one.case.label == row.reference}
    itself = ", itself changed there," * (row.points[step.at].run.created in begun)
    return f"{name} has become {told}{f' against {row.reference}{itself}' * (row.metric == RATIO)} at {at}"


def _days(row: Series) -> list[str]:
    return list(dict.fromkeys(row.points[at].run.created[:10] for at in (0, -1)))


def commit_text(row: Series, at: int) -> str:
    """`3f2a1c0 (2026-11-03)`; the day alone where no commit is known."""
    here, day = row.points[at].run.environment, row.points[at].run.created[:10]
    return f"{here.git_commit[:SHORT]}{'+' * bool(here.git_dirty)} ({day})" if here and here.git_commit else day


def metric_text(row: Series) -> str:
    """`time vs relu`; `latency`."""
    return f"time vs {row.reference}" if row.metric == RATIO else NAMES.get(row.metric, row.metric)


def value_text(row: Series, value: Estimate) -> str:
    """A value with its unit; of a ratio its interval."""
    unit, size = scale([value.value], TIME)
    if row.metric == LATENCY:
        return f"{seconds_text(value, size)} {unit}"
    return interval_text(value) if row.metric == RATIO else quantity(value.value, IEC if row.metric == PEAK else SI)


def named(found: Timeline, row: Series) -> str:
    """Its label; with what is not the same where rows share one, and the machine where there are several."""
    parts = unlike(row.case, found.rows)
    if row.machine and len({one.machine.fingerprint for one in found.rows if one.machine}) > 1:
        parts.append(f"{row.machine.gpu or row.machine.cpu}, {row.machine.fingerprint[:4]}")
    return visible(row.case.label + (f" ({', '.join(parts)})" if parts else ""))


def annotated(found: Timeline) -> str:
    """GitHub's workflow commands: a warning for what has grown, a notice for what has shrunk."""
    told = [(step.change.value, step_text(found, row, step).replace("%", "%25")) for row, step in found.steps]
    return "".join(f"::{'warning' if v > 1 else 'notice'} title=ffnbench history::{text}\n" for v, text in told)


def history_view(timeline: Timeline) -> View:
    """Rows over time as the end of a command."""

    def picture(suffix: str) -> bytes:
        from ffnbench.report.pictures.canvas import render

        return render(function_of("extras.history.picture:history_figure")(timeline), suffix)

    newest = max((point.run for row in timeline.rows for point in row.points), key=lambda run: run.created)
    title = f"history: {', '.join(dict.fromkeys(row.case.label for row in timeline.rows))}"
    return View(
        frame=lambda: history_frame(timeline),
        pictures={"": picture},
        reports=[newest],
        title=title,
        more_formats={"github": lambda: annotated(timeline)},
    )
