"""How a check measures: until every row is decided, or the budget is spent.

Pure but for the `measure` that it is handed: a real check measures in processes, the selftest on simulated machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

from ffnbench.gate.history import KEPT, History
from ffnbench.gate.regression import (
    Expected,
    Finding,
    Policy,
    Status,
    latency_findings,
    past_of,
)
from ffnbench.metrics import LATENCY
from ffnbench.plan import Plan, control_of
from ffnbench.planning.effort import FINEST, MIN_ROUNDS, MIN_WORKERS
from ffnbench.result import Report, Run, Sample
from ffnbench.stats.enough import FIRST_LOOK, Answered, Pace, hoped_for, scatter
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.rounds import whole_workers
from ffnbench.stats.verdict import summarise

# A run that stops when each row is decided stops too often on a value that is off by chance, most of all where the true
# change is the tolerance. The first look takes the first of these levels for a stated 95 %, each later one the second,
# and a run that ends undecided the third: the interval at the end then covers in 94-97.6 % over changes from 0 to three
# times the tolerance, tolerances of 0.3 to 10 sd of a worker, and up to 48 workers (tests/test_looks.py simulates it).
FIRST, LATER, LAST = 0.96, 0.998, 0.985
RESOLVED = 1.1  # half-width of a change, in tolerances: with more, most checks of unchanged code would be unclear
NINE_OF_TEN = 0.8  # two-sided: a value is above the lower end nine times of ten
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

    def answered(part: Plan, samples: Sequence[Sample]) -> str:
        return decided(find(_report_so_far(part, samples), look_level(part, samples)))

    now = measure(plan_of_check(plan, policy, budget), answered)
    return Look(findings=tuple(find(now, level_at_end(now))), now=now)


def look_level(plan: Plan, samples: Sequence[Sample]) -> float:
    """The level that a look at a run takes for a stated 95 %."""
    return level_after(whole_workers(plan, samples))


def level_after(workers: int) -> float:
    """The level that a look after so many workers takes for a stated 95 %."""
    return FIRST if workers <= FIRST_LOOK else LATER


def level_of_end(workers: int, limit: str) -> float:
    """The level of a run that has ended after so many workers by that limit."""
    level = level_after(workers)
    return level if limit == DECIDED or level == FIRST else LAST


def decided(found: Iterable[Finding]) -> str:
    """`decided` where no row is unclear."""
    return DECIDED if Status.UNCLEAR not in {finding.status for finding in found} else ""


def level_at_end(run: Report) -> float:
    """The level of a run that has ended: that of the look that decided it, or of the last one."""
    alive = {failure.case for failure in run.failures}
    plan = replace(run.plan, cases=tuple(case for case in run.plan.cases if case.label not in alive))
    return level_of_end(whole_workers(plan, run.samples), run.limit)


def plan_of_check(plan: Plan, policy: Policy, budget: float) -> Plan:
    """The plan with the control, measured until each row is decided."""
    precision = max(FINEST / 100, min(_tolerances(plan, policy), default=0.05) / FINEST_PART)
    protocol = replace(plan.protocol, workers=MIN_WORKERS, rounds=MIN_ROUNDS, precision=precision, budget_s=budget)
    return replace(plan, cases=(*plan.shown, control_of(plan.shown, plan.reference)), protocol=protocol)


def _tolerances(plan: Plan, policy: Policy) -> list[float]:
    return [policy.of(case.label, LATENCY) for case in plan.shown if not plan.is_reference(case.label)]


def _report_so_far(plan: Plan, samples: Sequence[Sample]) -> Report:
    return report_of(
        Run(
            plan=plan, samples=tuple(samples), failures=(), warnings=(), environment=None, interrupted=False,
            wall_s=0.0,
        )
    )  # fmt: skip


def report_of(run: Run) -> Report:
    """A run with its comparisons, and without costs: all that latency is decided by."""
    _, comparisons, _ = summarise(run)
    measured = {f.name: getattr(run, f.name) for f in fields(Run)}
    return Report(costs=(), created="", version="", comparisons=comparisons, **measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What the checks of a row will be like, as far as the baseline's scatter and pace can tell: `half` is that of a
    change's interval, `unclear` the share of checks of unchanged code that it leaves UNCLEAR, `caught` the slow-down
    that nine checks of ten find.
    """

    case: str
    tolerance: float
    half: float  # in logs
    unclear: float
    caught: float
    runs: int  # of the baseline
    endless: float  # the half with an endless budget
    enough_runs: int | None  # of the baseline that would do, within the same budget
    own: float  # half of the baseline's own interval, by its workers alone

    @property
    def resolved(self) -> bool:
        """Whether the tolerance can be told apart from noise."""
        return resolves(self.half, self.tolerance)

    @property
    def would_do(self) -> float:
        """The smallest tolerance that could be."""
        return math.expm1(self.half / RESOLVED)


def foretell(before: Report, policy: Policy, budget: float) -> list[Foretold]:
    """What to expect of checks of that budget, for each row whose latency would be checked; a row of which the baseline
    knows nothing is left out.
    """
    planned = plan_of_check(before.plan, policy, budget)
    hoped = hoped_for(planned.protocol, scatter(before.plan, before.samples), pace_of(before))
    rows = past_of(before, replace(policy, absolute=False)).rows
    return [foretold(label, policy.of(label, LATENCY), of, hoped) for (label, _), of in rows.items() if of]


def foretold(label: str, tolerance: float, history: History, hoped: Mean) -> Foretold:
    """What to expect of a row with that history, in runs that can know a log ratio as well as `hoped`."""
    limit = math.log1p(tolerance)
    wide, change = half_in_reach(history, hoped), history.change(replace(hoped, mean=history.mean))
    more = range(history.runs + 1, KEPT + 2)
    return Foretold(
        case=label,
        tolerance=tolerance,
        half=wide,
        unclear=1 - replace(change, mean=wide).p_above(limit),
        caught=math.expm1(min(limit + wide + change.half(NINE_OF_TEN), 700.0)),
        runs=history.runs,
        endless=half_in_reach(history, replace(hoped, error=0.0)),
        enough_runs=next((n for n in more if resolves(half_in_reach(history.after(n), hoped), tolerance)), None),
        own=Mean(0.0, math.sqrt(history.own.variance), history.own.freedom).half(CONFIDENCE),
    )


def half_in_reach(history: History, hoped: Mean) -> float:
    """Half the interval of a change (in logs) that runs which know a log ratio as well as `hoped` can reach."""
    return history.change(replace(hoped, mean=history.mean).inflated(LAST, CONFIDENCE)).half(CONFIDENCE)


def resolves(half: float, tolerance: float) -> bool:
    """Whether a change with such an interval can be held to the tolerance."""
    return half <= RESOLVED * math.log1p(tolerance)


def unresolved(rows: Sequence[Foretold]) -> Foretold | None:
    """The first row whose tolerance is refused."""
    return next((row for row in rows if not row.resolved), None)


def expected(rows: Sequence[Foretold]) -> Expected:
    """Of all rows together."""
    unclear = 1 - math.prod(1 - row.unclear for row in rows)
    return Expected(unclear=unclear, caught=max((row.caught for row in rows), default=0.0))


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
