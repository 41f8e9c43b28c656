"""What people look for in a sweep: where two variants cross, cliffs of alignment, where latency stops being flat. Pure.

All of it is read along one axis of numbers, the others held. No place is told that is not decided on both of its sides.
It has an interval: the places at which the band around the interpolated curve holds the value looked for, with what the
curve bends by between two points of the axis, as far as their neighbours show it. A cliff is of all points of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from statistics import linear_regression
from typing import TypeVar

from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan import Case, Group, Plan
from ffnbench.result import Estimate, Report
from ffnbench.stats.ceilings import needed_by
from ffnbench.stats.interval import CONFIDENCE, Mean, Part, student, whole
from ffnbench.stats.pairs import Pair, Pairs, is_told, pairs_of
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import SAME_WITHIN, control_slack, holm

FEWEST = 3  # points of an axis that is drawn as a curve; of widths that a number divides, and of those it does not
WIDTH, TOKENS = "d_ff", ("seq_len", "batch")  # the axes of cliffs, and of knees
FLAT = 0.5  # between the slope of a latency that does not grow with the tokens, and of one that grows as they do
LEVEL = 1.25  # times from a point of a flat part to the next, at most
FINE = 100  # looks between two points of the axis
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of numbers, smallest first; logarithmic where its steps are by factors rather than equal."""

    name: str
    values: tuple[float, ...]

    @property
    def logarithmic(self) -> bool:
        """Whether the steps are more alike as factors than as differences."""
        if self.values[0] <= 0 or len(self.values) < FEWEST:
            return False
        steps = [b - a for a, b in pairwise(self.values)]
        factors = [math.log(b / a) for a, b in pairwise(self.values)]
        return max(steps) * min(factors) > max(factors) * min(steps) * (1 + 1e-9)

    def place(self, value: float) -> float:
        """Where a value stands on its scale."""
        return math.log(value) if self.logarithmic else value

    def value(self, place: float) -> float:
        """What stands at a place."""
        return math.exp(place) if self.logarithmic else place


@dataclass(frozen=True, slots=True)
class Place:
    """The mean at a place of an axis, and the side of what is looked for that is decided: -1, 1, or 0 for none."""

    at: float
    mean: Mean
    side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where a variant becomes slower than one that stands before it in the plan, or where not `slower` faster, as the
    axis grows. `within` are the values of the other axes.
    """

    within: Mapping[str, object]
    variant: str
    than: str
    slower: bool
    at: Estimate


@dataclass(frozen=True, slots=True)
class Cliff:
    """How many times as long a FLOP takes at the widths that `multiple` does not divide, or at those that it
    `divides`: at `values`.
    """

    within: Mapping[str, object]
    variant: str
    multiple: int
    divides: bool
    values: tuple[float, ...]
    times: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where latency stops being flat in the axis: it grows by the square root of it there. It is flat from `since` on,
    a point of the axis.
    """

    within: Mapping[str, object]
    variant: str
    since: float
    at: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found along an axis, in the order of the plan; `lines` are how often it was looked for, once for each
    combination of the values of the other axes.
    """

    axis: Axis
    lines: int
    crossings: tuple[Crossing, ...] = ()
    cliffs: tuple[Cliff, ...] = ()
    knees: tuple[Knee, ...] = ()


def variant_of(group: Group, case: Case) -> str:
    """What a case is called in each cell of a sweep."""
    return case.variant if isinstance(case.ffn, ActivationSpec) else group.name(case.label)


def axes_of(plan: Plan) -> tuple[Axis, ...]:
    """The axes of numbers with enough points for a curve, the one with most points first."""
    found = []
    for name in plan.groups[0].values:
        values = {group.values.get(name) for group in plan.groups}
        numbers = {v for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
        if len(numbers) == len(values) >= FEWEST:
            found.append(Axis(name, tuple(sorted(numbers))))
    return tuple(sorted(found, key=lambda axis: -len(axis.values)))


def findings(report: Report) -> Findings | None:
    """What the times of a sweep support, along the axis with most points; None for a plan without an axis."""
    if not report.comparisons or not (axes := axes_of(report.plan)):
        return None
    lines = list(_lines(report, axes[0]))
    cliffs = _cliffs(lines) if axes[0].name == WIDTH else ()
    return Findings(
        axis=axes[0],
        lines=len(lines),
        crossings=tuple(one for line in lines for one in line.crossings(cliffs)),
        cliffs=cliffs,
        knees=tuple(_knees(lines)) if axes[0].name in TOKENS and axes[0].logarithmic else (),
    )


def _lines(report: Report, axis: Axis) -> Iterator[_Line]:
    """The cells along the axis, for each combination of the values of all others."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in report.plan.groups:
        found.setdefault(tuple(v for key, v in group.values.items() if key != axis.name), []).append(group)
    pairs = pairs_of(report)
    for groups in found.values():
        yield _Line(report, axis, sorted(groups, key=lambda group: float(group.values[axis.name])), pairs)


