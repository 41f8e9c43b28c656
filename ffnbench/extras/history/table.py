"""The table of rows over time, one line for each row: its values, and the steps that
were found, with their commits.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.units import counted
from ffnbench.extras.history.timeline import FEWEST_RUNS, Series, Timeline
from ffnbench.extras.history.words import (
    annotated,
    commit_text,
    days_of,
    metric_text,
    name_of,
    runs_text,
    step_text,
    value_text,
)
from ffnbench.gate.side_by_side import RATIO
from ffnbench.report.formats import View
from ffnbench.report.frame import Column, Frame, Row, in_row
from ffnbench.report.words import CERTAIN, INTERVALS, change_text

# so many steps, and labels that a single run has, are named below the table
MOST_STEPS, MOST_IN_ONE_RUN = 4, 6
STEP_WIDTH = 24  # letters: a step with its commit
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
        least_width=STEP_WIDTH,
        style=lambda row: row["style"],
    ),
)


def history_view(timeline: Timeline, command: str = "") -> View:
    """The answer of `history`: frame, picture and annotations."""

    def picture(suffix: str) -> bytes:
        from ffnbench.extras.history.picture import history_figure
        from ffnbench.report.pictures.canvas import render

        return render(history_figure(timeline), suffix)

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
        command=command,
        more_formats={"github": lambda: annotated(timeline)},
    )


def history_frame(timeline: Timeline) -> Frame:
    """The table of `history`; below it the steps in words, the largest first."""
    steps = [step_text(timeline, row, step) for row, step in timeline.steps]
    summary = steps[:MOST_STEPS]
    if not steps:
        summary.append(f"no step was found in {counted(len(timeline.rows), 'row')}")
    if len(steps) > MOST_STEPS:
        summary.append(f"and {len(steps) - MOST_STEPS} more")
    if timeline.in_one_run:
        names = ", ".join(timeline.in_one_run[:MOST_IN_ONE_RUN])
        if len(timeline.in_one_run) > MOST_IN_ONE_RUN:
            names += f" and {len(timeline.in_one_run) - MOST_IN_ONE_RUN} more"
        summary.append(f"left out, as one run alone has them: {names}")
    days = sorted(day for series in timeline.rows for day in days_of(series))
    first_and_last = dict.fromkeys((days[0], days[-1]))
    return Frame(
        columns=HISTORY_COLUMNS,
        rows=[_row(timeline, series) for series in timeline.rows],
        saved=history_records(timeline),
        header=[f"history of {runs_text(timeline)}, {' to '.join(first_and_last)}"],
        summary=summary,
        details=[
            f"{INTERVALS}; a change is from the first run to the last, and its interval knows how far runs of unchanged code move apart",
            f"a step divides two levels of at least {FEWEST_RUNS} runs that differ by more than chance; a level is the median of its runs (PELT)",
        ],
    )


def history_records(timeline: Timeline) -> list[Row]:
    """A flat record for each run of each row, in base units. Only a run that begins a
    level has a `change`.
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
    """A row over time as a line of the table."""
    steps, style = [], ""
    for step in series.steps:
        change = change_text(replace(step.change, low=None))
        steps.append(f"{change} at {commit_text(series, step.at)}")
        if step.change.value > 1:
            style = "red"
        elif not style:
            style = "green"
    return {
        "row": name_of(timeline, series),
        "metric": metric_text(series),
        "runs": len(series.points),
        "days": " .. ".join(days_of(series)),
        "first": value_text(series, series.points[0].value),
        "last": value_text(series, series.points[-1].value),
        **in_row("change", series.change),
        "steps": "; ".join(steps) or "none",
        "style": style,
    }
