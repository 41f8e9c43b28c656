"""Beside other work: which rounds count, when a row is busy, what is said, and that a
run waits for quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_machine import FakeLaunch, FakeWorker, run
from made_up_runs import (
    WAITS,
    plan_of,
    run_of,
    ten_rounds,
    with_waits,
)
from simulated import ENVIRONMENT

from ffnbench.gate.decision import Policy, Status, baseline_times, latency_findings
from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import CONTROL, Plan, Protocol, control_of
from ffnbench.record.result import Comparison, Run, Verdict
from ffnbench.run.budget import Budget
from ffnbench.stats.verdict import summarise


def compared(done: Run) -> dict[str, Comparison]:
    return {c.case: c for c in summarise(done)[1]}


def test_rounds_in_which_the_threads_waited_do_not_count() -> None:
    done = ten_rounds(ratio=1.05, clean=6)
    row = compared(done)["b"]
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx(1.05, rel=0.005)
    assert (row.verdict, row.ratio.samples) == (Verdict.SLOWER, 24)


def test_a_row_without_quiet_rounds_is_what_was_seen() -> None:
    """Its ratio and seconds have no interval; a note says what would help."""
    done = ten_rounds(clean=0, disturbed=1.3)
    found = compared(done)
    assert found["b"].verdict is Verdict.BUSY
    assert found["b"].ratio.value == pytest.approx(1.3, rel=0.005)
    measured, _, (note,) = summarise(done)
    seconds = {one.case: one.estimate for one in measured}
    assert seconds["b"].value / seconds["a"].value == pytest.approx(
        found["b"].ratio.value
    )
    seen = (seconds["b"], found["b"].ratio)
    assert {(one.low, one.high) for one in seen} == {(None, None)}
    said = "busy: threads waited for a CPU; wait"
    assert note.text.startswith(said)


def test_a_few_quiet_rounds_of_a_busy_row_give_its_interval() -> None:
    """Of ten rounds of each process four are quiet: these alone count. They decide a
    row that is clearly slower; one that they do not decide is busy.
    """
    decided = compared(ten_rounds(ratio=1.2, clean=4))["b"]
    assert decided.verdict is Verdict.SLOWER
    plan = plan_of(workers=3, rounds=10)
    b = [[ratio] * 4 + [1.3] * 6 for ratio in (0.95, 1.0, 1.06)]
    waits = {("b", w, r): WAITS for w in range(3) for r in range(4, 10)}
    done = with_waits(run_of(plan, {"a": [[1.0] * 10] * 3, "b": b}), waits)
    row, measured = compared(done)["b"], summarise(done)[0]
    assert row.verdict is Verdict.BUSY
    assert row.ratio.low < 1 < row.ratio.high < 1.3
    assert all(one.estimate.low for one in measured)


def test_a_busy_control_gives_no_slack_and_accuses_nobody() -> None:
    plan = plan_of(workers=3, rounds=6)
    plan = replace(plan, cases=(*plan.cases, control_of(plan.cases, plan.reference)))
    values = {
        "a": [[1.0] * 6] * 3,
        "b": [[1.05, 1.05, 1.051, 1.05, 1.05, 1.05]] * 3,
        CONTROL: [[1.4] * 6] * 3,
    }
    done = with_waits(
        run_of(plan, values),
        {(CONTROL, w, r): WAITS for w in range(3) for r in range(6)},
    )
    found = compared(done)
    assert found["b"].verdict is Verdict.SLOWER
    assert found["b"].ratio.value == pytest.approx(
        1.05, abs=0.001
    )  # over the reference by itself
    assert not summarise(done)[2]


class Beside(FakeLaunch):
    """A machine with a neighbour until a moment of its clock: while it works, b takes
    1.27 times as long and waits.
    """

    def __init__(self, until_s: float) -> None:
        super().__init__(self.seconds_of)
        self.until_s, self.clock_s, self.taken = until_s, 0.0, 0
        self.burst_at: Callable[[int], bool] = lambda taken: False

    def __call__(self, arm: object = None) -> FakeWorker:
        self.clock_s += 1.0
        return super().__call__()

    def seconds_of(self, label: str, worker: int, number: int) -> float:
        self.clock_s += 0.02
        self.taken += 1
        busy = self.clock_s < self.until_s or self.burst_at(self.taken)
        self.waited = 0.7 if busy else 0.003
        return (
            0.02
            * (1.27 if busy and label == "b" else 1.0)
            * (1 + 0.0005 * (self.taken % 5))
        )

    def run(self, plan: Plan) -> Run:
        return run(
            plan, launch=self, now=lambda: self.clock_s, describe=lambda *_: ENVIRONMENT
        )


def plan_with(**options: Any) -> Plan:
    return plan_of(metrics="latency", **options)


def test_a_run_waits_for_quiet_and_uses_it() -> None:
    done = Beside(until_s=6.0).run(plan_with(budget=15.0))
    row = compared(done)["b"]
    assert row.verdict is Verdict.SAME
    assert done.limit == "precision"
    assert done.wall_s < 15.0
    assert (
        sum(s.waited > 0.03 for s in done.samples if s.waited is not None) > 50
    )  # they are kept


def test_a_disturbed_sample_is_taken_again_and_both_are_kept() -> None:
    """A burst that is over before the next sample costs that sample, and not the
    round.
    """
    machine = Beside(until_s=0.0)
    machine.burst_at = lambda taken: taken % 7 == 0
    done = machine.run(plan_with(budget=15.0))
    disturbed = [s for s in done.samples if s.waited == 0.7]
    again = {(s.case, s.worker, s.round) for s in done.samples if s.waited == 0.003}
    assert disturbed
    assert all((s.case, s.worker, s.round) in again for s in disturbed)
    row = compared(done)["b"]
    assert (row.verdict, row.ratio.value) == (
        Verdict.SAME,
        pytest.approx(1.0, abs=0.005),
    )


def test_a_disturbed_worker_makes_at_most_four_times_its_planned_rounds() -> None:
    protocol = Protocol(workers=3, rounds=6, precision=0.01, budget_s=1e6)
    budget = Budget(lambda: 0.0, protocol, began=0.0)
    budget.rounds = 20
    assert budget.is_enough(rounds=20, clean=20)
    assert not budget.is_enough(rounds=79, clean=19)
    assert budget.is_enough(rounds=80, clean=0)


def test_one_worker_that_had_quiet_is_no_answer_and_not_missing() -> None:
    """16 of 30 rounds are clean, 10 of them of one worker: the others say nothing, and
    the check can't tell.
    """
    plan = plan_of(workers=3, rounds=10)
    waits: dict[tuple[str, int, int], float | None] = {
        ("b", w, r): WAITS for w in (1, 2) for r in range(3, 10)
    }
    done = with_waits(
        run_of(plan, {"a": [[1.0] * 10] * 3, "b": [[1.2] * 10] * 3}), waits
    )
    assert compared(done)["b"].verdict is Verdict.BUSY
    before = replace(latency_report(ten_rounds(workers=3)), environment=ENVIRONMENT)
    now = replace(latency_report(done), environment=ENVIRONMENT)
    (finding,) = latency_findings(now, Policy(), baseline_times(before))
    assert finding.status is Status.UNCLEAR
    assert finding.reason.startswith("busy: ")
