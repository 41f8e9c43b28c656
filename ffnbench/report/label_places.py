"""Where labels go beside their dots, so that none lies on another, on a dot or outside. Plane geometry, any unit.

Each label takes the free place that costs least: far from its dot is worse than near, across a line worse than beside
it. What has a place keeps it, so the order of labels counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin

Point = tuple[float, float]
Segment = tuple[Point, Point]
RINGS, DIRECTIONS = 20, 32
ACROSS_LINE, ACROSS_LEADER = 8.0, 10.0  # as bad as so many rings farther out
WORST = 12.0  # what a place may cost
AWRY = 0.8  # for a place that is neither right nor left of its dot


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, its sides upright."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlaps(self, other: Box) -> bool:
        """Whether both have a point inside."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def within(self, other: Box) -> bool:
        """Whether all of it is inside another."""
        return other.x0 <= self.x0 and self.x1 <= other.x1 and other.y0 <= self.y0 and self.y1 <= other.y1

    def part_of(self, segment: Segment) -> Segment | None:
        """What of the segment is inside (Liang and Barsky's clipping); None where nothing is."""
        (x, y), (to_x, to_y) = segment
        first, last = 0.0, 1.0
        for delta, low, high in ((to_x - x, self.x0 - x, self.x1 - x), (to_y - y, self.y0 - y, self.y1 - y)):
            if delta == 0:
                if not low < 0 < high:
                    return None
                continue
            enter, leave = sorted((low / delta, high / delta))
            first, last = max(first, enter), min(last, leave)
        if first >= last:
            return None
        dx, dy = to_x - x, to_y - y
        return (x + first * dx, y + first * dy), (x + last * dx, y + last * dy)

    def crossed_by(self, segment: Segment) -> bool:
        """Whether a part of the segment is inside."""
        return self.part_of(segment) is not None

    def nearest(self, point: Point) -> Point:
        """Its point that is nearest to another."""
        return min(max(point[0], self.x0), self.x1), min(max(point[1], self.y0), self.y1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a label is, and the line that leads to it from its dot; None where it stands right beside."""

    box: Box
    leader: Segment | None


def place(
    labels: Sequence[tuple[Point, Point]],
    *,
    inside: Box,
    taken: Sequence[Box],
    lines: Sequence[Segment],
    gap: float,
    step: float,
) -> list[Placed] | None:
    """A place for each label, given as its dot and its size; None where one finds none that is good enough.

    `taken` may not be covered, and `lines` are better not crossed; `gap` is from a dot's centre to its label, and
    `step` from one ring of places to the next.
    """
    blocked, leaders, found = list(taken), list[Segment](), list[Placed]()
    for dot, size in labels:
        best, least = None, WORST
        for cost, ring, box in _places(dot, size, gap, step):
            if ring >= least:
                break
            if cost >= least or not box.within(inside) or any(box.overlaps(other) for other in blocked):
                continue
            leader = _leader(dot, box, gap) if ring else None
            cost += ACROSS_LINE * sum(box.crossed_by(line) for line in lines)
            cost += ACROSS_LEADER * sum(box.crossed_by(other) for other in leaders)
            if leader:
                cost += ACROSS_LEADER * sum(other.crossed_by(leader) for other in blocked)
                cost += ACROSS_LINE * sum(_cross(leader, line) for line in lines)
            if cost < least:
                best, least = Placed(box=box, leader=leader), cost
        if best is None:
            return None
        found.append(best)
        blocked.append(best.box)
        leaders += [best.leader] if best.leader else []
    return found


def _places(dot: Point, size: Point, gap: float, step: float) -> Iterator[tuple[float, int, Box]]:
    """What a place costs by itself, its ring, and the box: the nearest ring first, to the right of the dot first."""
    (x, y), (width, height) = dot, size
    for ring in range(RINGS):
        away = gap + step * ring
        for k in range(DIRECTIONS):
            dx, dy = cos(2 * pi * k / DIRECTIONS), sin(2 * pi * k / DIRECTIONS)
            left = x + away * dx - (width if dx < -1e-9 else 0 if dx > 1e-9 else width / 2)
            low = y + away * dy - height / 2 * (1 - dy)
            yield ring + AWRY * abs(dy) + (0.1 if dx < 0 else 0.0), ring, Box(left, low, left + width, low + height)


def _leader(dot: Point, box: Box, gap: float) -> Segment | None:
    """From beside the dot to the nearest point of its label."""
    end = box.nearest(dot)
    length = hypot(end[0] - dot[0], end[1] - dot[1])
    if length <= gap:
        return None
    part = gap / length
    return (dot[0] + part * (end[0] - dot[0]), dot[1] + part * (end[1] - dot[1])), end


def _cross(one: Segment, other: Segment) -> bool:
    """Whether two segments meet: the ends of each lie on different sides of the other."""

    def side(of: Segment, point: Point) -> float:
        (x0, y0), (x1, y1) = of
        return (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)

    return side(one, other[0]) * side(one, other[1]) < 0 and side(other, one[0]) * side(other, one[1]) < 0
