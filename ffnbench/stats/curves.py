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

from ffnbench.plan import LEAST_POINTS, Axis, Group
from ffnbench.result import CONFIDENCE, Crossing, Crossings, Estimate, Report, Verdict
from ffnbench.stats.interval import Mean, VarianceEstimate, mean_with_error
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import control_slack, verdicts

WIDTH = "d_ff"  # an axis along which times go up and down with what divides the width
FINE = 100  # steps of the search between two points of the axis

SweepLine = list[Group]  # cells of a sweep along its axis, all else held


@dataclass(frozen=True, slots=True)
class Place:
    """The log ratio of two variants at a place of an axis; `side` is that of 0 which is
    decided: -1, 1, 0 for none.
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
    pairs, slack = pairs_of(report), control_slack(report)
    crossings: list[Crossing] = []
    for line in lines:
        crossings += _crossings_on(line, axis, report, pairs, slack)
    return Crossings(axis=axis, lines=len(lines), places=tuple(crossings))


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

    Along widths only where two variants change sides once: else their ratio is a saw,
    of what divides the width.
    """
    # by variant: where its time is known, the label of its case
    labels: dict[str, dict[float, str]] = {}
    for group in line:
        x = float(group.values[axis.name])
        for case in group.cases:
            of_variant = labels.setdefault(group.variant_of(case), {})
            if report.has_time(case.label):
                of_variant[x] = case.label
    within = {key: value for key, value in line[0].values.items() if key != axis.name}
    for other, variant in combinations(labels, 2):
        places = []
        for x, label in labels[variant].items():
            pair = pairs.get((label, labels[other].get(x, "")))
            if pair:
                places.append(Place(axis.place(x), pair.mean, pair.side))
        for first, last in turns(places):
            if axis.name == WIDTH and not is_once(places, first, last):
                continue
            value, low, high = where(places, first, last, slack)
            yield Crossing(
                within=within,
                variant=variant,
                than=other,
                slower=places[last].side > 0,
                at=Estimate(
                    value=axis.value(value), low=axis.value(low), high=axis.value(high)
                ),
            )


def turns(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """The last place that is decided on one side and the first that is decided on the
    other, for each change.
    """
    decided = [number for number, place in enumerate(places) if place.side]
    for last, first in pairwise(decided):
        if places[last].side != places[first].side:
            yield last, first


def is_once(places: Sequence[Place], first: int, last: int) -> bool:
    """Whether all means up to the first place are on one side of 0, and all from the
    last place on on the other.
    """
    side = places[first].log
    before = all(place.log * side > 0 for place in places[:first])
    return before and all(place.log * side < 0 for place in places[last:])


def where(
    places: Sequence[Place], first: int, last: int, slack: float = 0.0
) -> tuple[float, float, float]:
    """Where the curve passes 0 between two of its places, with both ends of the
    interval.

    These are the outermost points of a fine grid between the two at which the band may
    hold 0; the whole stretch between, where there are too few places to show how the
    curve bends.
    """
    zeros, grid = [], []
    for left, right in pairwise(places[first : last + 1]):
        length, fall = right.at - left.at, left.log - right.log
        grid += [left.at + length * step / FINE for step in range(FINE)]
        if left.log * right.log <= 0 and fall:
            zeros.append(left.at + length * left.log / fall)
    grid = sorted([*grid, *zeros, places[last].at])
    middle = zeros[len(zeros) // 2]
    if len(places) < LEAST_POINTS:
        return middle, grid[0], grid[-1]
    inside = [
        n
        for n, at in enumerate(grid)
        if at in zeros or _band_holds_zero(places, first, at, slack)
    ]
    low = max(0, inside[0] - 1)
    high = min(len(grid) - 1, inside[-1] + 1)
    return middle, grid[low], grid[high]


def _band_holds_zero(
    places: Sequence[Place], first: int, at: float, slack: float
) -> bool:
    """Whether 0 is within the band of the interpolated curve there; `first` is a place
    that is not after it.
    """
    number = first
    while at > places[number + 1].at:
        number += 1
    left, right = places[number], places[number + 1]
    share = (at - left.at) / (right.at - left.at)
    value, parts = 0.0, []
    for weight, place in ((1 - share, left), (share, right)):
        value += weight * place.log
        if place.mean.freedom > 0:
            parts.append(
                VarianceEstimate((weight * place.mean.error) ** 2, place.mean.freedom)
            )
    curve = mean_with_error(value, parts)
    bend = _bend(places, number) + _bend(places, number + 1)
    bent = bend * (at - left.at) * (right.at - at)
    return abs(curve.mean) <= curve.half_width(CONFIDENCE) + slack + bent


def _bend(places: Sequence[Place], number: int) -> float:
    """By how much the slope changes at a place, for each unit of the axis: what is
    beyond chance, 0 at both ends.
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
    """The log of the ratio of one case's time to another's, by label, and what is
    decided of it.
    """

    mean: Mean
    verdict: Verdict

    @property
    def side(self) -> int:
        """1 where it is decided slower, -1 where it is decided faster, else 0."""
        return {Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(self.verdict, 0)

    @property
    def inverse(self) -> Pair:
        """The other one's ratio to this one."""
        opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
        return Pair(
            replace(self.mean, mean=-self.mean.mean),
            opposite.get(self.verdict, self.verdict),
        )


K = TypeVar("K")
PairsByLabels = dict[tuple[str, str], Pair]


def pairs_of(report: Report) -> PairsByLabels:
    """Both orders of every two cases of a cell whose times are known."""
    table = table_of(report)
    pairs: PairsByLabels = {}
    without_reference: dict[tuple[str, str], Mean] = {}
    for group in report.plan.groups:
        labels = [case.label for case in group.cases if report.has_time(case.label)]
        others = [label for label in labels if label != group.reference]
        if group.reference in labels:
            for label in others:
                comparison, mean = report.comparison(label), table.row(label).mean()
                if mean and comparison and comparison.verdict is not Verdict.BUSY:
                    pairs[label, group.reference] = Pair(mean, comparison.verdict)
        for first, second in combinations(others, 2):
            row = table.ratio(second, first)
            mean = row.mean()
            if mean and not row.disturbed:
                without_reference[second, first] = mean
    decided = verdicts(
        without_reference, control_slack(report), report.plan.protocol.looks
    )
    pairs |= {
        labels: Pair(mean, decided[labels][0])
        for labels, mean in without_reference.items()
    }
    return in_both_orders(pairs)


def in_both_orders(pairs: Mapping[tuple[K, K], Pair]) -> dict[tuple[K, K], Pair]:
    """Pairs as they are, and the other way round."""
    inverse = {(other, name): pair.inverse for (name, other), pair in pairs.items()}
    return {**pairs, **inverse}


def sides_of(pairs: Mapping[tuple[K, K], Pair]) -> dict[tuple[K, K], int]:
    """Which of each two is decided slower."""
    return {names: pair.side for names, pair in pairs.items()}


def pareto_front(names: Iterable[K], *families: Mapping[tuple[K, K], int]) -> list[K]:
    """The Pareto front of several figures. Of each, for every two names in both orders:
    1 where the first is decided worse, -1 where it is decided better, else 0.

    A name is on it unless some other is decided better in one figure and not decided
    worse in any.
    """
    candidates = list(names)

    def is_dominated(name: K, other: K) -> bool:
        sides = [worse[name, other] for worse in families if (name, other) in worse]
        return any(side > 0 for side in sides) and all(side >= 0 for side in sides)

    return [
        name
        for name in candidates
        if not any(is_dominated(name, other) for other in candidates if other != name)
    ]
