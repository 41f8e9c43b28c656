"""Runs of a baseline: what moves between them, by simulation and by hand, and what a
change is known to.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from ffnbench.stats.history import history_of
from ffnbench.stats.interval import Mean, VarianceEstimate

TYPED = 0.004, 3  # the prior as docs/methodology.md states it


def run(mean: float, error: float = 0.001, freedom: float = 6.0) -> Mean:
    return Mean(mean, error, freedom)


def test_one_run_is_held_to_the_prior() -> None:
    sd, freedom = TYPED
    change = history_of([run(0.01)]).change(run(0.05, 0.002, 8.0))
    assert change.mean == pytest.approx(0.04)
    variances = {2 * sd**2: freedom, 0.001**2: 6.0, 0.002**2: 8.0}
    total = sum(variances)
    assert change.error == pytest.approx(math.sqrt(total))
    assert change.freedom == pytest.approx(
        total**2 / sum(v**2 / n for v, n in variances.items())
    )


def test_the_prior_counts_as_so_many_degrees_of_freedom() -> None:
    """By hand, of three runs: successive differences of 1 and 2 %, degrees of freedom 2
    * 2^2 / 5, errors of 0.1 %.
    """
    sd, freedom = TYPED
    between = history_of([run(0.0), run(0.01), run(0.03)]).between
    found, seen = (0.01**2 / 2 + 0.02**2 / 2) / 2 - 0.001**2, 1.6
    assert between.freedom == pytest.approx(freedom + seen)
    assert between.variance == pytest.approx(
        (freedom * sd**2 + seen * found) / (freedom + seen)
    )
    assert history_of([run(0.0)]).between == VarianceEstimate(sd**2, freedom)


def test_many_runs_show_what_moves_between_them() -> None:
    dice = np.random.default_rng(3)
    found = [
        history_of(
            [run(m, 0.001) for m in dice.normal(0, math.hypot(0.006, 0.001), 20)]
        )
        for _ in range(300)
    ]
    prior, weight = TYPED
    # of 19 successive differences, by von Neumann and others (1941): 2 * 19^2 / 56
    seen = 12.89
    expected = (weight * prior**2 + seen * 0.006**2) / (weight + seen)
    assert np.mean([h.between.variance for h in found]) == pytest.approx(
        expected, rel=0.05
    )
    assert {round(h.between.freedom, 2) for h in found} == {weight + seen}
    assert np.mean([h.effective for h in found]) == pytest.approx(20, rel=0.01)


@pytest.mark.parametrize(
    ("sd", "runs", "low", "high"),
    [(0.004, 1, 0.93, 1.0), (0.006, 20, 0.93, 0.97), (0.003, 20, 0.94, 0.98)],
)
def test_the_interval_of_a_change_covers(
    sd: float, runs: int, low: float, high: float
) -> None:
    """Runs that move by a known normal effect; with twenty of them what is said is what
    they do.
    """
    dice = np.random.default_rng(11)
    covered = 0
    for _ in range(1500):
        means = dice.normal(0, math.hypot(sd, 0.001), runs + 1)
        errors = 0.001 * np.sqrt(dice.chisquare(6, runs + 1) / 6)
        *past, now = [Mean(m, e, 6.0) for m, e in zip(means, errors, strict=True)]
        interval = history_of(past).change(now).interval(0.95)
        covered += interval[0] <= 0 <= interval[1]
    assert low <= covered / 1500 <= high


def test_the_degrees_of_freedom_of_successive_differences() -> None:
    """By simulation: twice the squared mean over the variance, as for a chi-squared
    variable.
    """
    for runs in (3, 6, 20):
        steps = np.diff(
            np.random.default_rng(4).standard_normal((20_000, runs)), axis=1
        )
        squares = (steps**2).mean(1) / 2
        history = history_of([run(0.0)] * runs)
        assert history.between.freedom - TYPED[1] == pytest.approx(
            2 * squares.mean() ** 2 / squares.var(), rel=0.06
        )


def test_steps_are_not_scatter() -> None:
    dice = np.random.default_rng(2)
    rising = [run(0.005 * k + dice.normal(0, 0.002)) for k in range(12)]
    assert math.sqrt(history_of(rising).between.variance) < 0.006  # their sd is 1.8 %
