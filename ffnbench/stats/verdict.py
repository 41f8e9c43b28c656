"""From samples to estimates and verdicts. Pure; the replicate is the worker, a process with a block of rounds.

Within one process samples share memory layout and page placement, so their scatter says little about the next
process. Each worker therefore gives one value, and every interval is over workers (interval.py). Ratios are paired: per
round log(case / reference), over the rounds that nothing disturbed (rounds.py); their median is the worker's value.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from ffnbench.metrics import COMPILE, DEVICE_TIME, HOST_TIME, LATENCY, METRICS, PACK
from ffnbench.plan import CONTROL, Note, Plan
from ffnbench.result import Comparison, Estimate, FailureKind, Measured, Report, Run, Verdict, unjudged
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.noise import noise_notes
from ffnbench.stats.rounds import CLOCKS_HELD, CPUS_TAKEN, Row, Table, table_of
from ffnbench.units import percent

CONTROL_WITHIN = 0.05  # a control that is known no better says nothing
CONTROL_CONFIDENCE = 0.99  # a quiet machine is accused once in a hundred runs
SAME_WITHIN = 0.02
ONE_WORKER = "one worker gives no interval"

BESIDE = (DEVICE_TIME, HOST_TIME)  # seconds that come with each latency of an accelerator
ONCE = (COMPILE, PACK)  # timed once in every worker, before its rounds
TIMED = frozenset(metric.name for metric in METRICS if not metric.exact)

K = TypeVar("K")
R = TypeVar("R", bound=Report)


def holm(p_values: Mapping[K, float], alpha: float) -> set[K]:
    """The rows that differ, with a family-wise error of at most alpha (Holm 1979)."""
    found: set[K] = set()
    for rank, (label, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - rank):
            break
        found.add(label)
    return found


def decide(low: float, high: float) -> Verdict:
    """The verdict on the interval of a ratio: within SAME_WITHIN of 1 the same, else its side of 1, else can't tell."""
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return Verdict.SAME
    if low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if high < 1 else Verdict.UNCLEAR


def verdicts(means: Mapping[K, Mean], slack: float) -> dict[K, tuple[Verdict, str]]:
    """The verdicts on rows that have one reference, by the means of their logs; why, where one is UNCLEAR.

    The interval decides, widened by the `slack` (in logs) that the machine is off by; a difference has to hold by
    Holm's correction over all rows as well.
    """
    differ = holm({row: mean.p_value() for row, mean in means.items()}, 1 - CONFIDENCE)
    found = {}
    for row, mean in means.items():
        interval = mean.interval(CONFIDENCE)
        if interval is None:
            found[row] = Verdict.UNCLEAR, ONE_WORKER
            continue
        verdict, reason = decide(math.exp(interval[0] - slack), math.exp(interval[1] + slack)), ""
        if slack and verdict is Verdict.UNCLEAR:
            off = percent(math.expm1(slack))
            reason = f"the reference differs from itself by up to {off}: this machine can't tell now"
        elif verdict in (Verdict.SLOWER, Verdict.FASTER) and row not in differ:
            verdict = Verdict.UNCLEAR
            reason = (
                f"its interval leaves out 1 by less than chance explains, with {len(means)} rows (Holm's correction)"
            )
        found[row] = verdict, reason
    return found


def summarise(run: Run) -> tuple[tuple[Measured, ...], tuple[Comparison, ...], tuple[Note, ...]]:
    """Estimates, comparisons with the reference, and what a reader should be warned of. Failed cases have none."""
    failed = {failure.case for failure in run.failures}
    doubts = unjudged(run.judged) | {
        failure.case: f"the reference {failure.case} is suspect"
        for failure in run.failures
        if failure.kind is FailureKind.SUSPECT
    }
    labels = [case.label for case in run.plan.cases if case.label not in failed]
    table = table_of(run)
    comparisons = _comparisons(table, labels, doubts) if "latency" in run.plan.metrics else ()
    busy = {c.case for c in comparisons if c.verdict is Verdict.BUSY}
    measured = [
        found
        for metric in (LATENCY, *BESIDE)
        for label in labels
        if (found := _seconds(table_of(run, metric), label, label in busy))
    ]
    measured += [
        Measured(case=s.case, metric=s.metric, estimate=Estimate(value=s.value))
        for s in run.samples
        if s.metric not in TIMED and s.case not in failed
    ]
    measured += _once(run, labels)
    return tuple(measured), comparisons, tuple(noise_notes(run, measured, comparisons))


def with_suspects(report: R, other: Report) -> R:
    """With the rows that another run of the same plan found SUSPECT, and without the figures that they had."""
    known = {case.label for case in report.plan.cases}
    more = tuple(
        found
        for found in other.failures
        if found.kind is FailureKind.SUSPECT and found.case in known and not report.suspect(found.case)
    )
    if not more:
        return report
    found = replace(report, failures=(*report.failures, *more))
    measured, comparisons, _ = summarise(found)
    accused = {failure.case for failure in more}
    shares = tuple(share for share in report.shares if share.case not in accused)
    return replace(found, measured=measured, comparisons=comparisons, shares=shares)


