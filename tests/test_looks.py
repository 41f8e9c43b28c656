"""Looks that stop when a row is decided: what they cost is paid, over changes from 0 to three times the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conftest import FakeLaunch
from scipy.special import stdtrit

from ffnbench import api
from ffnbench.gate.decision import Finding, Policy, Status
from ffnbench.gate.looks import FIRST, LAST, LATER, level_after, level_at_end, look_back, report_of
from ffnbench.request import CompareRequest
from ffnbench.run.runner import run
from ffnbench.stats.stopping import looks

RUNS = 6000
TOLERANCES = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)  # in standard deviations of a worker
CHANGES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0)  # in tolerances
WORKERS = (6, 7, 8, 14, 22, 60)  # as many as a budget has room for
Level = Callable[[int, bool], float]  # (workers, no further look) -> confidence


@pytest.fixture(scope="module")
def means() -> tuple[np.ndarray, np.ndarray]:
    """Of normal workers, by number of them: the mean and its standard error."""
    values = np.random.default_rng(20).standard_normal((RUNS, WORKERS[-1]))
    count = np.arange(1, WORKERS[-1] + 1)
    mean = np.cumsum(values, 1) / count
    variance = (np.cumsum(values**2, 1) - count * mean**2) / np.maximum(count - 1, 1)
    return mean, np.sqrt(np.maximum(variance, 0) / count)


def coverage(means: tuple[np.ndarray, np.ndarray], level: Level, most: int, tolerance: float, change: float) -> float:
    """How often the interval at the end of a run holds the true change."""
    mean, error = means
    going, covered = np.ones(RUNS, bool), np.zeros(RUNS, bool)
    for n in [n for n in looks() if n < most] + [most]:
        half = stdtrit(n - 1, 0.5 + level(n, n == most) / 2) * error[:, n - 1]
        found = mean[:, n - 1] + change
        decided = (found - half > tolerance) | (found + half <= tolerance)
        stop = going & (decided | (n == most))
        covered[stop] = (np.abs(mean[:, n - 1]) <= half)[stop]
        going &= ~stop
    return float(covered.mean())


def table(means: tuple[np.ndarray, np.ndarray], level: Level) -> dict[tuple[int, float, float], float]:
    return {
        (most, tolerance, share): coverage(means, level, most, tolerance, share * tolerance)
        for most in WORKERS
        for tolerance in TOLERANCES
        for share in CHANGES
    }


def inflated(workers: int, last: bool) -> float:
    return FIRST if workers <= 6 else LAST if last else LATER


def test_the_interval_at_the_end_covers_whatever_the_change(means) -> None:
    found = table(means, inflated)
    assert min(found.values()) > 0.935  # 94.2 % with 20,000 runs; two standard errors are 0.6 %
    assert max(found.values()) < 0.985
    assert 0.945 < np.mean(list(found.values())) < 0.975
    boundary = [cover for (_, _, share), cover in found.items() if share == 1.0]
    assert min(boundary) > 0.935


def measured(limit: str, workers: int) -> object:
    request = CompareRequest(variants="relu,gelu", d_model=64, threads=1, metrics="latency", workers=workers, rounds=6)
    return replace(api.measure(api.prepare(request), launch=FakeLaunch()), limit=limit)


@pytest.mark.parametrize(
    ("limit", "workers", "level"),
    [("decided", 6, 0.96), ("decided", 7, 0.998), ("budget", 6, 0.96), ("budget", 7, 0.985), ("workers", 12, 0.985)],
)
def test_the_level_of_a_run_is_that_of_the_look_that_ended_it(limit: str, workers: int, level: float) -> None:
    report = measured(limit, workers)
    assert level_at_end(report) == level
    assert level_after(workers) == (0.96 if workers <= 6 else 0.998)


def test_every_look_of_a_check_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which level each look at a check took, and with how many workers."""
    from ffnbench.gate import looks as module

    asked: list[tuple[int, float]] = []
    real = module.latency_findings

    def watched(past, now, policy: Policy, confidence: float) -> list[Finding]:
        asked.append((len({sample.worker for sample in now.samples}), confidence))
        found = real(past, now, policy, confidence)
        return [replace(f, status=Status.UNCLEAR) for f in found] if len(asked) < 4 else found

    monkeypatch.setattr(module, "latency_findings", watched)
    request = CompareRequest(variants="relu,gelu", d_model=64, threads=1, metrics="latency")
    before = api.measure(api.prepare(request), launch=FakeLaunch())
    found = look_back(
        before, Policy(), 120.0, lambda plan, answered: report_of(run(plan, launch=FakeLaunch(), answered=answered))
    )
    assert [f.status for f in found.findings] == [Status.OK]
    assert asked == [(6, 0.96), (7, 0.998), (8, 0.998), (10, 0.998), (10, 0.998)]
