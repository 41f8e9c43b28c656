"""Rows over time: a line each, the steps that were found with their commits, and what a
pull request is told.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.streams import visible
from ffnbench.common.units import IEC, SI, TIME, counted, percent, quantity, scale
from ffnbench.extras.history.timeline import Series, Shift, Timeline, unlike
from ffnbench.features import imported_function
from ffnbench.gate.side_by_side import FLOPS, RATIO
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.formats import View
from ffnbench.report.frame import Column, Frame, Row, in_row
from ffnbench.report.words import CERTAIN, change_text, interval_text, seconds_text
from ffnbench.result import Estimate

METRIC_NAMES = {FLOPS: "FLOPs/tok", PEAK: "peak"}
MOST_STEPS, MOST_ALONE = (
    4,
    6,
)  # steps, and labels of a single run, that are named below the table
SHORT = 7  # letters of a commit
OF_STEPS = 24  # letters: a step with its commit
HISTORY_COLUMNS = (
    Column(key="row", left=True),
    Column(key="metric", left=True, priority=2),
    Column(key="runs", priority=1, write=str),
    Column(key="days", title="from .. to", priority=5),
    Column(key="first", priority=4),
    Column(key="last", priority=3),
    Column(key="change", unit=CERTAIN, priority=1, interval=change_text),
    Column(
        key="steps",
        left=True,
        flexible=True,
        takes=OF_STEPS,
        style=lambda row: row["style"],
    ),
)


def history_view(timeline: Timeline) -> View:
    """Rows over time as the end of a command."""

    def picture(suffix: str) -> bytes:
        from ffnbench.report.pictures.canvas import render

        return render(
            imported_function("extras.history.picture:history_figure")(timeline), suffix
        )

    newest = max(
        (point.run for row in timeline.rows for point in row.points),
        key=lambda run: run.created,
    )
    labels = dict.fromkeys(row.case.label for row in timeline.rows)
    return View(
        frame=lambda: history_frame(timeline),
        pictures={"": picture},
        reports=[newest],
        title=f"history: {', '.join(labels)}",
        more_formats={"github": lambda: annotated(timeline)},
    )


def history_frame(timeline: Timeline) -> Frame:
    """A line each row; the steps in words below, the largest first."""
    steps = [step_text(timeline, row, step) for row, step in timeline.steps]
    summary = steps[:MOST_STEPS]
    if not steps:
        summary.append(f"no step was found in {counted(len(timeline.rows), 'row')}")
    if len(steps) > MOST_STEPS:
        summary.append(f"and {len(steps) - MOST_STEPS} more")
    if timeline.alone:
        names = ", ".join(timeline.alone[:MOST_ALONE])
        if len(timeline.alone) > MOST_ALONE:
            names += f" and {len(timeline.alone) - MOST_ALONE} more"
        summary.append(f"left out, as one run alone has them: {names}")
    days = sorted(day for series in timeline.rows for day in _days(series))
    first_and_last = dict.fromkeys((days[0], days[-1]))
    return Frame(
        columns=HISTORY_COLUMNS,
        rows=[_row(timeline, series) for series in timeline.rows],
        saved=history_records(timeline),
        header=[f"history of {runs_text(timeline)}, {' to '.join(first_and_last)}"],
        summary=summary,
    )


def history_records(timeline: Timeline) -> list[Row]:
    """One flat record a row and run, in base units; `change` stands where a run begins
    a level.
    """
    records = []
    for row in timeline.rows:
        changes = {step.at: step.change for step in row.steps}
        for at, point in enumerate(row.points):
            environment = point.run.environment
            record: Row = {
                "label": row.case.label,
                "metric": row.metric,
                "reference": row.reference if row.metric == RATIO else None,
                "machine": row.machine and row.machine.fingerprint,
                "created": point.run.created,
                "git_commit": environment and environment.git_commit,
            }
            records.append(
                record
                | in_row("value", point.value)
                | in_row("change", changes.get(at))
            )
    return records


def _row(timeline: Timeline, series: Series) -> Row:
    """A row over time."""
    steps, style = [], ""
    for step in series.steps:
        change = change_text(replace(step.change, low=None))
        steps.append(f"{change} at {commit_text(series, step.at)}")
        if step.change.value > 1:
            style = "red"
        elif not style:
            style = "green"
    return {
        "row": named(timeline, series),
        "metric": metric_text(series),
        "runs": len(series.points),
        "days": " .. ".join(_days(series)),
        "first": value_text(series, series.points[0].value),
        "last": value_text(series, series.points[-1].value),
        **in_row("change", series.change),
        "steps": "; ".join(steps) or "none",
        "style": style,
    }


# Words


def runs_text(timeline: Timeline) -> str:
    """`12 runs`; `3 of 13 runs, 2 to 3 a row` where not all of them are runs of one
    row.
    """
    followed = len({id(point.run) for row in timeline.rows for point in row.points})
    text = counted(timeline.runs, "run")
    if followed < timeline.runs:
        text = f"{followed} of {text}"
    sizes = sorted({len(row.points) for row in timeline.rows})
    if len(sizes) > 1:
        text += f", {sizes[0]} to {sizes[-1]} a row"
    return text


def step_text(timeline: Timeline, row: Series, step: Shift) -> str:
    """`mine has become 5.1% [4.2, 6.0] slower at 3f2a1c0 (2026-11-03), of 30 runs; at
    1d878f9 (2026-11-02) not yet`.
    """
    name, before = named(timeline, row), commit_text(row, step.at - 1)
    at = f"{commit_text(row, step.at)}, of {counted(len(row.points), 'run')}; at {before} not yet"
    if row.machine is None:
        was, now = (
            value_text(row, row.points[place].value) for place in (step.at - 1, step.at)
        )
        return f"{name}: {metric_text(row)} {was} before, {now} from {at}"
    text = f"{name} has become {_size_text(step.change)}"
    if row.metric == RATIO:
        text += f" against {row.reference}"
        created = row.points[step.at].run.created
        of_reference = [
            other for other in timeline.rows if other.case.label == row.reference
        ]
        if any(
            other.points[shift.at].run.created == created
            for other in of_reference
            for shift in other.steps
        ):
            text += ", itself changed there,"
    return f"{text} at {at}"


def _size_text(change: Estimate) -> str:
    """`5.1% [4.2, 6.0] slower`."""
    value, low, high = (
        percent(abs((end or 0) - 1)) for end in (change.value, change.low, change.high)
    )
    if change.value > 1:
        return f"{value} [{low[:-1]}, {high[:-1]}] slower"
    return f"{value} [{high[:-1]}, {low[:-1]}] faster"


def _days(row: Series) -> list[str]:
    """Those of the first run and of the last one, once where they are the same."""
    return list(dict.fromkeys(row.points[at].run.created[:10] for at in (0, -1)))


def commit_text(row: Series, at: int) -> str:
    """`3f2a1c0 (2026-11-03)`; the day alone where no commit is known."""
    environment, day = row.points[at].run.environment, row.points[at].run.created[:10]
    if environment is None or not environment.git_commit:
        return day
    commit = environment.git_commit[:SHORT]
    if environment.git_dirty:
        commit += "+"
    return f"{commit} ({day})"


def metric_text(row: Series) -> str:
    """`time vs relu`; `latency`."""
    if row.metric == RATIO:
        return f"time vs {row.reference}"
    return METRIC_NAMES.get(row.metric, row.metric)


def value_text(row: Series, value: Estimate) -> str:
    """A value with its unit; of a ratio its interval."""
    if row.metric == RATIO:
        return interval_text(value)
    if row.metric == LATENCY:
        unit, size = scale([value.value], TIME)
        return f"{seconds_text(value, size)} {unit}"
    return quantity(value.value, IEC if row.metric == PEAK else SI)


def named(timeline: Timeline, row: Series) -> str:
    """Its label; with what is not the same where rows share one, and the machine where
    there are several.
    """
    parts = unlike(row.case, timeline.rows)
    machines = {other.machine.fingerprint for other in timeline.rows if other.machine}
    if row.machine and len(machines) > 1:
        parts.append(
            f"{row.machine.gpu or row.machine.cpu}, {row.machine.fingerprint[:4]}"
        )
    if not parts:
        return visible(row.case.label)
    return visible(f"{row.case.label} ({', '.join(parts)})")


def annotated(timeline: Timeline) -> str:
    """GitHub's workflow commands: a warning for what has grown, a notice for what has
    shrunk.
    """
    lines = []
    for row, step in timeline.steps:
        level = "warning" if step.change.value > 1 else "notice"
        text = step_text(timeline, row, step).replace("%", "%25")
        lines.append(f"::{level} title=ffnbench history::{text}\n")
    return "".join(lines)
