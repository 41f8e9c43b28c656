"""The rows of many runs over time: which runs have the same row on the same kind of
machine, and at which run it steps from one level to another. The runs are read from
files and folders.

Two runs have the same row if the same is measured in the same way: the same label is
not enough. Exact figures do not depend on the machine.

Steps are searched by ruptures (Truong, Oudre, Vayatis 2020): PELT over absolute
deviations from medians, which a single odd run does not move. `python
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
from ffnbench.report.files.store import read_report
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

FEWEST_RUNS = 2  # of a level: one run by itself is no step
PENALTY = 6.0  # for a further level, in units of the scatter between runs


@dataclass(frozen=True, slots=True)
class LevelStep:
    """A step of a row: from the run at place `at` on it has another level. `change` is
    the ratio of the two levels, without an interval where it is exact.
    """

    at: int
    change: Estimate


def steps_of(runs: Sequence[Mean]) -> list[LevelStep]:
    """The steps of a row, whose runs are given from the oldest on. A step counts if the
    95 % interval of its change does not contain "unchanged".
    """
    if len(runs) < 2 * FEWEST_RUNS:
        return []
    import numpy as np
    import ruptures  # type: ignore[import-untyped,import-not-found,unused-ignore]

    series = np.array([[run.mean] for run in runs]) / scatter_of_runs(runs)
    ends = ruptures.Pelt(model="l1", min_size=FEWEST_RUNS, jump=1).fit_predict(
        series, PENALTY
    )
    levels = [
        history_of(runs[start:end]).over_runs for start, end in pairwise([0, *ends])
    ]
    steps = []
    for at, (old, new) in zip(ends, pairwise(levels), strict=False):
        change = change_between(old, new)
        if change.difference.p_value() < 1 - CONFIDENCE:
            steps.append(LevelStep(at, change.estimate()))
    return steps


def scatter_of_runs(runs: Sequence[Mean]) -> float:
    """The scatter of runs about their level: a standard deviation of logs.

    It is estimated from absolute differences of successive runs, which a step and odd
    runs move less than squares. It is drawn towards a prior: that of the runs of a
    baseline, with the errors of these runs themselves.
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
    """A row in one run. `log` is the mean of logs where it is timed, None where it is
    exact.
    """

    run: Report
    case: Case
    value: Estimate
    log: Mean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a case in the runs of one kind of machine, the oldest first.

    `machine` is None for an exact metric. `change` is the ratio of the last run to the
    first one.
    """

    case: Case
    metric: str
    reference: str
    machine: Environment | None
    points: tuple[TimelinePoint, ...]
    steps: tuple[LevelStep, ...]
    change: Estimate

    @property
    def is_exact(self) -> bool:
        """Whether its metric is the same on every machine."""
        return self.machine is None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of so many runs, those with steps first, and the names of the rows that
    only one run has.
    """

    runs: int
    rows: tuple[Series, ...]
    in_one_run: tuple[str, ...]

    @property
    def steps(self) -> list[tuple[Series, LevelStep]]:
        """All steps with their rows, the largest increase first."""
        steps = [(row, step) for row in self.rows for step in row.steps]
        return sorted(steps, key=lambda item: -item[1].change.value)


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """What is equal in two runs that have the same row.

    `place` is the kind of machine and the method, None for an exact metric. `case` is
    what is measured, and `reference` what it is divided by, None unless the metric is
    the ratio.
    """

    metric: str
    place: tuple[str, int] | None
    case: tuple[object, ...]
    reference: tuple[object, ...] | None


def timeline_of(runs: Sequence[Report], metric: str = "") -> Timeline:
    """The timeline of runs with figures, which may be in any order and twice.

    Without a `metric` it has the rows of `_telling_rows`.
    """
    by_origin = {}  # two files may hold the same run
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
    in_one_run: dict[str, None] = {}  # a set that keeps its order
    for identity, of in points.items():
        if identity.case not in shown:
            case = of[-1].case
            name = " ".join([case.label, *differences_from(case, followed)])
            in_one_run[name] = None
    return Timeline(len(unique), tuple(followed), tuple(in_one_run))


def _telling_rows(
    rows: Mapping[RowIdentity, Series], timed: Collection[object]
) -> dict[RowIdentity, Series]:
    """The rows that are shown if no metric was asked for: all ratios, the seconds of
    cases without a ratio, and exact figures that have changed or whose case is not
    timed.
    """
    with_ratio = {
        (identity.place, identity.case) for identity in rows if identity.metric == RATIO
    }
    telling = {}
    for identity, row in rows.items():
        if identity.metric == RATIO:
            is_telling = True
        elif identity.metric == LATENCY:
            is_telling = (identity.place, identity.case) not in with_ratio
        else:
            is_telling = bool(row.steps) or identity.case[0] not in timed
        if is_telling:
            telling[identity] = row
    return telling


def change_since_first(runs: Sequence[Mean]) -> Change:
    """The change from the first run to the last. The variance between runs is learnt
    from all but the last one, and is added for both.
    """
    first = runs[0]
    between = history_of(runs[:-1]).between
    of_both = VarianceEstimate(2 * between.variance, between.freedom)
    own = VarianceEstimate(first.error**2, first.freedom)
    return change_between(mean_with_error(first.mean, (of_both, own)), runs[-1])


def differences_from(case: Case, rows: Sequence[Series]) -> list[str]:
    """In what a case differs from rows of the same label: `d_ff 128`."""
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
        reference = _what_is_measured(run.plan.case(run.plan.reference_of(label)))
    return RowIdentity(
        metric, place, _what_is_measured(run.plan.case(label)), reference
    )


def _what_is_measured(case: Case) -> tuple[object, ...]:
    """What has to be equal in two cases that are the same row; the label is first."""
    return case.label, case.ffn, case.workload, case.arm


def _point(run: Report, label: str, metric: str) -> TimelinePoint | None:
    """A metric of a row in a run; None where the run has not measured it, or was
    disturbed.
    """
    is_timed = metric in COMPARED_TIMES
    if run.failure(label) or (is_timed and is_busy(run, label)):
        return None
    value = value_in(run, label, metric)
    log = mean_in(run, label, metric) if is_timed else None
    if value is None or not value.value or (is_timed and log is None):
        return None
    # the error of a single process is not known: the variance between runs contains it
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
            LevelStep(at, Estimate(value=b / a))
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
    """The rows of saved runs over time, with their steps.

    All runs in a folder are read; `tell` is told of its other files. Raises
    FfnbenchError where no two runs have the same row.
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
        yield from ((path, run) for run in read_report(path).runs)
        return
    others = []
    for file in sorted(Path(path).glob("*.json")):
        try:
            if not file.is_file():  # a pipe would be waited for
                raise FfnbenchError(f"{str(file)!r} is no file")
            yield from ((str(file), run) for run in read_report(file).runs)
        except FfnbenchError:
            others.append(file.name)
    if others:
        tell(f"note: left out, as they are no runs: {', '.join(others)}")