def _seconds(table: Table, label: str, busy: bool) -> Measured | None:
    """Seconds over the clean rounds; over all of them, and marked, where these are too few or the row is busy."""
    row = table.seconds(label)
    disturbed = row.clean_rounds < row.rounds and (busy or len(row.clean) < min(2, len(row.every)))
    if (estimate := row.estimate(every=disturbed)) is None:
        return None
    return Measured(case=label, metric=table.metric, estimate=replace(estimate, disturbed=disturbed))


def _once(run: Run, labels: list[str]) -> list[Measured]:
    """Seconds of compiling and of packing, over workers; the number of looks does not depend on them."""
    return [
        Measured(case=label, metric=metric, estimate=estimate)
        for label in labels
        for metric in ONCE
        if (estimate := table_of(run, metric).seconds(label).estimate(every=True))
    ]


def _comparisons(table: Table, labels: list[str], doubts: dict[str, str]) -> tuple[Comparison, ...]:
    """`doubts` are why some rows have no verdict, and none is held against them."""
    plan = table.plan
    measured = [label for label in labels if label in table.rounds]
    rows = {label: table.row(label) for label in measured if not plan.is_reference(label)}
    means = {label: mean for label, row in rows.items() if (mean := row.mean())}
    slack = slack_of(means[CONTROL]) if CONTROL in means else 0.0
    families: dict[str, dict[str, Mean]] = defaultdict(dict)
    for label, mean in means.items():
        if label != CONTROL:
            families[plan.reference_of(label)][label] = mean
    decided = {CONTROL: _control(means[CONTROL], slack)} if CONTROL in means else {}
    for family in families.values():
        decided |= verdicts(family, slack)
    found = []
    for label in measured:
        reference = plan.reference_of(label)
        if plan.is_reference(label):
            one = Estimate(value=1.0, low=1.0, high=1.0, workers=len(table.rounds[label]))
            found.append(_comparison(plan, label, one, Verdict.REFERENCE))
        elif doubt := doubts.get(label) or doubts.get(reference):
            found.append(_comparison(plan, label, None, Verdict.UNCLEAR, doubt))
        elif not (row := rows[label]).every:
            why = f"the reference {reference} was not measured"
            found.append(_comparison(plan, label, None, Verdict.UNCLEAR, why))
        elif label not in decided or (decided[label][0] is Verdict.UNCLEAR and row.disturbed):
            held = any(timed.held for made in table.rounds[label].values() for timed in made.values())
            found.append(_busy(plan, label, row, held=held))
        else:
            one_of = _comparison(plan, label, row.estimate(), *decided[label])
            if label != CONTROL and means[label].freedom > 0:
                strictest = 1 - (1 - CONFIDENCE) / len(families[reference])
                one_of = replace(one_of, resolution=math.expm1(means[label].half(strictest) + slack))
            found.append(one_of)
    return tuple(found)


def _busy(plan: Plan, label: str, row: Row, *, held: bool) -> Comparison:
    """The ratio over all rounds, without an interval: disturbed rounds of two forms differ by more than chance."""
    found = row.estimate(every=True)
    ratio = replace(found, low=None, high=None, disturbed=True) if found else None
    reason = f"{row.clean_rounds} of its {row.rounds} rounds were clean: {CLOCKS_HELD if held else CPUS_TAKEN}"
    return _comparison(plan, label, ratio, Verdict.BUSY, reason)


def control_slack(report: Report) -> float:
    """By how much (in logs) the reference of a run differs from itself, where that is more than chance; else 0."""
    control = table_of(report).ratio(CONTROL, report.plan.reference).mean()
    return slack_of(control) if control else 0.0


def slack_of(control: Mean) -> float:
    """By how much (in logs) the reference differs from itself, where that is more than chance; else 0."""
    interval = control.interval(CONTROL_CONFIDENCE)
    if interval is None or interval[0] <= 0 <= interval[1]:
        return 0.0
    return max(map(abs, interval))


def _control(mean: Mean, slack: float) -> tuple[Verdict, str]:
    """The reference against itself: the same, unless it differs by more than chance."""
    if mean.freedom <= 0:
        return Verdict.UNCLEAR, ONE_WORKER
    if slack:
        return Verdict.SLOWER if mean.mean > 0 else Verdict.FASTER, ""
    return Verdict.UNCLEAR if mean.half(CONFIDENCE) > CONTROL_WITHIN else Verdict.SAME, ""


def _comparison(plan: Plan, label: str, ratio: Estimate | None, verdict: Verdict, reason: str = "") -> Comparison:
    reference = plan.reference_of(label)
    return Comparison(case=label, reference=reference, metric=LATENCY, ratio=ratio, verdict=verdict, reason=reason)
