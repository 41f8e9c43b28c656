"""The mean over workers: by hand, against another statistics package, and by
simulation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ffnbench.stats.interval import (
    Mean,
    WorkerValue,
    confidence_of_each,
    mean_of,
    student,
)


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("freedom", [0.7, 1, 2.5, 7, 33.3, 1e4, 1e7])
def test_the_quantile_is_students(freedom: float, confidence: float) -> None:
    expected = stats.t.ppf(0.5 + confidence / 2, freedom)
    assert student(freedom, confidence) == pytest.approx(expected, rel=1e-7)


def plain(*logs: float) -> Mean:
    """Workers that are interpreters of their own."""
    return mean_of(WorkerValue(log, starter) for starter, log in enumerate(logs))


def test_of_separate_processes_it_is_students_interval() -> None:
    # t(0.975, 2) = 4.302653, t(0.975, 4) = 2.776445: any table
    centre = plain(1.0, 2.0, 3.0)
    assert (centre.mean, centre.freedom) == (pytest.approx(2.0), pytest.approx(2.0))
    assert centre.half_width(0.95) == pytest.approx(4.302653 / math.sqrt(3), abs=1e-6)
    five = plain(0.1, 0.2, 0.3, 0.4, 0.5)
    assert five.half_width(0.95) == pytest.approx(
        2.776445 * math.sqrt(0.025) / math.sqrt(5), abs=1e-6
    )
    assert five.interval(0.95) == pytest.approx(
        (0.3 - five.half_width(0.95), 0.3 + five.half_width(0.95))
    )


@pytest.mark.parametrize(
    ("rows", "quantile"), [(1, 1.96), (2, 2.21), (5, 2.51), (9, 2.69), (20, 2.91)]
)
def test_of_many_processes_the_quantile_of_several_rows_is_dunnetts(
    rows: int, quantile: float
) -> None:
    """The last line of his table (Dunnett 1964, two-sided, 95 %)."""
    mean = Mean(0.0, 1.0, 1e9)
    assert mean.half_width(confidence_of_each(rows)) == pytest.approx(
        quantile, abs=0.006
    )


def test_one_value_has_no_interval_and_equal_ones_no_doubt() -> None:
    assert plain(1.0).interval(0.95) is None
    assert plain(0.1, 0.1, 0.1).interval(0.95) == pytest.approx((0.1, 0.1))
    with pytest.raises(ValueError, match="no value"):
        plain()


def forked(
    dice: np.random.Generator,
    workers: int,
    starters: int,
    worker: float,
    starter: float,
) -> Mean:
    apart = dice.normal(0, starter, starters)
    return mean_of(
        WorkerValue(apart[n % starters] + dice.normal(0, worker), n % starters)
        for n in range(workers)
    )


def test_that_a_starter_is_unseen_is_paid_for() -> None:
    """Equal workers of two starters: what may lie between starters, 0.3 %, is left."""
    forks = mean_of(WorkerValue(0.0, n % 2) for n in range(20))
    assert 0.0015 < forks.error < 0.003
    assert (
        mean_of(WorkerValue(0.0, 0) for _ in range(20)).error > forks.error
    )  # one starter says less than two


def test_starters_that_differ_widen_the_interval() -> None:
    """With both parts known well, the error is that of a one-way analysis of
    variance.
    """
    dice = np.random.default_rng(5)
    apart = dice.normal(0, 0.05, 200)
    values = [
        WorkerValue(apart[s] + dice.normal(0, 0.02), s)
        for s in range(200)
        for _ in range(4)
    ]
    groups = [[v.log for v in values if v.starter == s] for s in range(200)]
    by_means = stats.sem(
        [sum(group) / 4 for group in groups]
    )  # of independent groups of equal size
    assert mean_of(values).error == pytest.approx(by_means, rel=0.02)


@pytest.mark.parametrize(
    ("workers", "worker", "starter"),
    [
        (6, 0.02, 0.0),
        (6, 0.02, 0.003),
        (16, 0.02, 0.003),
        (16, 0.005, 0.003),
        (16, 0.03, 0.005),
        (40, 0.03, 0.003),
    ],
)
def test_the_interval_covers(workers: int, worker: float, starter: float) -> None:
    dice, runs, covered = np.random.default_rng(workers), 1500, 0
    for _ in range(runs):
        mean = forked(dice, workers, 2, worker, starter)
        covered += abs(mean.mean) <= mean.half_width(0.95)
    assert 0.94 <= covered / runs <= 0.985


def test_what_looking_costs_widens_an_interval() -> None:
    mean = Mean(0.0, 0.01, 5.0)
    assert mean.inflated(0.99).half_width(0.95) == pytest.approx(
        0.01 * stats.t.ppf(0.995, 5)
    )
    assert mean.inflated(0.95) == mean
    assert Mean(0.0, math.inf, 0.0).inflated(0.99).freedom == 0
