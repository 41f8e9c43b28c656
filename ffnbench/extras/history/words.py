"""Rows over time in words: their names and values, steps with their commits, and the
annotations of a pull request.
"""

from __future__ import annotations

from ffnbench.common.streams import visible
from ffnbench.common.units import IEC, SI, TIME, counted, percent, quantity, scale
from ffnbench.extras.history.timeline import (
    LevelStep,
    Series,
    Timeline,
    differences_from,
)
from ffnbench.gate.side_by_side import FLOPS, RATIO
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.words import interval_text, seconds_text
from ffnbench.result import Estimate

METRIC_NAMES = {FLOPS: "FLOPs/tok", PEAK: "peak"}
SHORT = 7  # letters of a commit


def runs_text(timeline: Timeline) -> str:
    """How many runs are shown: `12 runs`; `3 of 13 runs, 2 to 3 a row` where rows have
    different runs.
    """
    followed = len({id(point.run) for row in timeline.rows for point in row.points})
    text = counted(timeline.runs, "run")
    if followed < timeline.runs:
        text = f"{followed} of {text}"
    sizes = sorted({len(row.points) for row in timeline.rows})
    if len(sizes) > 1:
        text += f", {sizes[0]} to {sizes[-1]} a row"
    return text


def step_text(timeline: Timeline, row: Series, step: LevelStep) -> str:
    """A step as a sentence: `mine has become 5.1% [4.2, 6.0] slower at 3f2a1c0
    (2026-11-03), of 30 runs; at 1d878f9 (2026-11-02) not yet`. Of an exact metric, it
    has both values: `mine: FLOPs/tok 1.2M before, 1.3M from 3f2a1c0 ...`.
    """
    name, before = name_of(timeline, row), commit_text(row, step.at - 1)
    at = f"{commit_text(row, step.at)}, of {counted(len(row.points), 'run')}; at {before} not yet"
    if row.is_exact:
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
    """The size of a step: `5.1% [4.2, 6.0] slower`."""
    value, low, high = (
        percent(abs((end or 0) - 1)) for end in (change.value, change.low, change.high)
    )
    if change.value > 1:
        return f"{value} [{low[:-1]}, {high[:-1]}] slower"
    return f"{value} [{high[:-1]}, {low[:-1]}] faster"


def days_of(row: Series) -> list[str]:
    """The days of the first run and of the last one; one day where they are equal."""
    return list(dict.fromkeys(row.points[at].run.created[:10] for at in (0, -1)))


def commit_text(row: Series, at: int) -> str:
    """The commit of the run at a place, `3f2a1c0 (2026-11-03)`; with `+` where files
    had changes, and the day alone where no commit is known.
    """
    environment, day = row.points[at].run.environment, row.points[at].run.created[:10]
    if environment is None or not environment.git_commit:
        return day
    commit = environment.git_commit[:SHORT]
    if environment.git_dirty:
        commit += "+"
    return f"{commit} ({day})"


def metric_text(row: Series) -> str:
    """The name of a row's metric: `time vs relu`; `latency`."""
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


def name_of(timeline: Timeline, row: Series) -> str:
    """The label of a row; with what distinguishes it where other rows have the same
    label, and with the machine where there are several.
    """
    parts = differences_from(row.case, timeline.rows)
    machines = {other.machine.fingerprint for other in timeline.rows if other.machine}
    if row.machine and len(machines) > 1:
        parts.append(
            f"{row.machine.gpu or row.machine.cpu}, {row.machine.fingerprint[:4]}"
        )
    if not parts:
        return visible(row.case.label)
    return visible(f"{row.case.label} ({', '.join(parts)})")


def annotated(timeline: Timeline) -> str:
    """The steps as workflow commands of GitHub: a warning for an increase, a notice for
    a decrease.
    """
    lines = []
    for row, step in timeline.steps:
        level = "warning" if step.change.value > 1 else "notice"
        text = step_text(timeline, row, step).replace("%", "%25")
        lines.append(f"::{level} title=ffnbench history::{text}\n")
    return "".join(lines)
