"""How a check measures: a first look at every row until each is decided, a second one at its suspects alone.

Pure but for the `measure` that it is handed: a real check measures in processes, the selftest on simulated machines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Plan, control_of
from ffnbench.planning.effort import FINEST, LEAST_BUDGET_S, MIN_ROUNDS, MIN_WORKERS
from ffnbench.result import Report, Run, Sample
from ffnbench.stats.enough import Answered, Pace, finest_error, scatter
from ffnbench.stats.regression import (
    Finding,
    Policy,
    Status,
    between_runs,
    change_of,
    confirmed,
    latency_findings,
    row_of,
)
from ffnbench.stats.verdict import CONFIDENCE, level, summarise

FIRST_LOOK = 2 / 3  # of the budget: from then on a suspect waits for its second look
RESOLVED = 2  # half-width of a change, in tolerances: a change of three times the tolerance is then found
FINEST_PART = 3  # rounds are chosen for a precision of this part of the smallest tolerance
Measure = Callable[[Plan, Answered], Report]
Find = Callable[[Report], list[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What the two looks saw; `again` is None where there was no suspect."""

    findings: tuple[Finding, ...]
    now: Report
    again: Report | None = None


def two_looks(
    before: Report, policy: Policy, budget: float, measure: Measure, clock: Callable[[], float] = time.monotonic
) -> Looks:
    """Measure the latency of a baseline's rows until each is decided; what seems to have regressed, once more.

    `budget` is in seconds of `clock`, for both looks together.
    """

    def find(now: Report) -> list[Finding]:
        return latency_findings(before, replace(now, environment=now.environment or before.environment), policy)

    return looks_at(before.plan, find, policy, budget, measure, clock)


def looks_at(
    plan: Plan, find: Find, policy: Policy, budget: float, measure: Measure, clock: Callable[[], float] = time.monotonic
) -> Looks:
    """The two looks at a plan's rows, whatever they are held against: `find` says what a run of it shows."""
    start = clock()
    plan = first_plan(plan, policy, budget)

    def answered(part: Plan, samples: Sequence[Sample]) -> str:
        """Decided; or late with a suspect, which needs what is left of the budget."""
        now = find(_report_so_far(part, samples))
        late = clock() - start > FIRST_LOOK * budget and any(f.status is Status.REGRESSED for f in now)
        return "decided" if late or not any(f.status is Status.UNCLEAR for f in now) else ""

    now = measure(plan, answered)
    found = find(now)
    suspects = [finding.case for finding in found if finding.status is Status.REGRESSED]
    if not suspects or now.interrupted or now.stopped:
        return Looks(findings=tuple(found), now=now)
    second = _second_plan(plan, suspects, max(LEAST_BUDGET_S, budget - (clock() - start)))
    again = measure(second, lambda part, samples: _decided(find, part, samples, suspects))
    looked = [finding for finding in find(again) if finding.case in suspects]
    return Looks(findings=tuple(confirmed(found, looked)), now=now, again=again)


def first_plan(plan: Plan, policy: Policy, budget: float) -> Plan:
    """The plan with the control, measured until each row is decided."""
    precision = max(FINEST / 100, min(_tolerances(plan, policy), default=0.05) / FINEST_PART)
    protocol = replace(plan.protocol, workers=MIN_WORKERS, rounds=MIN_ROUNDS, precision=precision, budget_s=budget)
    return replace(plan, cases=(*plan.shown, control_of(plan.shown, plan.reference)), protocol=protocol)


def _tolerances(plan: Plan, policy: Policy) -> list[float]:
    return [policy.of(case.label, LATENCY) for case in plan.shown if not plan.is_reference(case.label)]


def _second_plan(plan: Plan, suspects: Sequence[str], budget: float) -> Plan:
    """The suspects alone, in new workers and every round in the opposite order."""
    wanted = {*suspects, *map(plan.reference_of, suspects), plan.reference, CONTROL}
    protocol = replace(plan.protocol, reversed=True, budget_s=budget)
    cases = tuple(case for case in plan.cases if case.label in wanted)
    return replace(plan, cases=cases, protocol=protocol, metrics=("latency",))


def _decided(find: Find, plan: Plan, samples: Sequence[Sample], rows: Sequence[str]) -> str:
    """`decided` where none of the latency rows that are asked for is unclear any more."""
    asked = [finding for finding in find(_report_so_far(plan, samples)) if finding.case in rows]
    return "" if any(finding.status is Status.UNCLEAR for finding in asked) else "decided"


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
class Blind:
    """A row whose tolerance can't be told apart from noise: its baseline, or any run of the budget, is too unsure."""

    case: str
    tolerance: float
    half: float  # of the interval, relative
    by_baseline: bool


def blind_row(before: Report, policy: Policy, budget: float) -> Blind | None:
    """The first row that could not be decided, foretold from the scatter and the pace that the baseline had."""
    first = first_plan(before.plan, policy, FIRST_LOOK * budget)
    error = finest_error(first.protocol, scatter(before.plan, before.samples), pace_of(before))
    for case in before.plan.shown:
        if before.plan.is_reference(case.label):
            continue
        mean, tolerance = row_of(before, case.label), policy.of(case.label, LATENCY)
        half = mean.half(CONFIDENCE) if mean else math.inf
        if mean is None or half > math.log1p(tolerance):
            return Blind(case=case.label, tolerance=tolerance, half=math.expm1(min(half, 10.0)), by_baseline=True)
        change = change_of(mean, replace(mean, error=error), between_runs(before.plan, case.label))
        hoped = change.difference.half(level(first.protocol))
        if hoped > RESOLVED * math.log1p(tolerance):
            return Blind(case=case.label, tolerance=tolerance, half=math.expm1(min(hoped, 10.0)), by_baseline=False)
    return None


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
