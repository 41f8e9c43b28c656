"""Where two variants of a sweep cross: from where on along an axis one is slower than
the other, or faster. Pure.

Read along one axis of numbers, the others held. A crossing is reported between two
points of the axis at which verdicts are on different sides. Its value is interpolated
between these two, which are its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

from ffnbench.plan.plan import Axis, Case, Group
from ffnbench.record.result import (
    CONFIDENCE,
    Crossing,
    Estimate,
    Report,
    Verdict,
)
from ffnbench.stats.rounds import Rounds, ratio_logs, rounds_of
from ffnbench.stats.verdict import verdict_of

# along this axis a ratio rises and falls with what divides the width
WIDTH = "d_ff"
SIDES = {Verdict.SLOWER: 1, Verdict.FASTER: -1}


class Point(NamedTuple):
    """The log ratio of two variants at a place of the axis. `side` is 1 where the
    ratio is decided above 0, -1 where it is decided below, else 0.
    """

    at: float
    log: float
    side: int


def crossings_of(report: Report) -> tuple[Crossing, ...]:
    """The crossings that the times of a sweep support, along the axis with most points,
    in the order of the plan.
    """
    axis, rounds = report.plan.axes[0], rounds_of(report)
    # Bonferroni's correction for all ratios without a reference
    tests = sum(comb(len(group.cases) - 1, 2) for group in report.plan.groups)
    confidence = 1 - (1 - CONFIDENCE) / (report.plan.protocol.looks * max(1, tests))
    lines: dict[tuple[object, ...], list[Group]] = {}
    for group in report.plan.groups:
        held = tuple(value for key, value in group.values.items() if key != axis.name)
        lines.setdefault(held, []).append(group)
    places: list[Crossing] = []
    for line in lines.values():
        line.sort(key=lambda group: float(group.values[axis.name]))
        places += _crossings_on(line, axis, report, rounds, confidence)
    return tuple(places)


def _crossings_on(
    line: Sequence[Group], axis: Axis, report: Report, rounds: Rounds, confidence: float
) -> Iterator[Crossing]:
    """The crossings of every two variants along a line of groups."""
    rows = [
        {case.row: case for case in _rivals(group) if report.has_time(case.label)}
        for group in line
    ]
    places = [axis.place(float(group.values[axis.name])) for group in line]
    within = {key: value for key, value in line[0].values.items() if key != axis.name}
    for than, variant in combinations((case.row for case in _rivals(line[0])), 2):
        points = [
            Point(
                at, *_compared(cases[variant], cases[than], report, rounds, confidence)
            )
            for at, cases in zip(places, rows, strict=True)
            if than in cases and variant in cases
        ]
        for before, after in side_changes(points, once=axis.name == WIDTH):
            low, value, high = map(axis.value, crossing_between(before, after))
            yield Crossing(
                axis=axis.name,
                within=within,
                variant=variant,
                than=than,
                slower=after.side > 0,
                at=Estimate(value=value, low=low, high=high),
            )


def _rivals(group: Group) -> list[Case]:
    """The cases of a group whose curves may cross: of stacks of blocks those with an
    FFN.
    """
    if not group.cases[0].in_place:
        return list(group.cases)
    return [case for case in group.cases if case.in_place and case.ffn.d_ff]


def _compared(
    case: Case, other: Case, report: Report, rounds: Rounds, confidence: float
) -> tuple[float, int]:
    """The log of the ratio of a case's time to that of another one, and its side. A
    ratio to the reference has the verdict of the report, any other one that of its
    interval of this confidence.
    """
    row = ratio_logs(rounds, case.label, other.label)
    mean, comparison = row.mean(), report.comparison(case.label)
    if mean is None or comparison is None:
        return 0.0, 0
    verdict = comparison.verdict
    if comparison.reference != other.label:
        decided = verdict_of(mean, confidence)
        verdict = Verdict.BUSY if row.disturbed else decided
    return mean.mean, SIDES.get(verdict, 0)


def side_changes(
    points: Sequence[Point], *, once: bool = False
) -> Iterator[tuple[Point, Point]]:
    """For each change of sides the last point that is decided on the old side, and the
    first one on the new side.

    With `once` only where all log ratios up to the one are on one side of 0, and all
    from the other on are on the other side: a ratio that changes sides again and again
    shows what divides a width, and no crossing.
    """
    decided = [point for point in points if point.side]
    for before, after in pairwise(decided):
        is_single = all(
            point.log * before.side > 0 for point in points if point.at <= before.at
        ) and all(
            point.log * after.side > 0 for point in points if point.at >= after.at
        )
        if before.side != after.side and (is_single or not once):
            yield before, after


def crossing_between(before: Point, after: Point) -> tuple[float, float, float]:
    """Where the straight line between two points passes 0, between their places."""
    share = before.log / (before.log - after.log)
    return before.at, before.at + share * (after.at - before.at), after.at
