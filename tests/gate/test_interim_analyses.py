"""Looks that stop when a row is decided: what they cost is paid, over changes from 0 to
three times the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import spending
from fake_machine import FakeLaunch, measure, prepare, run
from scipy.special import stdtrit

from ffnbench.gate.decision import Finding, Policy, Status, baseline_times
from ffnbench.gate.interim import (
    REPORTED,
    UntilDecided,
    latency_report,
    level_at_end,
    level_of_analysis,
    plan_of_check,
)
from ffnbench.stats.stopping import interim_analyses

RUNS = 6000
TOLERANCES = (
    0.3,
    0.6,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
)  # in standard deviations of a worker
CHANGES = (
    0.0,
    0.25,
    0.5,
    0.75,
    0.9,
    1.0,
    1.1,
    1.25,
    1.5,
    2.0,
    2.5,
    3.0,
)  # in tolerances
WORKERS = (6, 7, 8, 12, 14, 22, 60, 110)  # as many as a budget has room for
Means = tuple[np.ndarray, np.ndarray]
Level = Callable[[int, int], float]  # (workers, workers at the end) -> level of a look


@pytest.fixture(scope="module")
def means() -> Means:
    """Of normal workers, by number of them: the mean and its standard error."""
    values = np.random.default_rng(20).standard_normal((RUNS, WORKERS[-1]))
    count = np.arange(1, WORKERS[-1] + 1)
    mean = np.cumsum(values, 1) / count
    variance = (np.cumsum(values**2, 1) - count * mean**2) / np.maximum(count - 1, 1)
    return mean, np.sqrt(np.maximum(variance, 0) / count)


def coverage(
    means: Means, level: Level, pace: float, end: int, tolerance: float, change: float
) -> float:
    """How often the interval at the end of a run holds the true change. What is to come
    is misjudged by `pace`.
    """
    mean, error = means
    going, covered = np.ones(RUNS, bool), np.zeros(RUNS, bool)

    def half(workers: int, confidence: float) -> np.ndarray:
        return stdtrit(workers - 1, 0.5 + confidence / 2) * error[:, workers - 1]

    for workers in [n for n in interim_analyses() if n <= end]:
        deciding = level(workers, workers + int(pace * (end - workers)))
        apart = np.abs(mean[:, workers - 1] + change - tolerance)
        stops = going & (apart > half(workers, deciding))
        covered[stops] = (
            np.abs(mean[:, workers - 1]) <= half(workers, min(deciding, REPORTED))
        )[stops]
        going &= ~stops
    covered[going] = (np.abs(mean[:, end - 1]) <= half(end, level_at_end(end)))[going]
    return float(covered.mean())


def coverages(
    means: Means, level: Level, pace: float = 1.0
) -> dict[tuple[int, float, float], float]:
    return {
        (end, tolerance, share): coverage(
            means, level, pace, end, tolerance, share * tolerance
        )
        for end in WORKERS
        for tolerance in TOLERANCES
        for share in CHANGES
    }


def test_the_interval_at_the_end_covers_whatever_the_change(means: Means) -> None:
    found = coverages(means, level_of_analysis)
    # 93.6 % with 20,000 runs; two standard errors are 0.6 %
    assert min(found.values()) > 0.93
    assert max(found.values()) < 0.987
    assert 0.945 < np.mean(list(found.values())) < 0.975
    boundary = [cover for (_, _, share), cover in found.items() if share == 1.0]
    assert min(boundary) > 0.935
    for pace in (0.5, 2.0):  # another number of workers than was expected
        found = coverages(means, level_of_analysis, pace)
        assert min(found.values()) > 0.92
        assert np.mean(list(found.values())) > 0.94


def test_looks_that_are_not_paid_for_cover_too_rarely(means: Means) -> None:
    """The test above can fail: every look at the stated level."""
    found = coverages(means, lambda workers, expected: 0.95)
    assert min(found.values()) < 0.9


@pytest.mark.parametrize("workers", [6, 12, 27, 121])
def test_the_levels_are_those_that_the_benchmark_reckons(workers: int) -> None:
    """By dice of another seed, of the statistic that decides: each run leaves out the
    truth in 5 %.
    """
    at = [count for count in interim_analyses() if count <= workers]
    p = spending.p_values(spending.Machine(), at, 40_000, np.random.default_rng(7))
    left_out = spending.left_out(p, [level_of_analysis(count, workers) for count in at])
    assert (
        left_out == pytest.approx(0.05, abs=0.006) if workers > 6 else left_out < 0.05
    )
    spending.check_against_the_program(np.random.default_rng(8))


def test_every_look_of_a_check_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which level each look at a check took, and with how many workers."""
    from ffnbench.gate import interim as module

    asked: list[tuple[int, float]] = []
    real = module.latency_findings

    def watched(now, policy: Policy, baseline, confidence: float) -> list[Finding]:
        asked.append((len({sample.worker for sample in now.samples}), confidence))
        found = real(now, policy, baseline, confidence)
        if len(asked) < 4:
            return [replace(f, status=Status.UNCLEAR) for f in found]
        return found

    monkeypatch.setattr(module, "latency_findings", watched)
    request = dict(variants="relu,gelu", d_model=64, threads=1, metrics="latency")
    before = measure(prepare(**request), launch=FakeLaunch())
    stop = UntilDecided(Policy(), baseline_times(before))
    plan = plan_of_check(before.plan, Policy(), 120.0)
    now = latency_report(run(plan, launch=FakeLaunch(), stop=stop))
    assert [f.status for f in stop.conclusion(now)] == [Status.OK]
    *looks, last = asked
    assert last == (10, REPORTED)
    assert [workers for workers, _ in looks] == [6, 7, 8, 10]
    # a run with room for many workers: no look takes the stated level
    assert min(level for _, level in looks) > REPORTED
