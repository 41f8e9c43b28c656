"""Where two variants of a sweep cross: from where on along an axis one is slower than the other, or faster. Pure.

Read along one axis of numbers, the others held. No crossing is reported that is not decided on both of its sides. It
has an interval: the places at which the band around the interpolated curve holds 0, with what the curve bends by
between two points of the axis, as far as their neighbours show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from ffnbench.plan import LEAST_POINTS, Axis, Group
from ffnbench.result import Crossing, Crossings, Estimate, Report
from ffnbench.stats.interval import CONFIDENCE, Mean, Part, student, whole
from ffnbench.stats.pairs import Pair, Pairs, pairs_of
from ffnbench.stats.verdict import control_slack

WIDTH = "d_ff"  # an axis along which times go up and down with what divides the width
FINE = 100  # steps of the search between two points of the axis


@dataclass(frozen=True, slots=True)
class Place:
    """The mean at a place of an axis, and the side of what is looked for that is decided: -1, 1, or 0 for none."""

    at: float
    mean: Mean
    side: int


def crossings_of(report: Report) -> Crossings | None:
    """The crossings that the times of a sweep support, along the axis with most points; None for a plan without an
    axis.
    """
    axes = report.plan.axes
    if not report.comparisons or not axes:
        return None
    lines = list(_lines(report, axes[0]))
    places = [crossing for line in lines for crossing in line.crossings()]
    return Crossings(axis=axes[0], lines=len(lines), places=tuple(places))


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
        return list(dict.fromkeys(group.variant_of(case) for group in self.groups for case in group.cases))

    def labels(self, variant: str) -> dict[float, str]:
        """The label of a variant at each value of the axis at which its time is known."""
        return {
            float(group.values[self.axis.name]): case.label
            for group in self.groups for case in group.cases
            if group.variant_of(case) == variant and self.report.has_time(case.label)
        }  # fmt: skip

    def against(self, one: str, other: str) -> dict[float, Pair]:
        """What is known of two variants along the axis."""
        mine, others = self.labels(one), self.labels(other)
        known = {x: self.pairs.get((mine[x], others[x])) for x in mine if x in others}
        return {x: pair for x, pair in known.items() if pair}

    def crossings(self) -> Iterator[Crossing]:
        """Of every two variants. Along widths only where they change sides once: else it is a saw, of what divides the
        width.
        """
        slack = control_slack(self.report)
        for other, variant in combinations(self.variants, 2):
            pairs = self.against(variant, other)
            places = [Place(self.axis.place(x), pair.mean, pair.side) for x, pair in pairs.items()]
            for first, last in turns(places):
                if self.axis.name == WIDTH and not is_once(places, first, last):
                    continue
                value, low, high = map(self.axis.value, where(places, first, last, slack))
                yield Crossing(
                    within=self.within,
                    variant=variant,
                    than=other,
                    slower=places[last].side > 0,
                    at=Estimate(value=value, low=low, high=high),
                )


def turns(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """The last place that is decided on one side and the first that is decided on the other, for each change."""
    decided = [number for number, place in enumerate(places) if place.side]
    return ((a, b) for a, b in pairwise(decided) if places[a].side != places[b].side)


def is_once(places: Sequence[Place], first: int, last: int) -> bool:
    """Whether all means up to the first place are on one side of 0, and all from the last place on on the other."""
    side = places[first].mean.mean
    return all(place.mean.mean * side > 0 for place in places[:first]) and all(
        place.mean.mean * side < 0 for place in places[last:]
    )


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
    if len(places) < LEAST_POINTS:
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
