"""How a check measures: until every row is decided, or the budget is spent. This is a
group-sequential test.

A real check measures its plan in processes, the exams of benchmarks/ on simulated
machines, both with this rule. The only I/O is to read the table of levels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ffnbench.gate.decision import (
    DEFAULT_LATENCY,
    BaselineTimes,
    Finding,
    Policy,
    Status,
    latency_findings,
)
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Plan, control_of
from ffnbench.plan.protocol import FINEST, MIN_ROUNDS, MIN_WORKERS
from ffnbench.record.result import CONFIDENCE, Report, Run, fields_of
from ffnbench.stats.rounds import complete_workers
from ffnbench.stats.stopping import UntilAnswered, interim_analyses

# A run that stops when each row is decided stops too often on a value that is off by
# chance, most of all where the true change is the tolerance. So each interim analysis
# takes a stricter level for the stated CONFIDENCE, and all of them together spend its
# error (alpha spending, Lan and DeMets 1983): by the workers that a run will have, the
# level after 6, 7, 8, 10, ... of them. benchmarks/spending.py computes the levels and
# writes this file.
LEVELS_FILE = Path(__file__).with_name("interim_levels.json")
# A row that an analysis has decided needs no interval as wide as that which decided it:
# over changes from 0 to three times the tolerance one of this level covers the truth in
# 93.5-98 %, one of the analysis' own in 99.7 % (tests/gate/test_interim_analyses.py).
REPORTED = 0.975
# the rounds of a worker are chosen as for a precision of the smallest tolerance divided
# by this
FINEST_PART = 3
DECIDED = "decided"


@dataclass(slots=True)
class UntilDecided(UntilAnswered):
    """A run ends once no row is unclear.

    The rows are checked against a `baseline`, or if that is None, head against base in
    the same run.
    """

    policy: Policy
    baseline: BaselineTimes | None = None
    level: float = CONFIDENCE  # of the last interim analysis

    def answer(self, run: Run, expected: int) -> str:
        """`decided` if no row is unclear at the level of the analysis after so many
        workers.
        """
        self.level = level_of_analysis(complete_workers(run), expected)
        findings = latency_findings(
            latency_report(run), self.policy, self.baseline, self.level
        )
        statuses = {finding.status for finding in findings}
        return "" if Status.UNCLEAR in statuses else DECIDED

    def conclusion(self, now: Report) -> list[Finding]:
        """The findings of a run that has ended."""
        level = level_at_end(complete_workers(now))
        if now.limit == DECIDED:
            level = min(self.level, REPORTED)
        return latency_findings(now, self.policy, self.baseline, level)


@cache
def interim_levels() -> dict[int, list[float]]:
    """The table of levels: by the number of workers that a run will have, the level of
    each of its interim analyses.
    """
    rows = json.loads(LEVELS_FILE.read_text(encoding="utf-8"))
    return {int(workers): levels for workers, levels in rows.items()}


def _levels_of(workers: int) -> list[float]:
    """The levels of a run of so many workers: those of the next larger number in the
    table, or of its largest one.
    """
    rows = interim_levels()
    larger = [planned for planned in rows if planned >= workers]
    return rows[min(larger, default=max(rows))]


def level_of_analysis(workers: int, expected: int) -> float:
    """The level that the analysis after so many workers takes for the stated
    CONFIDENCE, if the run will have `expected` workers.
    """
    levels = _levels_of(max(workers, expected))
    # of this analysis, the first one being 1
    number = sum(at <= workers for at in interim_analyses())
    return levels[min(max(number, 1), len(levels)) - 1]


def level_at_end(workers: int) -> float:
    """The level of a run that ends undecided after so many workers: it spends all of
    the error that is left.
    """
    return _levels_of(workers)[-1]


def plan_of_check(plan: Plan, policy: Policy, budget_s: float) -> Plan:
    """The plan with the control, and with a protocol that measures once, until each row
    is decided.
    """
    tolerances = [
        policy.of(case.label, LATENCY)
        for case in plan.shown
        if not plan.is_reference(case.label)
    ]
    smallest = min(tolerances, default=DEFAULT_LATENCY)
    protocol = replace(
        plan.protocol,
        workers=MIN_WORKERS,
        rounds=MIN_ROUNDS,
        precision=max(FINEST / 100, smallest / FINEST_PART),  # FINEST is in percent
        budget_s=budget_s,
        runs=1,
    )
    control = control_of(plan.shown, plan.reference)
    return replace(plan, cases=(*plan.shown, control), protocol=protocol)


def latency_report(run: Run) -> Report:
    """A report of a run with all that decides latency, and nothing else."""
    return Report(costs=(), created="", version="", **fields_of(Run, run))
