"""What people look for in a sweep: where two variants cross, cliffs of alignment, where latency stops being flat. Pure.

All of it is read along one axis of numbers, the others held. Nothing is told that is not decided on both of its sides.
*Where* something is has an interval: the places at which the band around the interpolated curve holds the value looked
for, with what the curve bends by between two points of the axis, as far as their neighbours show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan import Case, Group, Plan
from ffnbench.result import Estimate, Report
from ffnbench.stats.ceilings import needed_by
from ffnbench.stats.interval import CONFIDENCE, Mean, Part, student, whole
from ffnbench.stats.pairs import Pairs, is_told, pairs_of
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import SAME_WITHIN, control_slack, holm

FEWEST = 3  # points of an axis that is drawn as a curve
WIDTH, TOKENS = "d_ff", ("seq_len", "batch")  # the axes of cliffs, and of knees
FLAT = 0.5  # between the slope of a latency that does not grow with the tokens, and of one that grows as they do
FINE = 100  # looks between two points of the axis


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """Values of the axis at which a FLOP takes longer than at their neighbours on both sides, and how many times."""

    within: Mapping[str, object]
    variant: str
    values: tuple[float, ...]
    times: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where latency stops being flat in the axis: it grows by the square root of it there."""

    within: Mapping[str, object]
    variant: str
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
    return Findings(
        axis=axes[0],
        lines=len(lines),
        crossings=tuple(one for line in lines for one in line.crossings()),
        cliffs=_cliffs(lines) if axes[0].name == WIDTH else (),
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

    def crossings(self) -> Iterator[Crossing]:
        slack = control_slack(self.report)
        for other, one in combinations(self.variants, 2):
            mine, others = self.labels(one), self.labels(other)
            known = [(x, self.pairs.get((mine[x], others[x]))) for x in mine if x in others]
            places = [Place(self.axis.place(x), pair.mean, pair.side) for x, pair in known if pair]
            for first, last in turns(places):
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


def _seconds(line: _Line, variant: str, per: Callable[[str], float | None]) -> list[tuple[float, Mean]]:
    """The mean log of seconds per amount of a variant, along the axis."""
    table, found = table_of(line.report), []
    for value, label in line.labels(variant).items():
        mean, amount = table.seconds(label).mean(), per(label)
        if mean and mean.freedom > 0 and amount:
            found.append((value, Mean(mean.mean - math.log(amount), mean.error, mean.freedom)))
    return found


def _cliffs(lines: Sequence[_Line]) -> tuple[Cliff, ...]:
    """Stretches of the axis that begin with a decided jump up, of time per FLOP, and end with a decided jump down."""
    found = []
    for line in lines:
        for variant in line.variants:

            def flops(label: str, line: _Line = line) -> float | None:
                return needed_by(line.report.plan.case(label), line.report.cost(label)).flops

            found.append((line, variant, _seconds(line, variant, flops)))
    jumps = {
        (n, k): points[k + 1][1].less(points[k][1]) for n, (*_, points) in enumerate(found)
        for k in range(len(points) - 1)
    }  # fmt: skip
    beyond = {
        place: 2 * replace(mean, mean=abs(mean.mean)).p_above(math.log1p(SAME_WITHIN)) for place, mean in jumps.items()
    }
    decided = holm(beyond, 1 - CONFIDENCE)
    return tuple(
        _cliff(line, variant, points[first : last + 1])
        for n, (line, variant, points) in enumerate(found)
        for first, last in stretches([jumps[n, k].mean * ((n, k) in decided) for k in range(len(points) - 1)])
    )


def stretches(jumps: Sequence[float]) -> Iterator[tuple[int, int]]:
    """The points before a jump up and after the next jump down, with no other jump between; 0 is no jump."""
    sides = [(k, jump) for k, jump in enumerate(jumps) if jump]
    return ((a, b + 1) for (a, up), (b, down) in pairwise(sides) if up > 0 > down)


def _cliff(line: _Line, variant: str, points: Sequence[tuple[float, Mean]]) -> Cliff:
    inside, beside = (_average([mean for _, mean in part]) for part in (points[1:-1], (points[0], points[-1])))
    more = inside.less(beside)
    low, high = more.interval(CONFIDENCE) or (more.mean, more.mean)
    times = Estimate(value=math.exp(more.mean), low=math.exp(low), high=math.exp(high))
    return Cliff(within=line.within, variant=variant, values=tuple(x for x, _ in points[1:-1]), times=times)


def _average(means: Sequence[Mean]) -> Mean:
    error = whole(Part((mean.error / len(means)) ** 2, mean.freedom) for mean in means)
    return Mean(math.fsum(mean.mean for mean in means) / len(means), math.sqrt(error.variance), error.freedom)


def _knees(lines: Sequence[_Line]) -> Iterator[Knee]:
    """Of each reference the place from which on its latency grows by more than the square root of the axis."""
    for line in lines:
        variant = variant_of(line.groups[0], line.report.plan.case(line.groups[0].reference))
        points = [(line.axis.place(x), mean) for x, mean in _seconds(line, variant, lambda _: 1.0)]
        if (at := knee(points)) is not None:
            value, low, high = map(math.exp, at)
            yield Knee(within=line.within, variant=variant, at=Estimate(value=value, low=low, high=high))


def knee(points: Sequence[tuple[float, Mean]]) -> tuple[float, float, float] | None:
    """Where the slope of the log of seconds over the log of tokens passes FLAT for the last time, upwards, with its
    interval; None where it is not decided on both sides, or points are too few. A flat and a rising line
    that are joined, however smoothly, have this slope where the two would meet.
    """
    slopes = []
    for (a, before), (b, after) in pairwise(points):
        rise = after.less(before)
        slopes.append(((a + b) / 2, Mean(rise.mean / (b - a) - FLAT, rise.error / (b - a), rise.freedom)))
    decided = holm({k: mean.p_value() for k, (_, mean) in enumerate(slopes)}, 1 - CONFIDENCE)
    places = [Place(at, mean, (k in decided) * (1 if mean.mean > 0 else -1)) for k, (at, mean) in enumerate(slopes)]
    found = list(turns(places)) if len(places) >= FEWEST else []
    return where(places, *found[-1]) if found and places[found[-1][1]].side > 0 else None
