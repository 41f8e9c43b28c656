"""The rows of many runs over time: which runs are of one row on one kind of machine, and where it has changed. Pure.

A row is what is measured, and how: its label alone does not make it one. Exact figures are those of any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ffnbench.extras.history.steps import Shift, steps_of
from ffnbench.gate.side_by_side import COMPARED, RATIO, TIMED, case_differences, is_busy, mean_in, value_in
from ffnbench.metrics import LATENCY
from ffnbench.plan import Case
from ffnbench.result import Environment, Estimate, Report
from ffnbench.stats.history import Change, change_between, history_of
from ffnbench.stats.interval import Mean, VarianceEstimate, sum_of_variances


@dataclass(frozen=True, slots=True)
class Point:
    """A row in one run; `log` is of what is timed."""

    run: Report
    value: Estimate
    log: Mean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of a case in the runs of one kind of machine, the oldest first; of what is exact `machine` is None.
    `change` is from the first run to the last one.
    """

    case: Case
    metric: str
    reference: str
    machine: Environment | None
    points: tuple[Point, ...]
    steps: tuple[Shift, ...]
    change: Estimate


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of so many runs, those with steps first, and the names of those that a single run has."""

    runs: int
    rows: tuple[Series, ...]
    alone: tuple[str, ...]

    @property
    def steps(self) -> list[tuple[Series, Shift]]:
        """All steps, what has grown most first."""
        return sorted(((row, step) for row in self.rows for step in row.steps), key=lambda one: -one[1].change.value)


def timeline_of(runs: Sequence[Report], metric: str = "") -> Timeline:
    """Runs with their figures, in any order, each once. Without a metric: ratios, seconds of what has none, and of what
    is exact what has changed, or is not timed.
    """
    once = {
        (run.created, run.environment and run.environment.fingerprint, run.samples[:1]): run for run in runs
    }.values()
    found: dict[tuple[Any, ...], list[Point]] = {}
    for run in sorted(once, key=lambda run: run.created):
        for label in (case.label for case in run.plan.shown):
            for one in (metric,) if metric else COMPARED:
                if point := _point(run, label, one):
                    found.setdefault(_identity(run, label, one), []).append(point)
    rows = {key: _row(key[0], key[1], of) for key, of in found.items() if len(of) > 1}
    if not metric:
        ratios = {key[1:4] for key in rows if key[0] == RATIO}
        timed = {key[1] for key in found if key[0] in TIMED}
        rows = {
            key: row for key, row in rows.items()
            if (key[1:4] not in ratios if row.metric == LATENCY else row.machine or row.steps or key[1] not in timed)
        }  # fmt: skip
    followed = sorted(rows.values(), key=lambda row: not row.steps)
    shown = {key[3] for key in rows}
    single = (of[-1].run.plan.case(key[1]) for key, of in found.items() if key[3] not in shown)
    alone = dict.fromkeys(" ".join([case.label, *unlike(case, followed)]) for case in single)
    return Timeline(len(once), tuple(followed), tuple(alone))


def change_since_first(runs: Sequence[Mean]) -> Change:
    """From the first run to the last. What moves between runs is learnt from all but the last, and counts for both."""
    first = runs[0]
    between = history_of(runs[:-1]).between
    both = VarianceEstimate(2 * between.variance, between.freedom)
    error = sum_of_variances((both, VarianceEstimate(first.error**2, first.freedom)))
    return change_between(Mean(first.mean, math.sqrt(error.variance), error.freedom), runs[-1])


def unlike(case: Case, rows: Sequence[Series]) -> list[str]:
    """What sets a case apart from rows of the same label: `d_ff 128`."""
    others = [row.case for row in rows if row.case.label == case.label]
    return list(dict.fromkeys(f"{what} {now}" for other in others for what, _, now in case_differences(other, case)))


def _identity(run: Report, label: str, metric: str) -> tuple[Any, ...]:
    """What two runs that have one row have in common: metric and label, where and what it is, and against what."""
    here = (run.environment.fingerprint, run.plan.protocol.method) if metric in TIMED and run.environment else None
    cases = [run.plan.case(one) for one in (label, run.plan.reference_of(label))][: 1 + (metric == RATIO)]
    what = [(case.label, case.ffn, case.workload, case.arm) for case in cases]
    return (metric, label, here, *what)


def _point(run: Report, label: str, metric: str) -> Point | None:
    """A metric of a row in a run; None where the run does not know it, or was disturbed."""
    if run.failure(label) or (metric in TIMED and is_busy(run, label)):
        return None
    value, log = value_in(run, label, metric), mean_in(run, label, metric) if metric in TIMED else None
    if value is None or not value.value or (metric in TIMED and log is None):
        return None
    # the error of a single process is not known: it is part of what moves between runs
    return Point(run, value, replace(log, error=0.0, freedom=1.0) if log and not log.freedom else log)


def _row(metric: str, label: str, points: Sequence[Point]) -> Series:
    last, logs = points[-1].run, [point.log for point in points if point.log]
    if logs:
        change = change_since_first(logs).estimate()
        steps = steps_of(logs)
    else:
        values = [point.value.value for point in points]
        change = Estimate(value=values[-1] / values[0])
        steps = [Shift(at, Estimate(value=b / a)) for at, (a, b) in enumerate(pairwise(values), start=1) if a != b]
    return Series(
        case=last.plan.case(label), metric=metric, reference=last.plan.reference_of(label), points=tuple(points),
        steps=tuple(steps), machine=last.environment if logs else None, change=change,
    )  # fmt: skip
