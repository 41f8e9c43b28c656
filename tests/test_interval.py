"""The centre of values that are not equally sure: by hand where they are, by simulation where they are not."""

from __future__ import annotations

import math
import random

import pytest

from ffnbench.stats.interval import (
    LEAST_SCATTER,
    Value,
    WeightedMean,
    between_placements,
    mean_of,
    value_of,
    weighted_mean,
    within_variance,
)


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
    assert math.sqrt(within_variance([rounds])) == pytest.approx(0.01, rel=0.4)
    assert value_of([rounds], 0.0).variance == pytest.approx(math.pi / 2 * within_variance([rounds]) / 100)
    assert within_variance([[1.0] * 9 + [2.0]]) > 0  # more than half are equal: the plain variance


def test_a_workers_value_is_over_its_placements() -> None:
    """The median of all rounds, as sure as its placements and rounds make it: pi / 2 is what a median costs."""
    placed = [[0.0, 0.1, 0.2], [0.1, 0.2, 0.3, 0.3, 0.3, 0.4, 0.5]]
    assert value_of(placed, placement=0.0).log == pytest.approx(0.25)
    assert value_of([[0.1] * 4, [0.3] * 4], placement=0.04).variance == pytest.approx(math.pi / 2 * 0.02)
    assert value_of([[0.1] * 8], placement=0.04).variance == pytest.approx(math.pi / 2 * 0.04)


def test_a_burst_in_a_few_rounds_of_short_placements_moves_no_worker() -> None:
    """A seventh of the rounds takes half as long again, on placements of three rounds."""
    dice, off = random.Random(7), []
    for _ in range(200):
        rounds = [dice.gauss(0, 0.01) + (0.4 if dice.random() < 0.15 else 0) for _ in range(30)]
        off.append(value_of([rounds[i : i + 3] for i in range(0, 30, 3)], 0.0).log)
    assert math.sqrt(sum(v * v for v in off) / len(off)) < 0.004


def made(dice: random.Random, workers: int, placements: int, *, worker: float, placement: float, rounds: float):  # type: ignore[no-untyped-def]
    """Logs of six rounds on each placement, with these standard deviations."""
    found = []
    for _ in range(workers):
        own = dice.gauss(0, worker)
        places = [own + dice.gauss(0, placement) for _ in range(placements)]
        found.append([[dice.gauss(place, rounds) for _ in range(6)] for place in places])
    return found


def test_the_scatter_between_placements_is_found_apart_from_that_of_rounds() -> None:
    dice = random.Random(3)
    apart, freedom = between_placements(made(dice, 40, 8, worker=0.05, placement=0.04, rounds=0.03))
    assert (math.sqrt(apart), freedom) == (pytest.approx(0.04, rel=0.1), 40 * 7)
    none, _ = between_placements(made(dice, 40, 8, worker=0.05, placement=0.0, rounds=0.03))
    assert math.sqrt(none) < 0.008
    assert between_placements([[[0.1, 0.2]], [[0.3]]]) == (0.0, 0)


@pytest.mark.parametrize("rounds_each", [2, 3, 4, 5, 6, 8, 10, 15, 30])
def test_the_scatter_of_rounds_does_not_depend_on_how_many_a_placement_has(rounds_each: int) -> None:
    dice = random.Random(rounds_each)
    found = [within_variance([[dice.gauss(5, 0.1) for _ in range(rounds_each)] for _ in range(12)]) for _ in range(300)]
    assert sum(found) / len(found) == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("worker", [0.0, 0.01])
def test_placements_are_never_counted_as_workers(worker: float) -> None:
    """Five workers of eight placements each: the interval covers 95 %, whether or not workers differ."""
    dice, covered, runs = random.Random(4), 0, 1500
    for _ in range(runs):
        mean = mean_of(made(dice, 5, 8, worker=worker, placement=0.03, rounds=0.02))
        assert mean.freedom <= 4
        covered += abs(mean.mean) <= mean.half(0.95)
    assert 0.93 <= covered / runs <= 0.98


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
