"""How a check measures: until every row is decided, or the budget is spent. A
group-sequential test.

No I/O but for its table of levels: a real check measures the plan in processes, an exam
on simulated machines, both with this rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ffnbench.gate.decision import (
    DEFAULT_LATENCY,
    BaselineTimes,
    EarlierRun,
    Finding,
    Policy,
    Status,
    latency_findings,
    paired_findings,
)
from ffnbench.metrics import LATENCY
from ffnbench.plan import Plan, control_of
from ffnbench.planning.effort import FINEST, MIN_ROUNDS, MIN_WORKERS
from ffnbench.result import CONFIDENCE, Report, Run, raw_of
from ffnbench.stats.rounds import RoundTable, table_of
from ffnbench.stats.stopping import UntilAnswered, interim_analyses
from ffnbench.stats.verdict import summarise

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
# rounds are chosen for a precision of this part of the smallest tolerance
FINEST_PART = 3
DECIDED = "decided"


@dataclass(slots=True)
class UntilDecided(UntilAnswered):
    """Once no row is unclear: against a `baseline`, or where that is None, of head
    against the base of one run. With an `earlier` run on another machine, by both.
    """

    policy: Policy
    baseline: BaselineTimes | None = None
    level: float = CONFIDENCE  # of the last interim analysis
    earlier: EarlierRun | None = None

    def answer(self, table: RoundTable, expected: int) -> str:
        """`decided` where no row is unclear, at the level that the analysis after so
        many workers takes.
        """
        self.level = level_of_analysis(table.complete_workers, expected)
        run = Run(plan=table.plan, samples=tuple(table.samples))
        statuses = {
            finding.status for finding in self.findings(latency_report(run), self.level)
        }
        return "" if Status.UNCLEAR in statuses else DECIDED

    def conclusion(self, now: Report) -> list[Finding]:
        """What a run shows that has ended."""
        if now.limit == DECIDED:
            return self.findings(now, min(self.level, REPORTED))
        return self.findings(now, level_at_end(table_of(now).complete_workers))

    def findings(self, now: Report, level: float) -> list[Finding]:
        """What a run shows, each interval at this level."""
        if self.baseline is None:
            return paired_findings(now, self.policy, level, self.earlier)
        here = replace(
            now, environment=now.environment or self.baseline.report.environment
        )
        return latency_findings(self.baseline, here, self.policy, level, self.earlier)


@cache
def interim_levels() -> dict[int, list[float]]:
    """The levels of the interim analyses of a run, by the number of workers that it
    will have.
    """
    rows = json.loads(LEVELS_FILE.read_text(encoding="utf-8"))
    return {int(workers): levels for workers, levels in rows.items()}


def _levels_of(workers: int) -> list[float]:
    """The levels of a run of so many workers: of the next number of them in the table,
    or the largest.
    """
    rows = interim_levels()
    return rows[
        min((planned for planned in rows if planned >= workers), default=max(rows))
    ]


def level_of_analysis(workers: int, expected: int) -> float:
    """The level that the analysis after so many workers takes for the stated
    CONFIDENCE, of `expected` in all.
    """
    levels = _levels_of(max(workers, expected))
    number = sum(at <= workers for at in interim_analyses())  # of this analysis
    return levels[min(max(number, 1), len(levels)) - 1]


def level_at_end(workers: int) -> float:
    """The level of a run that ends undecided after so many workers: it spends what is
    left.
    """
    return _levels_of(workers)[-1]


def level_of_saved(run: Report) -> float:
    """The level of a run that has ended and was saved: at least that of its table."""
    if run.limit == DECIDED:
        return REPORTED
    return level_at_end(table_of(run).complete_workers)


def plan_of_check(plan: Plan, policy: Policy, budget_s: float) -> Plan:
    """The plan with the control, measured until each row is decided."""
    tolerances = [
        policy.of(case.label, LATENCY)
        for case in plan.shown
        if not plan.is_reference(case.label)
    ]
    precision = max(
        FINEST / 100, min(tolerances, default=DEFAULT_LATENCY) / FINEST_PART
    )
    protocol = replace(
        plan.protocol,
        workers=MIN_WORKERS,
        rounds=MIN_ROUNDS,
        precision=precision,
        budget_s=budget_s,
    )
    return replace(
        plan,
        cases=(*plan.shown, control_of(plan.shown, plan.reference)),
        protocol=protocol,
    )


def latency_report(run: Run) -> Report:
    """A run with its comparisons, and without costs: all that latency is decided by."""
    return Report(
        costs=(), created="", version="", comparisons=summarise(run)[1], **raw_of(run)
    )
