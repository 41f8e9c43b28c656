"""The statistics by hand, and by simulation through the real decisions."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_runs import plan_of, run_of, with_control

from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import CONTROL
from ffnbench.record.result import (
    Comparison,
    Failure,
    FailureKind,
    Run,
    Verdict,
)
from ffnbench.stats.cells import join_runs
from ffnbench.stats.verdict import summarise


def test_ratios_are_paired_within_rounds() -> None:
    """Rounds that are ten times slower for everybody, and workers that are, change
    nothing.
    """
    plan = plan_of(workers=3, rounds=3)
    slow = [[1.0, 10.0, 1.0], [2.0, 2.0, 20.0], [0.1, 0.1, 0.1]]
    b = [
        [1.10 * v for v in slow[0]],
        [1.12 * v for v in slow[1]],
        [1.11 * v for v in slow[2]],
    ]
    measured, comparisons, _ = summarise(run_of(plan, {"a": slow, "b": b}))
    ratio = comparisons[1].ratio
    assert ratio is not None
    assert ratio.value == pytest.approx((1.10 * 1.12 * 1.11) ** (1 / 3))
    assert (ratio.workers, ratio.samples) == (3, 9)
    assert comparisons[1].verdict is Verdict.SLOWER
    assert comparisons[0].verdict is Verdict.REFERENCE
    assert measured[0].estimate.value == pytest.approx((1.0 * 2.0 * 0.1) ** (1 / 3))


def test_more_rounds_of_one_process_do_not_narrow_the_interval() -> None:
    """The replicate is the worker: a thousand rounds of three processes are three
    values.
    """
    few, many = ((3, 1), (3, 1000))
    intervals = []
    for workers, rounds in (few, many):
        plan = plan_of(workers=workers, rounds=rounds)
        values = {
            "a": [[1.0] * rounds] * 3,
            "b": [[v] * rounds for v in (1.0, 1.1, 1.2)],
        }
        _, comparisons, _ = summarise(run_of(plan, values))
        intervals.append((comparisons[1].ratio.low, comparisons[1].ratio.high))
    assert intervals[0] == pytest.approx(intervals[1])


def test_a_failed_case_has_no_estimate_and_a_lost_reference_no_verdict() -> None:
    plan = plan_of(workers=3, rounds=1)
    values = {"a": [[1.0]] * 3, "b": [[1.0]] * 3}
    failure = Failure(case="a", kind=FailureKind.OOM, message="")
    measured, comparisons, _ = summarise(run_of(plan, values, failures=(failure,)))
    assert [m.case for m in measured] == ["b"]
    assert [(c.case, c.verdict, c.ratio) for c in comparisons] == [
        ("b", Verdict.UNCLEAR, None)
    ]
    assert "reference a was not measured" in comparisons[0].reason


def test_one_worker_gives_a_value_and_no_verdict() -> None:
    plan = plan_of(workers=3, rounds=2)
    measured, comparisons, _ = summarise(
        run_of(plan, {"a": [[1.0, 1.0]], "b": [[2.0, 2.0]]}, interrupted=True)
    )
    assert measured[1].estimate.value == pytest.approx(2.0)
    assert measured[1].estimate.low is None
    assert (comparisons[1].verdict, comparisons[1].reason) == (
        Verdict.UNCLEAR,
        "measured in one process, which gives no interval",
    )


def test_a_worker_cut_short_is_left_out_where_whole_ones_remain() -> None:
    plan = plan_of(workers=3, rounds=2)
    values = {
        "a": [[1.0, 1.0], [1.0, 1.0], [1.0]],
        "b": [[1.5, 1.5], [1.5, 1.5], [9.0]],
    }
    _, comparisons, _ = summarise(run_of(plan, values))
    assert comparisons[1].ratio.value == pytest.approx(1.5)
    assert comparisons[1].ratio.workers == 2


def simulate(effect: float, runs: int, seed: int, second: str = "b") -> list[Run]:
    """Runs with what real ones have: worker effects per case, drift, bursts, noise
    within a worker.

    `second` takes `effect` times as long as the reference: b, or the control.
    """
    rng = random.Random(seed)
    plan = (
        plan_of(workers=5, rounds=12)
        if second == "b"
        else with_control(plan_of("a=relu", workers=5, rounds=12))
    )
    results = []
    for _ in range(runs):
        values: dict[str, list[list[float]]] = {"a": [], second: []}
        for _ in range(5):
            layout = {label: rng.gauss(0, 0.01) for label in values}
            speed = rng.gauss(0, 0.2)
            rows: dict[str, list[float]] = {label: [] for label in values}
            for r in range(12):
                burst = 0.5 if rng.random() < 0.1 else 0.0
                for label, rounds in rows.items():
                    true = math.log(effect) if label == second else 0.0
                    rounds.append(
                        math.exp(
                            true
                            + layout[label]
                            + speed
                            + 0.02 * r
                            + burst
                            + rng.gauss(0, 0.01)
                        )
                    )
            for label in values:
                values[label].append(rows[label])
        results.append(run_of(plan, values))
    return results


def test_a_quiet_machine_is_accused_once_in_a_hundred_runs() -> None:
    """1,000 runs of a reference that is equal to itself, and 100 of one that is 10 %
    slower the second time.
    """
    quiet = simulate(1.0, 1000, seed=3, second=CONTROL)
    assert 1 <= sum(bool(summarise(run)[2]) for run in quiet) <= 25
    slower = simulate(1.1, 100, seed=4, second=CONTROL)
    assert sum(bool(summarise(run)[2]) for run in slower) >= 95


def equal_rows(rows: int, runs: int, seed: int) -> list[list[Comparison]]:
    """The comparisons of runs of equal rows beside their reference, each case with a
    layout of its own in each of ten workers.
    """
    dice = random.Random(seed)
    names = ["a", *(f"b{number}" for number in range(rows))]
    plan = plan_of(",".join(f"{name}=relu" for name in names), workers=10, rounds=1)
    found = []
    for _ in range(runs):
        values = {
            name: [[math.exp(dice.gauss(0, 0.02))] for _ in range(10)] for name in names
        }
        found.append(list(summarise(run_of(plan, values))[1][1:]))
    return found


@pytest.mark.parametrize(("rows", "runs"), [(1, 2000), (5, 1000)])
def test_intervals_hold_for_all_rows_of_a_reference_together(
    rows: int, runs: int
) -> None:
    """The intervals of a run all cover 1 in 94 to 96.5 % of the runs, and at most 5 %
    call any row different; two standard errors are allowed for chance.
    """
    found = equal_rows(rows, runs, seed=rows)
    covered = sum(all(r.ratio.low <= 1 <= r.ratio.high for r in run) for run in found)
    different = (Verdict.SLOWER, Verdict.FASTER)
    false = sum(any(r.verdict in different for r in run) for run in found)
    chance = 2 * math.sqrt(0.05 * 0.95 / runs)
    assert 0.94 - chance <= covered / runs <= 0.965 + chance
    assert false / runs <= 0.05 + chance


def test_a_verdict_is_what_its_interval_says() -> None:
    """`same` if and only if it lies within 2 %, else `slower` if and only if it lies
    above 1, `faster` below: of rows that differ by up to 6 %.
    """
    dice = random.Random(5)
    seen = Counter()
    names = ["a", *(f"b{number}" for number in range(6))]
    plan = plan_of(",".join(f"{name}=relu" for name in names), workers=5, rounds=1)
    for _ in range(150):
        scatter = dice.choice((0.002, 0.01))
        true = {name: dice.uniform(-0.06, 0.06) for name in names}
        values = {
            name: [[math.exp(log + dice.gauss(0, scatter))] for _ in range(5)]
            for name, log in true.items()
        }
        for row in summarise(run_of(plan, values))[1][1:]:
            low, high = row.ratio.low, row.ratio.high
            is_same = low >= 0.98 and high <= 1.02
            assert (row.verdict is Verdict.SAME) == is_same
            assert (row.verdict is Verdict.SLOWER) == (low > 1 and not is_same)
            assert (row.verdict is Verdict.FASTER) == (high < 1 and not is_same)
            assert row.reason == ""
            seen[row.verdict] += 1
    assert min(seen[verdict] for verdict in Verdict if verdict in seen) > 50
    assert len(seen) == 4


@given(st.integers(0, 999), st.sampled_from(("ab", "abc", "abcde")))
def test_a_row_that_takes_longer_has_its_ratio_times_as_large(
    seed: int, names: str
) -> None:
    """Exactly, at its lower end and in seconds too; no other row moves."""
    dice = random.Random(seed)
    values = {
        name: [[dice.paretovariate(5) for _ in range(6)] for _ in range(5)]
        for name in names
    }
    slower = {**values, "b": [[1.05 * s for s in worker] for worker in values["b"]]}
    plan = plan_of(",".join(f"{name}=relu" for name in names), workers=5, rounds=6)
    found = (summarise(run_of(plan, each))[:2] for each in (values, slower))
    (before, rows), (now, rows_now) = found
    for one, row, one_now, row_now in zip(before, rows, now, rows_now, strict=True):
        times = 1.05 if row.case == "b" else 1.0
        assert (one_now.estimate.value, row_now.ratio.low) == pytest.approx(
            (times * one.estimate.value, times * row.ratio.low)
        )


def test_runs_that_are_joined_have_no_worker_in_common() -> None:
    plan = plan_of(workers=3, rounds=1)
    run = run_of(plan, {"a": [[1.0], [1.1]], "b": [[1.0], [1.1]]})
    both = join_runs([latency_report(run), latency_report(run)])
    assert sorted({sample.worker for sample in both.samples}) == [0, 1, 2, 3]
