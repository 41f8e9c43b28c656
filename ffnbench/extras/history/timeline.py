"""The rows of many runs over time: which runs are of one row on one kind of machine,
and where it steps from one level to another. The runs are read from files and folders.

A row is what is measured, and how: its label alone does not make it one. Exact figures
are those of any machine.

The search for steps is that of ruptures (Truong, Oudre, Vayatis 2020): PELT over
absolute deviations from medians, which one odd run does not move. `python
benchmarks/steps.py` says how often it is wrong.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from ffnbench.common.errors import FfnbenchError
from ffnbench.gate.side_by_side import (
    COMPARED,
    COMPARED_TIMES,
    RATIO,
    case_differences,
    is_busy,
    mean_in,
    value_in,
)
from ffnbench.metrics import LATENCY
from ffnbench.plan import Case
from ffnbench.report.files.store import read_report as load_report
from ffnbench.result import CONFIDENCE, Environment, Estimate, Report
from ffnbench.stats.figures import with_figures
from ffnbench.stats.history import (
    RUNS_FREEDOM,
    RUNS_SD,
    Change,
    change_between,
    history_of,
)
from ffnbench.stats.interval import Mean, VarianceEstimate, mean_with_error

SHORTEST = 2  # runs of a level: one run by itself is no step
PENALTY = 6.0  # of a further level, in scatters between runs


@dataclass(frozen=True, slots=True)
class Shift:
    """From the run at `at` on a row has another level: its change, without an interval
    where that is exact.
    """

    at: int
    change: Estimate


def steps_of(runs: Sequence[Mean]) -> list[Shift]:
    """The steps of a row's runs, the oldest first, whose interval leaves out that
    nothing has changed.
    """
    if len(runs) < 2 * SHORTEST:
        return []
    import numpy as np
    import ruptures  # type: ignore[import-untyped,import-not-found,unused-ignore]

    series = np.array([[run.mean] for run in runs]) / scatter_of_runs(runs)
    ends = ruptures.Pelt(model="l1", min_size=SHORTEST, jump=1).fit_predict(
        series, PENALTY
    )
    levels = [
        history_of(runs[start:end]).over_runs for start, end in pairwise([0, *ends])
    ]
    steps = []
    for at, (old, new) in zip(ends, pairwise(levels), strict=False):
        change = change_between(old, new)
        if change.difference.p_value() < 1 - CONFIDENCE:
            steps.append(Shift(at, change.estimate()))
    return steps


def scatter_of_runs(runs: Sequence[Mean]) -> float:
    """How far runs of one level lie about it: a standard deviation of logs.

    It is estimated by successive differences, absolute ones, which a step and odd runs
    move less than squares; it is drawn towards the prior of a baseline's runs with what
    these leave uncertain themselves.
    """
    prior = RUNS_SD**2 + median(run.error**2 for run in runs)
    mean_difference = fmean(
        abs(later.mean - earlier.mean) for earlier, later in pairwise(runs)
    )
    seen = mean_difference * math.sqrt(math.pi) / 2  # of normal values
    freedom = history_of(runs).between.freedom
    return math.sqrt(
        (RUNS_FREEDOM * prior + (freedom - RUNS_FREEDOM) * seen**2) / freedom
    )


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """A row in one run; `log` is of what is timed."""

    run: Report
    case: Case
    value: Estimate
    log: Mean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a case in the runs of one kind of machine, the oldest first; of
    what is exact `machine` is None. `change` is from the first run to the last one.
    """

    case: Case
    metric: str
    reference: str
    machine: Environment | None
    points: tuple[TimelinePoint, ...]
    steps: tuple[Shift, ...]
    change: Estimate


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of so many runs, those with steps first, and the names of those that a
    single run has.
    """

    runs: int
    rows: tuple[Series, ...]
    alone: tuple[str, ...]

    @property
    def steps(self) -> list[tuple[Series, Shift]]:
        """All steps, what has grown most first."""
        steps = [(row, step) for row in self.rows for step in row.steps]
        return sorted(steps, key=lambda item: -item[1].change.value)


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """What two runs that have one row have in common.

    `place` is the kind of machine and the method of what is timed; `case` and
    `reference` are what is measured and, of a ratio, against what.
    """

    metric: str
    place: tuple[str, int] | None
    case: tuple[object, ...]
    reference: tuple[object, ...] | None


def timeline_of(runs: Sequence[Report], metric: str = "") -> Timeline:
    """Runs with their figures, in any order, each once.

    Without a metric: ratios, seconds of what has none, and of what is exact what has
    changed, or is not timed.
    """
    by_origin = {}
    for run in runs:
        machine = run.environment and run.environment.fingerprint
        by_origin[run.created, machine, run.samples[:1]] = run
    unique = sorted(by_origin.values(), key=lambda run: run.created)
    metrics = (metric,) if metric else COMPARED
    points: dict[RowIdentity, list[TimelinePoint]] = {}
    for run in unique:
        for case in run.plan.shown:
            for name in metrics:
                point = _point(run, case.label, name)
                if point:
                    points.setdefault(_identity(run, case.label, name), []).append(
                        point
                    )
    rows = {
        identity: _series(identity.metric, of)
        for identity, of in points.items()
        if len(of) > 1
    }
    if not metric:
        rows = _telling_rows(
            rows,
            timed={
                identity.case[0]
                for identity in points
                if identity.metric in COMPARED_TIMES
            },
        )
    followed = sorted(rows.values(), key=lambda row: not row.steps)
    shown = {identity.case for identity in rows}
    alone = []
    for identity, of in points.items():
        if identity.case not in shown:
            case = of[-1].case
            alone.append(" ".join([case.label, *unlike(case, followed)]))
    return Timeline(len(unique), tuple(followed), tuple(dict.fromkeys(alone)))


def _telling_rows(
    rows: Mapping[RowIdentity, Series], timed: Collection[object]
) -> dict[RowIdentity, Series]:
    """Without the seconds of what has a ratio, and without exact figures that are as
    they were beside times.
    """
    with_ratio = {
        (identity.place, identity.case) for identity in rows if identity.metric == RATIO
    }
    telling = {}
    for identity, row in rows.items():
        if identity.metric == LATENCY:
            is_telling = (identity.place, identity.case) not in with_ratio
        else:
            is_telling = (
                identity.metric == RATIO
                or bool(row.steps)
                or identity.case[0] not in timed
            )
        if is_telling:
            telling[identity] = row
    return telling


def change_since_first(runs: Sequence[Mean]) -> Change:
    """From the first run to the last. What moves between runs is learnt from all but
    the last, and counts for both.
    """
    first = runs[0]
    between = history_of(runs[:-1]).between
    of_both = VarianceEstimate(2 * between.variance, between.freedom)
    own = VarianceEstimate(first.error**2, first.freedom)
    return change_between(mean_with_error(first.mean, (of_both, own)), runs[-1])


def unlike(case: Case, rows: Sequence[Series]) -> list[str]:
    """What sets a case apart from rows of the same label: `d_ff 128`."""
    others = [row.case for row in rows if row.case.label == case.label]
    return list(
        dict.fromkeys(
            f"{name} {now}"
            for other in others
            for name, _, now in case_differences(other, case)
        )
    )


def _identity(run: Report, label: str, metric: str) -> RowIdentity:
    place = reference = None
    if metric in COMPARED_TIMES and run.environment:
        place = run.environment.fingerprint, run.plan.protocol.method
    if metric == RATIO:
        reference = _is_measured(run.plan.case(run.plan.reference_of(label)))
    return RowIdentity(metric, place, _is_measured(run.plan.case(label)), reference)


def _is_measured(case: Case) -> tuple[object, ...]:
    return case.label, case.ffn, case.workload, case.arm


def _point(run: Report, label: str, metric: str) -> TimelinePoint | None:
    """A metric of a row in a run; None where the run does not know it, or was
    disturbed.
    """
    is_timed = metric in COMPARED_TIMES
    if run.failure(label) or (is_timed and is_busy(run, label)):
        return None
    value = value_in(run, label, metric)
    log = mean_in(run, label, metric) if is_timed else None
    if value is None or not value.value or (is_timed and log is None):
        return None
    # the error of a single process is not known: it is part of what moves between runs
    if log and not log.freedom:
        log = replace(log, error=0.0, freedom=1.0)
    return TimelinePoint(run, run.plan.case(label), value, log)


def _series(metric: str, points: Sequence[TimelinePoint]) -> Series:
    last = points[-1]
    logs = [point.log for point in points if point.log]
    if logs:
        change = change_since_first(logs).estimate()
        steps = steps_of(logs)
    else:
        values = [point.value.value for point in points]
        change = Estimate(value=values[-1] / values[0])
        steps = [
            Shift(at, Estimate(value=b / a))
            for at, (a, b) in enumerate(pairwise(values), start=1)
            if a != b
        ]
    return Series(
        case=last.case,
        metric=metric,
        reference=last.run.plan.reference_of(last.case.label),
        points=tuple(points),
        steps=tuple(steps),
        machine=last.run.environment if logs else None,
        change=change,
    )


def history_of_files(
    paths: Sequence[str], tell: Callable[[str], None], *, metric: str = ""
) -> Timeline:
    """The rows of saved runs over time, with the steps that are found.

    A folder is read for what it has of runs; what else it has is reported by `tell`.
    """
    if find_spec("ruptures") is None:
        raise FfnbenchError(
            "steps are found by ruptures, which is not installed",
            "pip install 'ffnbench[history]'",
        )
    runs = []
    for path in paths:
        for file, run in _runs(path, tell):
            runs.append((file, with_figures(run) if run.environment else run))
    if not runs:
        write = f"ffnbench compare relu swiglu -o {shlex.quote(os.path.join(paths[0], 'run.json'))}"
        raise FfnbenchError(
            f"no run of ffnbench is in {paths[0]!r}", f"`{write}` writes one"
        )
    timeline = timeline_of([run for _, run in runs], metric)
    if timeline.rows:
        return timeline
    if timeline.runs == 1:
        problem = "one run alone has no history"
    elif metric:
        problem = f"no two of these {len(runs)} runs have a {metric} of the same row"
    else:
        problem = f"no two of these {len(runs)} runs have the same row on the same kind of machine"
    more = f"`ffnbench check {shlex.quote(runs[0][0])} --append` adds a run of the same plan to its file"
    raise FfnbenchError(problem, more)


def _runs(path: str, tell: Callable[[str], None]) -> Iterator[tuple[str, Report]]:
    """The runs of a file, or of all files of a folder, each with the path of its
    file.
    """
    if not os.path.isdir(path):
        yield from ((path, run) for run in load_report(path).runs)
        return
    others = []
    for file in sorted(Path(path).glob("*.json")):
        try:
            if not file.is_file():  # a pipe would be waited for
                raise FfnbenchError(f"{str(file)!r} is no file")
            yield from ((str(file), run) for run in load_report(file).runs)
        except FfnbenchError:
            others.append(file.name)
    if others:
        tell(f"note: left out, as they are no runs: {', '.join(others)}")
