"""What the exams count as alarms. And a check that stays unclear."""

from __future__ import annotations

import pytest
from exam.alarms import Alarm, broken_promises, check_plan, check_policy, counts
from exam.machine import Machine, World

from ffnbench.gate.decision import Status, baseline_times
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.run.runner import run_workers

CALM = World(name="calm", layout=0.001, starter=0.0, sample=0.01)


def alarm(**facts: object) -> Alarm:
    settings = {
        "condition": "quiet",
        "repeat": 0,
        "injected": 0.0,
        "row": "swiglu",
        "status": "OK",
        "change": 1.0,
    }
    return Alarm(**{**settings, "low": 0.99, "high": 1.01, "seconds": 10.0, **facts})  # type: ignore[arg-type]


def test_counting_checks() -> None:
    """A check is accused once however many of its rows are; the slowed row is no
    wolf.
    """
    alarms = [
        alarm(status="REGRESSED"), alarm(row="gelu", status="REGRESSED"), alarm(repeat=1), alarm(repeat=1, row="gelu"),
        alarm(repeat=0, condition="bursts 3 s", status="UNCLEAR"),
        alarm(injected=0.05, status="REGRESSED", change=1.05), alarm(injected=0.05, row="gelu", status="REGRESSED"),
        alarm(injected=0.05, repeat=1, status="OK", change=1.05 * 1.01),
    ]  # fmt: skip
    unchanged, slowed = counts(alarms, "quiet", 0.0), counts(alarms, "quiet", 0.05)
    assert (unchanged.checks, unchanged.false_alarms) == (2, 1)
    assert (slowed.checks, slowed.found, slowed.false_alarms) == (2, 1, 1)
    assert slowed.error == pytest.approx(0.00995 / 3**0.5, rel=1e-3)
    assert counts(alarms, None, 0.0).unclear == 1
    assert broken_promises(alarms) == ["2 false alarms"]


def test_a_check_that_stays_unclear_has_used_its_budget() -> None:
    plan = check_plan(variants="relu,swiglu")
    before = latency_report(Machine(CALM, plan, 0).run(run_workers))
    loud = Machine(World(name="loud", sample=0.5, layout=0.5), plan, 1)
    policy = check_policy(0.05)
    stop = UntilDecided(policy, baseline_times(before))
    now = latency_report(
        loud.measure(plan_of_check(before.plan, policy, 60.0), run_workers, stop)
    )
    assert [finding.status for finding in stop.conclusion(now)] == [Status.UNCLEAR]
    assert 50.0 < loud.clock_s <= 62.0