@dataclass(frozen=True)
class _Line:
    """The cells of a sweep along its axis, all else held."""

    report: Report
    axis: Axis
    groups: list[Group]
    pairs: Pairs

    @cached_property
    def within(self) -> dict[str, object]:
        return {key: value for key, value in self.groups[0].values.items() if key != self.axis.name}

    @cached_property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(variant_of(group, case) for group in self.groups for case in group.cases))

    def labels(self, variant: str) -> dict[float, str]:
        """The label of a variant at each value of the axis at which its time is known."""
        return {
            float(group.values[self.axis.name]): case.label
            for group in self.groups for case in group.cases
            if variant_of(group, case) == variant and is_told(self.report, case.label)
        }  # fmt: skip

    def against(self, one: str, other: str) -> dict[float, Pair]:
        """What is known of two variants along the axis."""
        mine, others = self.labels(one), self.labels(other)
        known = {x: self.pairs.get((mine[x], others[x])) for x in mine if x in others}
        return {x: pair for x, pair in known.items() if pair}

    def flops(self, variant: str) -> dict[float, float | None]:
        """What a call needs along the axis."""
        plan, cost = self.report.plan, self.report.cost
        return {x: needed_by(plan.case(label), cost(label)).flops for x, label in self.labels(variant).items()}

    def seconds(self, variant: str) -> dict[float, Mean]:
        """The mean log of seconds along the axis."""
        table = table_of(self.report)
        means = {x: table.seconds(label).mean() for x, label in self.labels(variant).items()}
        return {x: mean for x, mean in means.items() if mean and mean.freedom > 0}

    def per_flop(self, variant: str) -> dict[float, float]:
        """The log of the time of a FLOP along the axis, of a variant whose FLOPs change along it: over the time of one
        whose FLOPs do not, where there is one, for cells are measured one after another.
        """
        steady = [name for name in self.variants if len(set(self.flops(name).values())) == 1]
        if variant in steady:
            return {}
        means, counted = self.seconds(variant), self.flops(variant)
        if steady:
            means = {x: pair.mean for x, pair in self.against(variant, steady[0]).items()}
        return {x: mean.mean - math.log(flops) for x, mean in means.items() if (flops := counted[x])}

    def crossings(self, cliffs: Sequence[Cliff]) -> Iterator[Crossing]:
        """Of every two variants; along widths one, and not by way of those that a cliff makes slow."""
        slack = control_slack(self.report)
        for other, one in combinations(self.variants, 2):
            told = [cliff for cliff in cliffs if cliff.within == self.within and cliff.variant in (one, other)]
            slow = {x for cliff in told for x in cliff.values}
            known = {x: pair for x, pair in self.against(one, other).items() if x not in slow}
            places = [Place(self.axis.place(x), pair.mean, pair.side) for x, pair in known.items()]
            found = list(turns(places))
            for first, last in found if self.axis.name != WIDTH or len(found) == 1 else ():
                value, low, high = map(self.axis.value, where(places, first, last, slack))
                yield Crossing(
                    within=self.within, variant=one, than=other, slower=places[last].side > 0,
                    at=Estimate(value=value, low=low, high=high),
                )  # fmt: skip


