"""Sweeps as curves: crossings where the truth has them, pictures that leave nothing
out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from fake_machine import prepare
from simulated import WORLDS, Machine

from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import Plan
from ffnbench.run.runner import run_workers as run_plan
from ffnbench.stats.curves import Point, crossing_between, crossings_of, side_changes
from ffnbench.stats.figures import with_figures

TOKENS = tuple(2**k for k in range(0, 13, 2))


# Where it is


def points_of(sides: tuple[int, ...]) -> list[Point]:
    return [Point(x, 0.1 * side, side) for x, side in enumerate(sides)]


@pytest.mark.parametrize(
    ("sides", "found"),
    [
        ((1, 0, -1), [(0, 2)]),
        ((1, 0, 0), []),
        ((1, 0, 1), []),
        ((0, -1, 1, 0, -1), [(1, 2), (2, 4)]),
    ],
)
def test_nothing_crosses_that_is_not_decided_on_both_sides(
    sides: tuple[int, ...], found: list
) -> None:
    points = points_of(sides)
    changes = [(points[first], points[last]) for first, last in found]
    assert list(side_changes(points)) == changes
    # a saw crosses nowhere
    assert list(side_changes(points, once=True)) == changes[: len(changes) < 2]


def test_a_crossing_is_interpolated_between_the_points_that_are_decided() -> None:
    """By hand: a line from -1 to 3 passes 0 after a quarter of the way."""
    place = crossing_between(Point(2.0, -1.0, -1), Point(4.0, 3.0, 1))
    assert place == pytest.approx((2.0, 2.5, 4.0))


@pytest.mark.slow
def test_crossings_on_simulated_machines() -> None:
    """The whole way: runner, stopping, table of rounds, verdicts. The truth is a
    straight line through 1 at 64 tokens, which is a place of the axis, and at 128,
    which is not.
    """
    hits, told = 0, 0
    for seed in range(40):
        for at in (3.0, 3.5):  # in points of the axis
            made = with_figures(
                latency_report(
                    Machine(WORLDS[seed % 3], swept_plan(at), seed).run(run_plan)
                )
            )
            crossings = crossings_of(made)
            told += len(crossings)
            hits += sum(one.at.low <= 4.0**at <= one.at.high for one in crossings)
    assert told >= 60
    assert hits >= 0.95 * told - 3 * math.sqrt(0.95 * 0.05 * told)


def swept_plan(at: float, slope: float = 0.06) -> Plan:
    """Of two equal forms, the second of which is slower by so much more at each
    point.
    """
    asked = {
        "d_model": 64,
        "threads": 1,
        "seq_len": TOKENS,
        "metrics": "latency",
        "match": "none",
    }
    plan = prepare(variants="relu,other=relu", **asked).plan

    def slowed(case: Any) -> Any:
        more = (
            slope
            * (math.log(case.workload.seq_len, 4) - at)
            * case.label.startswith("other")
        )
        return replace(
            case, workload=replace(case.workload, slowdown=math.expm1(0.5 + more))
        )

    return replace(plan, cases=tuple(map(slowed, plan.cases)))
