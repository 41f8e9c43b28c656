"""The rows of many runs over time: which runs are of one row on one kind of machine, and where that has changed. Pure.

A row is what is measured, and how; its label alone does not make it one. Exact figures are those of any machine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from ffnbench.gate.history import history_of
from ffnbench.gate.side_by_side import COMPARED, RATIO, TIMED, is_busy, mean_in, value_in
from ffnbench.gate.steps import steps_of
from ffnbench.metrics import LATENCY
from ffnbench.plan import Case
from ffnbench.result import Environment, Estimate, Report
from ffnbench.stats.interval import CONFIDENCE, Mean

UNSURE = Mean(0.0, 0.0, 1.0)  # of a run whose processes show no error: what moves between runs has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A row in one run; `log` is of what is timed."""

    run: Report
    value: Estimate
    log: Mean | None = None

    @property
    def environment(self) -> Environment | None:
        """Where it was measured."""
        return self.run.environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """From the run at `at` on a row has another level: its change, without an interval where that is exact."""

    at: int
    change: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one case in the runs of one kind of machine, the oldest first; `change` is from the first to the
    last of them.
    """

    case: Case
    metric: str
    reference: str
    points: tuple[Point, ...]
    steps: tuple[Shift, ...]
    change: Estimate

    @property
    def timed(self) -> bool:
        """Whether it has chance in it."""
        return self.metric in TIMED

    @property
    def levels(self) -> list[tuple[int, int, float]]:
        """Where it lay: from which run to before which, and the geometric mean of these."""
        ends = [0, *(step.at for step in self.steps), len(self.points)]
        return [(a, b, math.exp(sum(math.log(p.value.value) for p in self.points[a:b]) / (b - a)))
                for a, b in pairwise(ends)]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The rows that several runs have, and the labels of those that a single run has."""

    runs: int
    rows: tuple[Row, ...]
    alone: tuple[str, ...]


def timeline_of(runs: Sequence[Report], metric: str = "") -> Timeline:
    """Runs with their figures, in any order. Without a metric: ratios, seconds of what has none, and of what is exact
    what has changed.
    """
    ordered = sorted({_same(run): run for run in runs}.values(), key=lambda run: run.created)
    found: dict[Hashable, list[tuple[Case, str, str, Point]]] = {}
    for run in ordered:
        for case in run.plan.shown:
            for one in (metric,) if metric else COMPARED:
                if point := _point(run, case.label, one):
                    told = case, one, run.plan.reference_of(case.label), point
                    found.setdefault(_identity(run, case, one), []).append(told)
    rows = [_row([one[-1] for one in of], *of[-1][:3]) for of in found.values() if len(of) > 1]
    if not metric:
        compared = {(row.case.label, _of_machine(row)) for row in rows if row.metric == RATIO}
        timed = {case.label for of in found.values() for case, one, *_ in of if one in TIMED}
        rows = [row for row in rows if _is_told(row, compared, timed)]
    told = {row.case.label for row in rows}
    alone = [case.label for run in ordered for case in run.plan.shown if case.label not in told]
    known = {case.label for of in found.values() for case, *_ in of}
    return Timeline(runs=len(ordered), rows=tuple(rows), alone=tuple(dict.fromkeys(one for one in alone if one in known)))


def _same(run: Report) -> Hashable:
    """What two copies of a run have in common, as a baseline and its later self hold it."""
    return run.created, len(run.samples), run.samples[:1]


def _is_told(row: Row, compared: Set[tuple[str, str]], timed: Set[str]) -> bool:
    """Not seconds where there are ratios, nor what is exact and as it was of a row that is timed."""
    if row.metric == LATENCY:
        return (row.case.label, _of_machine(row)) not in compared
    return row.timed or bool(row.steps) or row.case.label not in timed


def _of_machine(row: Row) -> str:
    here = row.points[0].environment
    return here.fingerprint if here else ""


def _identity(run: Report, case: Case, metric: str) -> Hashable:
    """What has to be equal for two runs to have one row: what it is, and of what is timed where and how."""
    found: list[Hashable] = [metric, case.label, case.ffn, case.workload, case.arm]
    if metric in TIMED and run.environment:
        found += [run.environment.fingerprint, run.plan.protocol.method]
    if metric == RATIO:
        other = run.plan.case(run.plan.reference_of(case.label))
        found += [other.label, other.ffn, other.workload, other.arm]
    return tuple(found)


def _point(run: Report, label: str, metric: str) -> Point | None:
    """A metric of a row in a run; None where the run does not know it, or was disturbed."""
    if metric not in TIMED:
        value = value_in(run, label, metric)
        return Point(run=run, value=value) if value and value.value and not run.failure(label) else None
    log = None if is_busy(run, label) or run.suspect(label) else mean_in(run, label, metric)
    if log is None:
        return None
    interval = log.interval(CONFIDENCE)
    low, high = map(math.exp, interval) if interval else (None, None)
    value = Estimate(value=math.exp(log.mean), low=low, high=high)
    return Point(run=run, value=value, log=log if interval else replace(UNSURE, mean=log.mean))


def _row(points: Sequence[Point], case: Case, metric: str, reference: str) -> Row:
    logs = [point.log for point in points if point.log]
    if logs:
        change = history_of(logs[:-1]).changes(logs[-1])[-1].estimate()
        steps = [Shift(at=step.at, change=step.change.estimate()) for step in steps_of(logs)]
    else:
        values = [point.value.value for point in points]
        change = Estimate(value=values[-1] / values[0])
        steps = [Shift(at=at, change=Estimate(value=b / a)) for at, (a, b) in enumerate(pairwise(values), 1) if a != b]
    return Row(
        case=case, metric=metric, reference=reference, points=tuple(points), steps=tuple(steps), change=change
    )  # fmt: skip