def turns(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """The last place that is decided on one side and the first that is decided on the other, for each change."""
    decided = [number for number, place in enumerate(places) if place.side]
    return ((a, b) for a, b in pairwise(decided) if places[a].side != places[b].side)


def where(places: Sequence[Place], first: int, last: int, slack: float = 0.0) -> tuple[float, float, float]:
    """Where the curve passes 0 between two of its places, with the ends of the interval: the outermost looks between
    the two at which the band may hold 0; all between, where nothing shows how the curve bends.
    """
    zeros, looks = [], []
    for left, right in pairwise(places[first : last + 1]):
        looks += [left.at + (right.at - left.at) * k / FINE for k in range(FINE)]
        if left.mean.mean * right.mean.mean <= 0 and (apart := left.mean.mean - right.mean.mean):
            zeros.append(left.at + (right.at - left.at) * left.mean.mean / apart)
    looks = sorted([*looks, *zeros, places[last].at])
    held = [n for n, at in enumerate(looks) if at in zeros or _held(places, first, last, at, slack)]
    if len(places) < FEWEST:
        held = [0, len(looks) - 1]
    return zeros[len(zeros) // 2], looks[max(0, held[0] - 1)], looks[min(len(looks) - 1, held[-1] + 1)]


def _held(places: Sequence[Place], first: int, last: int, at: float, slack: float) -> bool:
    """Whether 0 is within the band of the interpolated curve there."""
    number = next(k for k in range(first, last) if at <= places[k + 1].at)
    left, right = places[number], places[number + 1]
    share = (at - left.at) / (right.at - left.at)
    mean = (1 - share) * left.mean.mean + share * right.mean.mean
    error = whole(
        Part((weight * one.mean.error) ** 2, one.mean.freedom)
        for weight, one in ((1 - share, left), (share, right)) if one.mean.freedom > 0
    )  # fmt: skip
    bends = (_bend(places[k - 1 : k + 2]) for k in (number, number + 1) if 0 < k < len(places) - 1)
    bent = sum(bends) * (at - left.at) * (right.at - at)
    return abs(mean) <= student(error.freedom, CONFIDENCE) * math.sqrt(error.variance) + slack + bent


def _bend(three: Sequence[Place]) -> float:
    """By how much the slope changes at the second of three places, for each unit of the axis: what is beyond chance."""
    (a, b, c) = three
    rises = [(y.mean.mean - x.mean.mean) / (y.at - x.at) for x, y in pairwise(three)]
    weights = 1 / (b.at - a.at), 1 / (b.at - a.at) + 1 / (c.at - b.at), 1 / (c.at - b.at)
    chance = math.hypot(*(weight * one.mean.error for weight, one in zip(weights, three, strict=True)))
    return max(0.0, abs(rises[1] - rises[0]) - chance) * 2 / (c.at - a.at)


def _cliffs(lines: Sequence[_Line]) -> tuple[Cliff, ...]:
    curves = {(n, variant): line.per_flop(variant) for n, line in enumerate(lines) for variant in line.variants}
    found = []
    for (n, variant), (number, mean) in aligned(curves).items():
        divides, more = mean.mean < 0, replace(mean, mean=abs(mean.mean))
        low, high = more.interval(CONFIDENCE) or (more.mean, more.mean)
        times = Estimate(value=math.exp(more.mean), low=math.exp(low), high=math.exp(high))
        slow = tuple(x for x in curves[n, variant] if (x % number == 0) is divides)
        found.append(Cliff(lines[n].within, variant, number, divides, slow, times))
    return tuple(found)


def aligned(curves: Mapping[K, Mapping[float, float]]) -> dict[K, tuple[int, Mean]]:
    """Of each curve over widths the power of two that it tells best, where it is decided that there is one, and by how
    much the logs of the curve are higher where that does not divide the width.
    """
    means = {(key, number): mean for key, curve in curves.items() for number, mean in _alignments(curve).items()}
    beyond = {
        one: 2 * replace(mean, mean=abs(mean.mean)).p_above(math.log1p(SAME_WITHIN)) for one, mean in means.items()
    }
    best: dict[K, tuple[int, Mean]] = {}
    for key, number in sorted(holm(beyond, 1 - CONFIDENCE), key=lambda one: beyond[one]):
        best.setdefault(key, (number, means[key, number]))
    return {key: best[key] for key in curves if key in best}


def _alignments(curve: Mapping[float, float]) -> dict[int, Mean]:
    """By how much the logs of a curve are higher at the widths that a power of two does not divide, beside a straight
    line over all of them. The widths are the replicates: what scatters between cells is in the error.
    """
    found = {}
    for number in (2**k for k in range(1, int(max(curve, default=0)).bit_length())):
        odd = {x: float(x % number > 0) for x in curve}
        if FEWEST <= sum(odd.values()) <= len(odd) - FEWEST:
            apart, logs = _level(odd), _level(curve)
            more, freedom = linear_regression(apart, logs).slope, len(curve) - 3
            left = math.fsum((log - more * one) ** 2 for one, log in zip(apart, logs, strict=True))
            found[number] = Mean(more, math.sqrt(left / freedom) / math.hypot(*apart), freedom)
    return found


def _level(curve: Mapping[float, float]) -> list[float]:
    """What a curve is beside a straight line."""
    slope, start = linear_regression(list(curve), list(curve.values()))
    return [y - start - slope * x for x, y in curve.items()]


def _knees(lines: Sequence[_Line]) -> Iterator[Knee]:
    """Of each reference the place from which on its latency grows by more than the square root of the axis."""
    for line in lines:
        variant = variant_of(line.groups[0], line.report.plan.case(line.groups[0].reference))
        points = [(line.axis.place(x), mean) for x, mean in line.seconds(variant).items()]
        if (at := knee(points)) is not None:
            since, value, low, high = map(math.exp, at)
            yield Knee(within=line.within, variant=variant, since=since, at=Estimate(value=value, low=low, high=high))


def knee(points: Sequence[tuple[float, Mean]]) -> tuple[float, float, float, float] | None:
    """From where the log of seconds is flat over the log of tokens, and where its slope passes FLAT for the last time,
    upwards, with its interval; None where it is not decided on both sides, or points are too few. A flat and a rising
    line that are joined, however smoothly, have this slope where the two would meet. To the left the flat part ends at
    the first step that is higher than LEVEL: another kernel.
    """
    slopes = []
    for (a, before), (b, after) in pairwise(points):
        rise = after.less(before)
        slopes.append(((a + b) / 2, Mean(rise.mean / (b - a) - FLAT, rise.error / (b - a), rise.freedom)))
    decided = holm({k: mean.p_value() for k, (_, mean) in enumerate(slopes)}, 1 - CONFIDENCE)
    places = [Place(at, mean, (k in decided) * (1 if mean.mean > 0 else -1)) for k, (at, mean) in enumerate(slopes)]
    found = list(turns(places)) if len(places) >= FEWEST else []
    if not found or places[found[-1][1]].side < 0:
        return None
    since = found[-1][0]
    while since and abs(points[since][1].mean - points[since - 1][1].mean) <= math.log(LEVEL):
        since -= 1
    return points[since][0], *where(places, *found[-1])
