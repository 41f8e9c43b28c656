"""The centre of values that are not equally sure: by hand where they are, by simulation where they are not."""

from __future__ import annotations

import math
import random

import pytest

from ffnbench.stats.interval import LEAST_SCATTER, Value, WeightedMean, robust_variance, value_of, weighted_mean


def plain(*logs: float) -> WeightedMean:
    return weighted_mean(Value(log) for log in logs)


def test_among_equals_it_is_students_interval() -> None:
    # t(0.975, 2) = 4.302653, t(0.975, 4) = 2.776445: any table
    centre = plain(1.0, 2.0, 3.0)
    assert (centre.mean, centre.freedom) == (pytest.approx(2.0), pytest.approx(2.0))
    assert centre.half(0.95) == pytest.approx(4.302653 / math.sqrt(3), abs=1e-6)
    five = plain(0.1, 0.2, 0.3, 0.4, 0.5)
    assert five.half(0.95) == pytest.approx(2.776445 * math.sqrt(0.025) / math.sqrt(5), abs=1e-6)
    assert five.interval(0.95) == pytest.approx((0.3 - five.half(0.95), 0.3 + five.half(0.95)))


def test_p_is_students() -> None:
    # t = 3.4641 with 2 degrees of freedom; the two-sided p of t_2 is 1 - t / sqrt(t^2 + 2)
    assert plain(1.0, 2.0, 3.0).p_value() == pytest.approx(1 - 12**0.5 / 14**0.5)
    assert plain(-1.0, -2.0, -3.0).p_value() == pytest.approx(plain(1.0, 2.0, 3.0).p_value())
    assert plain(1.0, 2.0, 3.0).p_above(2.0) == pytest.approx(0.5)
    assert plain(1.0, 2.0, 3.0).p_above(0.0) == pytest.approx(plain(1.0, 2.0, 3.0).p_value() / 2)


def test_one_value_has_no_interval_and_equal_ones_no_doubt() -> None:
    assert plain(1.0).interval(0.95) is None
    assert plain(1.0).p_value() == 1.0
    assert plain(0.1, 0.1, 0.1).interval(0.95) == pytest.approx((0.1, 0.1))
    assert plain(0.1, 0.1, 0.1).p_value() == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="no value"):
        plain()


def test_a_disturbed_worker_counts_for_little() -> None:
    quiet = [Value(log, 1e-6) for log in (0.010, 0.011, 0.009, 0.010)]
    disturbed = Value(0.2, 0.1**2)
    centre = weighted_mean([*quiet, disturbed])
    assert centre.mean == pytest.approx(0.010, abs=0.001)
    assert centre.half(0.95) < 0.02
    assert plain(*(v.log for v in [*quiet, disturbed])).mean > 0.04
    assert 2 < centre.freedom < 4  # four workers carry the weight, and five were there


def test_workers_that_scatter_more_than_their_rounds_explain_count_alike() -> None:
    apart = [Value(log, variance) for log, variance in ((0.1, 1e-6), (-0.1, 1e-4), (0.05, 1e-5), (-0.05, 1e-6))]
    assert weighted_mean(apart).freedom == pytest.approx(3, abs=0.05)
    assert weighted_mean(apart).mean == pytest.approx(0.0, abs=0.003)


def test_no_worker_is_taken_to_be_surer_than_the_floor() -> None:
    certain, sure = Value(0.0, 0.0), Value(0.002, LEAST_SCATTER**2)
    assert weighted_mean([certain, sure]).mean == pytest.approx(0.002 / 3)  # weights 2 : 1, not infinitely many


def test_a_burst_is_not_the_scatter_of_the_other_rounds() -> None:
    dice = random.Random(0)
    rounds = [dice.gauss(0, 0.01) for _ in range(90)] + [0.5] * 10
    assert math.sqrt(robust_variance(rounds)) == pytest.approx(0.01, rel=0.4)
    assert value_of(rounds).variance == pytest.approx(math.pi / 2 * robust_variance(rounds) / 100)
    assert robust_variance([1.0] * 9 + [2.0]) > 0  # more than half are equal: the plain variance


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_the_interval_covers_among_quiet_and_disturbed_workers(share: float) -> None:
    dice, covered, runs, error = random.Random(1), 0, 2000, []
    for _ in range(runs):
        values = []
        for _ in range(6):
            own = 0.05 if dice.random() < share else 0.002
            values.append(Value(dice.gauss(0, math.hypot(own, 0.003)), own**2 * dice.gammavariate(8, 1 / 8)))
        low, high = weighted_mean(values).interval(0.95)
        covered += low <= 0 <= high
        error.append(weighted_mean(values).mean ** 2)
    assert 0.93 <= covered / runs <= 0.98
    plain_error = math.hypot(0.003, 0.002) ** 2 / 6 * (1 - share) + share * 0.05**2 / 6
    if share:
        assert sum(error) / runs < plain_error / 3
