"""A check that stays unclear."""

from __future__ import annotations

from gate import check_plan
from simulated import Machine, World

from ffnbench.gate.decision import Policy, Status, baseline_times
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.run.runner import run_workers

CALM = World(name="calm", layout=0.001, starter=0.0, sample=0.01)


def test_a_check_that_stays_unclear_has_used_its_budget() -> None:
    plan, policy = check_plan("relu,swiglu"), Policy()
    before = latency_report(Machine(CALM, plan, 0).run(run_workers))
    loud = Machine(World(name="loud", sample=0.5, layout=0.5), plan, 1)
    stop = UntilDecided(policy, baseline_times(before))
    now = latency_report(
        loud.measure(plan_of_check(before.plan, policy, 60.0), run_workers, stop)
    )
    assert [finding.status for finding in stop.conclusion(now)] == [Status.UNCLEAR]
    assert 50.0 < loud.clock_s <= 62.0
