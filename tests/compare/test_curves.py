"""Sweeps as curves: crossings where the truth has them, pictures that leave nothing
out.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeLaunch, prepare
from paths import ROOT
from simulated import WORLDS, Machine

from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import Plan
from ffnbench.report.sentences import crossing_texts
from ffnbench.report.store import read_report
from ffnbench.run.runner import run_workers as run_plan
from ffnbench.stats.curves import Point, crossing_between, crossings_of, side_changes
from ffnbench.stats.figures import with_figures

TOKENS = tuple(2**k for k in range(0, 13, 2))


def value(label: str, key: str, default: float) -> float:
    found = dict(part.split("=", 1) for part in label.split("@")[1:])
    return float(found.get(key, default))


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


def test_a_saw_of_widths_is_no_crossing() -> None:
    """Decided slower than one relu between the multiples of 8 and decided faster at
    them, on this machine.
    """
    report = read_report(ROOT / "results" / "amd-epyc-2cpu" / "sweeps" / "d_ff.json")
    crossings = crossings_of(report)
    assert crossings == ()
    assert crossing_texts(crossings) == []


def test_the_sweep_in_the_docs_finds_the_width_that_takes_as_long(
    on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a machine where a gated form takes 3/2 of the time at the same width, and 5 %
    of its own: 2 * 3072 = 1.05 * 3 * d_ff.
    """
    truth = 2 * 3072 / 3.15

    def seconds(label: str, worker: int, number: int) -> float:
        gelu = 2 * 3072.0
        swiglu = 3.15 * value(label, "d_ff", 0.0)
        noise = 1 + 0.001 * ((worker + number) % 3)
        return 1e-6 * noise * (gelu if label.startswith("gelu") else swiglu)

    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    section = page.partition("## Which d_ff takes as long?")[2]
    line = re.search(r"^ffnbench (.*)", section, re.MULTILINE)[1]
    monkeypatch.chdir(tmp_path)
    code, out, err = on_fakes(f"{line} --quick", launch=FakeLaunch(seconds))
    assert code == 0, err
    said = r"swiglu becomes slower than gelu at d_ff ([\d,]+) \[([\d,]+), ([\d,]+)\]"
    place, low, high = (
        int(number.replace(",", "")) for number in re.search(said, out).groups()
    )
    assert low <= truth <= high
    assert place == pytest.approx(truth, rel=0.005)
