"""How a check measures: until every row is decided, or the budget is spent.

Pure but for the `measure` that it is handed: a real check measures in processes, the selftest on simulated machines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ffnbench.gate.decision import (
    DEFAULT_LATENCY,
    Finding,
    Policy,
    Status,
    latency_findings,
    past_of,
)
from ffnbench.metrics import LATENCY
from ffnbench.plan import Plan, control_of
from ffnbench.planning.effort import FINEST, MIN_ROUNDS, MIN_WORKERS
from ffnbench.result import Report, Run, raw_of
from ffnbench.stats.interval import CONFIDENCE
from ffnbench.stats.rounds import Table, table_of
from ffnbench.stats.stopping import FIRST_LOOK, Answered, Pace, hoped_for, looks, scatter
from ffnbench.stats.verdict import summarise

# A run that stops when each row is decided stops too often on a value that is off by chance, most of all where the true
# change is the tolerance. So each look takes a stricter level for the stated CONFIDENCE, and all of them together spend
# its error (Lan and DeMets 1983): by the workers that a run will have, the level after 6, 7, 8, 10, ... of them.
# benchmarks/spending.py reckons the levels and writes this file.
LEVELS = Path(__file__).with_name("look_levels.json")
# A row that a look has decided needs no interval as wide as that which decided it: with this level it covers the truth
# in 93.5-98 % over changes from 0 to three times the tolerance (tests/test_looks.py), with the look's own in 99.7 %.
REPORTED = 0.975
RESOLVED = 1.1  # half-width of a change, in tolerances
FINEST_PART = 3  # rounds are chosen for a precision of this part of the smallest tolerance
DECIDED = "decided"
Measure = Callable[[Plan, Answered], Report]
Find = Callable[[Report, float], list[Finding]]  # a run so far, and the level of the look at it


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a check has measured, and what follows for each row of latency."""

    findings: tuple[Finding, ...]
    now: Report


def look_back(before: Report, policy: Policy, budget: float, measure: Measure) -> Look:
    """Measure the latency of a baseline's rows until each is decided, for at most so many seconds."""
    past = past_of(before, policy)

    def find(now: Report, confidence: float) -> list[Finding]:
        here = replace(now, environment=now.environment or before.environment)
        return latency_findings(past, here, policy, confidence)

    return look(before.plan, find, policy, budget, measure)


def look(plan: Plan, find: Find, policy: Policy, budget: float, measure: Measure) -> Look:
    """Measure a plan's rows, whatever they are held against: `find` says what a run of it shows."""

    level = CONFIDENCE  # of the last look

    def answered(table: Table, expected: int) -> str:
        nonlocal level
        level = level_of_look(table.whole_workers, expected)
        so_far = Run(plan=table.plan, samples=tuple(table.samples))
        return decided(find(report_of(so_far), level))

    now = measure(plan_of_check(plan, policy, budget), answered)
    ended = min(level, REPORTED) if now.limit == DECIDED else level_at_end(table_of(now).whole_workers)
    return Look(findings=tuple(find(now, ended)), now=now)


@cache
def look_levels() -> dict[int, list[float]]:
    """The levels of the looks of a run, by the number of workers that it will have."""
    rows = json.loads(LEVELS.read_text(encoding="utf-8"))
    return {int(workers): levels for workers, levels in rows.items()}


def level_of_look(workers: int, expected: int) -> float:
    """The level that a look after so many workers takes for the stated CONFIDENCE, where that many are expected."""
    rows = look_levels()
    wanted = min(max(workers, expected), max(rows))
    row = rows[min(planned for planned in rows if planned >= wanted)]
    number = sum(at <= workers for at in looks())  # of this look
    return row[min(max(number, 1), len(row)) - 1]


def level_at_end(workers: int) -> float:
    """The level of a run that ends undecided after so many workers: it spends what is left."""
    rows = look_levels()
    return rows[min((planned for planned in rows if planned >= workers), default=max(rows))][-1]


def decided(found: Iterable[Finding]) -> str:
    """`decided` where no row is unclear."""
    return DECIDED if Status.UNCLEAR not in {finding.status for finding in found} else ""


def plan_of_check(plan: Plan, policy: Policy, budget: float) -> Plan:
    """The plan with the control, measured until each row is decided."""
    tolerances = [policy.of(case.label, LATENCY) for case in plan.shown if not plan.is_reference(case.label)]
    precision = max(FINEST / 100, min(tolerances, default=DEFAULT_LATENCY) / FINEST_PART)
    protocol = replace(plan.protocol, workers=MIN_WORKERS, rounds=MIN_ROUNDS, precision=precision, budget_s=budget)
    return replace(plan, cases=(*plan.shown, control_of(plan.shown, plan.reference)), protocol=protocol)


def report_of(run: Run) -> Report:
    """A run with its comparisons, and without costs: all that latency is decided by."""
    return Report(costs=(), created="", version="", comparisons=summarise(run)[1], **raw_of(run))


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """How well checks of a row will know its change, as far as the baseline's scatter and pace can tell: `half` is half
    the interval, in logs.
    """

    case: str
    tolerance: float
    half: float

    @property
    def resolved(self) -> bool:
        """Whether the tolerance can be told apart from noise: with more, most checks of unchanged code are unclear."""
        return self.half <= RESOLVED * math.log1p(self.tolerance)

    @property
    def would_do(self) -> float:
        """The smallest tolerance that could be."""
        return math.expm1(self.half / RESOLVED)


def foretell(before: Report, policy: Policy, budget: float) -> list[Foretold]:
    """What to expect of checks of that budget, for each row whose latency would be checked; a row of which the baseline
    knows nothing is left out.
    """
    planned = plan_of_check(before.plan, policy, budget)
    hoped = hoped_for(planned.protocol, scatter(table_of(before)), pace_of(before))
    hoped = hoped.inflated(level_at_end(max(FIRST_LOOK, int(hoped.freedom))))
    rows = past_of(before, replace(policy, absolute=False)).rows
    return [
        Foretold(
            case=label,
            tolerance=policy.of(label, LATENCY),
            half=history.changes(hoped)[0].difference.half(CONFIDENCE),
        )
        for (label, _), history in rows.items()
        if history
    ]


def unresolved(rows: Iterable[Foretold]) -> Foretold | None:
    """The first row whose tolerance is refused."""
    return next((row for row in rows if not row.resolved), None)


def pace_of(report: Report) -> Pace:
    """What a worker and a round cost in a run, with a control beside its cases."""
    by_round: dict[tuple[int, int], float] = {}
    for sample in report.samples:
        if sample.metric == LATENCY:
            key = (sample.worker, sample.round)
            by_round[key] = by_round.get(key, 0.0) + sample.value * sample.calls
    if not by_round or not report.wall_s:
        return Pace(0.0, 0.0)
    workers = len({worker for worker, _ in by_round})
    measured = sum(by_round.values())
    with_control = 1 + 1 / len(report.plan.shown)
    return Pace(max(0.0, report.wall_s - measured) / workers * with_control, measured / len(by_round) * with_control)
