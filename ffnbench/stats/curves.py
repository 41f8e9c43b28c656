"""Where two variants of a sweep cross: from where on along an axis one is slower than
the other, or faster. Pure.

Read along one axis of numbers, the others held. A crossing is reported where both of
its sides are decided. Its interval holds the places at which the band around the
interpolated curve contains 0. The band allows for what the curve bends by between two
points of the axis, as far as their neighbours show it (benchmarks/crossings.py
simulates it).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TypeVar

from ffnbench.plan.plan import LEAST_POINTS, Axis, Group
from ffnbench.record.result import (
    CONFIDENCE,
    Crossing,
    Crossings,
    Estimate,
    Report,
    Verdict,
)
from ffnbench.stats.interval import Mean, VarianceEstimate, mean_with_error
from ffnbench.stats.rounds import ratio_logs, rounds_of, row_logs
from ffnbench.stats.verdict import control_slack, verdict_of

# along this axis a ratio rises and falls with what divides the width
WIDTH = "d_ff"
GRID_STEPS = 100  # of the search for a crossing between two points of the axis

SweepLine = list[Group]  # cells of a sweep along its axis, all else held


@dataclass(frozen=True, slots=True)
class Place:
    """The log ratio of two variants at a place of an axis. `side` is the decided side
    of 0: -1 faster, 1 slower, 0 where neither is decided.
    """

    at: float
    mean: Mean
    side: int

    @property
    def log(self) -> float:
        """The log ratio."""
        return self.mean.mean


def crossings_of(report: Report) -> Crossings | None:
    """The crossings that the times of a sweep support, along the axis with most points;
    None without an axis.
    """
    if not report.comparisons or not report.plan.axes:
        return None
    axis = report.plan.axes[0]
    lines = _lines(report, axis)
    pairs, slack = pairs_of(report), control_slack(rounds_of(report))
    crossings: list[Crossing] = []
    for line in lines:
        crossings += _crossings_on(line, axis, report, pairs, slack)
    return Crossings(axis=axis, places=tuple(crossings))


def _lines(report: Report, axis: Axis) -> list[SweepLine]:
    """The cells along the axis, for each combination of the values of all others."""
    lines: dict[tuple[object, ...], SweepLine] = defaultdict(list)
    for group in report.plan.groups:
        held = tuple(value for key, value in group.values.items() if key != axis.name)
        lines[held].append(group)
    for line in lines.values():
        line.sort(key=lambda group: float(group.values[axis.name]))
    return list(lines.values())


def _crossings_on(
    line: SweepLine, axis: Axis, report: Report, pairs: PairsByLabels, slack: float
) -> Iterator[Crossing]:
    """The crossings of every two variants.

    Along widths a crossing counts only if the two change sides once: a ratio that
    changes sides again and again shows what divides the width, and no crossing.
    """
    # of each variant, by the value of the axis: the label of its case if it has a time
    labels: dict[str, dict[float, str]] = {}
    for group in line:
        x = float(group.values[axis.name])
        for case in group.cases:
            of_variant = labels.setdefault(case.row, {})
            if report.has_time(case.label):
                of_variant[x] = case.label
    within = {key: value for key, value in line[0].values.items() if key != axis.name}
    for other, variant in combinations(labels, 2):
        places = []
        for x, label in labels[variant].items():
            pair = pairs.get((label, labels[other].get(x, "")))
            if pair:
                places.append(Place(axis.place(x), pair.mean, pair.side))
        for before, after in side_changes(places):
            if axis.name == WIDTH and not changes_side_once(places, before, after):
                continue
            value, low, high = crossing_between(places, before, after, slack)
            yield Crossing(
                within=within,
                variant=variant,
                than=other,
                slower=places[after].side > 0,
                at=Estimate(
                    value=axis.value(value), low=axis.value(low), high=axis.value(high)
                ),
            )


def side_changes(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """For each change of sides the numbers of two places: the last one that is decided
    on the old side, and the first one that is decided on the new side.
    """
    decided = [number for number, place in enumerate(places) if place.side]
    for before, after in pairwise(decided):
        if places[before].side != places[after].side:
            yield before, after


def changes_side_once(places: Sequence[Place], before: int, after: int) -> bool:
    """Whether all means up to the place `before` are on one side of 0, and all means
    from the place `after` on are on the other side.
    """
    side = places[before].log
    return all(place.log * side > 0 for place in places[:before]) and all(
        place.log * side < 0 for place in places[after:]
    )


def crossing_between(
    places: Sequence[Place], before: int, after: int, slack: float = 0.0
) -> tuple[float, float, float]:
    """Where the interpolated curve passes 0 between two of its places, and both ends of
    the interval.

    The ends are the outermost points of a fine grid between the two places at which the
    band around the curve may hold 0. Where there are too few places to show how the
    curve bends, they are the two places themselves.
    """
    zeros, grid = [], []
    for left, right in pairwise(places[before : after + 1]):
        length, fall = right.at - left.at, left.log - right.log
        grid += [left.at + length * step / GRID_STEPS for step in range(GRID_STEPS)]
        if left.log * right.log <= 0 and fall:
            zeros.append(left.at + length * left.log / fall)
    grid = sorted([*grid, *zeros, places[after].at])
    middle = zeros[len(zeros) // 2]
    if len(places) < LEAST_POINTS:
        return middle, grid[0], grid[-1]
    inside = [
        n
        for n, at in enumerate(grid)
        if at in zeros or _band_holds_zero(places, before, at, slack)
    ]
    # one step further out: the band leaves 0 between two points of the grid
    low = max(0, inside[0] - 1)
    high = min(len(grid) - 1, inside[-1] + 1)
    return middle, grid[low], grid[high]


def _band_holds_zero(
    places: Sequence[Place], start: int, at: float, slack: float
) -> bool:
    """Whether the band around the interpolated curve holds 0 at `at`, which is not to
    the left of the place `start`.

    The half-width of the band is that of the interval, the slack, and the most that a
    curve of the bend seen here can be off a straight line.
    """
    number = start
    while at > places[number + 1].at:
        number += 1
    left, right = places[number], places[number + 1]
    share = (at - left.at) / (right.at - left.at)
    value, variances = 0.0, []
    for weight, place in ((1 - share, left), (share, right)):
        value += weight * place.log
        if place.mean.freedom > 0:
            variances.append(
                VarianceEstimate((weight * place.mean.error) ** 2, place.mean.freedom)
            )
    curve = mean_with_error(value, variances)
    bend = _bend(places, number) + _bend(places, number + 1)
    off_line = bend * (at - left.at) * (right.at - at)
    return abs(curve.mean) <= curve.half_width(CONFIDENCE) + slack + off_line


def _bend(places: Sequence[Place], number: int) -> float:
    """By how much the slope changes at a place for each unit of the axis, as far as
    that is more than chance; 0 at the first and the last place.
    """
    if not 0 < number < len(places) - 1:
        return 0.0
    left, middle, right = places[number - 1 : number + 2]
    before, after = middle.at - left.at, right.at - middle.at
    change = (right.log - middle.log) / after - (middle.log - left.log) / before
    chance = math.hypot(
        left.mean.error / before,
        middle.mean.error * (1 / before + 1 / after),
        right.mean.error / after,
    )
    return max(0.0, abs(change) - chance) * 2 / (right.at - left.at)


@dataclass(frozen=True, slots=True)
class Pair:
    """The log of the ratio of one case's time to another's, and the verdict on it."""

    mean: Mean
    verdict: Verdict

    @property
    def side(self) -> int:
        """1 where it is decided slower, -1 where it is decided faster, else 0."""
        return {Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(self.verdict, 0)

    @property
    def inverse(self) -> Pair:
        """The pair in the other order: its ratio is the inverse."""
        opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
        return Pair(
            replace(self.mean, mean=-self.mean.mean),
            opposite.get(self.verdict, self.verdict),
        )


K = TypeVar("K")
# by the labels of two cases, the one whose time is divided first
PairsByLabels = dict[tuple[str, str], Pair]


def pairs_of(report: Report) -> PairsByLabels:
    """The pairs of every two cases of a cell whose times are known, in both orders.

    The pairs with a reference have the verdicts of the report; those without one are
    decided here, with Bonferroni's correction for all of them.
    """
    rounds = rounds_of(report)
    pairs: PairsByLabels = {}
    without_reference: dict[tuple[str, str], Mean] = {}
    for group in report.plan.groups:
        labels = [case.label for case in group.cases if report.has_time(case.label)]
        others = [label for label in labels if label != group.reference]
        if group.reference in labels:
            for label in others:
                comparison, mean = (
                    report.comparison(label),
                    row_logs(rounds, label).mean(),
                )
                if mean and comparison and comparison.verdict is not Verdict.BUSY:
                    pairs[label, group.reference] = Pair(mean, comparison.verdict)
        for first, second in combinations(others, 2):
            row = ratio_logs(rounds, second, first)
            mean = row.mean()
            if mean and not row.disturbed:
                without_reference[second, first] = mean
    slack, looks = control_slack(rounds), report.plan.protocol.looks
    tests = looks * max(1, len(without_reference))
    pairs |= {
        labels: Pair(mean, verdict_of(mean, 1 - (1 - CONFIDENCE) / tests, slack))
        for labels, mean in without_reference.items()
    }
    inverse = {(other, name): pair.inverse for (name, other), pair in pairs.items()}
    return {**pairs, **inverse}


def pareto_front(names: Iterable[K], *sides: Mapping[tuple[K, K], int]) -> list[K]:
    """The names on the Pareto front of several figures.

    Each figure is given by its `sides` of every two names, in both orders: 1 where the
    first is decided worse, -1 where it is decided better, else 0. A name is on the
    front unless another one is decided better in one figure, and worse in none.
    """
    candidates = list(names)

    def is_dominated(name: K, other: K) -> bool:
        known = [
            of_figure[name, other] for of_figure in sides if (name, other) in of_figure
        ]
        return any(side > 0 for side in known) and all(side >= 0 for side in known)

    return [
        name
        for name in candidates
        if not any(is_dominated(name, other) for other in candidates if other != name)
    ]
