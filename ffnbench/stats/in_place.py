"""The part that an FFN has in the time of a stack of blocks. Pure.

The part is the stack minus the stack without FFNs, paired in rounds. Let a = log(T /
T0) be the mean of the paired logs of the two. Then the share is s = 1 - exp(-a), the
part is T s, and the ratio of two parts is T s / (T' s'). The intervals of part and
ratio are those of the first-order terms of their logs, which are one value a worker:
dT + da (1 - s) / s, and da / s - da' / s'.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ffnbench.ffn.spec import StackSpec
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Case, Group
from ffnbench.record.result import CONFIDENCE, Estimate, InPlace, Report
from ffnbench.stats.rounds import (
    Rounds,
    RowLogs,
    confidences,
    ratio_logs,
    rounds_of,
    seconds_logs,
)

ONE = Estimate(value=1.0, low=1.0, high=1.0)


def in_place(report: Report) -> dict[str, InPlace]:
    """What follows for each FFN in place, by the label of its stack; only where stack
    and stack without FFNs have times.
    """
    rounds = rounds_of(report)
    confidence_of = confidences(rounds)
    by_label: dict[str, InPlace] = {}
    for group in report.plan.groups:
        logs_of = dict(_logs_in(report, rounds, group))
        for label, logs in logs_of.items():
            case = report.plan.case(label)
            row = _part_of(report, rounds, case, logs)
            if label == group.reference:
                row = replace(row, ratio=ONE if row.part else None)
            elif group.reference in logs_of:
                row = _compared(
                    row,
                    logs,
                    by_label[group.reference],
                    logs_of[group.reference],
                    confidence_of.get(label, CONFIDENCE),
                )
            by_label[label] = _beside_alone(report, group, case, row)
    return by_label


def without_ffns(group: Group) -> Case | None:
    """The stack without FFNs of a group."""
    stacks = (case for case in group.cases if case.in_place)
    return next((case for case in stacks if case.ffn.d_ff is None), None)


def alone(group: Group, stack: Case) -> Case | None:
    """The FFN of a stack by itself."""
    others = (case for case in group.cases if not case.in_place)
    return next((case for case in others if case.name == stack.name), None)


def _logs_in(
    report: Report, rounds: Rounds, group: Group
) -> Iterator[tuple[str, RowLogs]]:
    """The label of each stack of a group that has a time, with the logs of its ratio to
    the one without FFNs; the reference first.
    """
    base = without_ffns(group)
    if base is None or not report.has_time(base.label):
        return
    for case in group.cases:
        if case.in_place and case is not base and report.has_time(case.label):
            yield case.label, ratio_logs(rounds, case.label, base.label)


def _part_of(report: Report, rounds: Rounds, case: Case, logs: RowLogs) -> InPlace:
    """The FFN's share of a stack, and where that is above 0 its part of a block's
    seconds.
    """
    base = without_ffns(report.plan.group_of(case.label))
    stack_s = report.value(case.label, LATENCY)
    base_s = base and report.value(base.label, LATENCY)
    if not (stack_s and base_s) or not isinstance(case.ffn, StackSpec):
        return InPlace()
    times = logs.estimate(at=math.log(stack_s / base_s))
    if times is None:
        return InPlace()
    low, high = (end and 1 - 1 / end for end in (times.low, times.high))
    share = replace(times, value=1 - 1 / times.value, low=low, high=high)
    if share.value <= 0 or (share.low or share.value) <= 0:
        return InPlace(share=share)
    seconds = seconds_logs(rounds, case.label)
    terms = ((seconds, 1.0), (logs, (1 - share.value) / share.value))
    part = _estimate(terms, stack_s * share.value / case.ffn.layers)
    return InPlace(share=share, part=part)


def _compared(
    row: InPlace,
    logs: RowLogs,
    reference: InPlace,
    reference_logs: RowLogs,
    confidence: float,
) -> InPlace:
    """The row with the ratio of its part to that of the reference."""
    if not (row.part and reference.part and row.share and reference.share):
        return row
    terms = (
        (logs, 1 / row.share.value),
        (reference_logs, -1 / reference.share.value),
    )
    value = row.part.value / reference.part.value
    return replace(row, ratio=_estimate(terms, value, confidence))


def _estimate(
    terms: Sequence[tuple[RowLogs, float]],
    value: float,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """A value, with the interval of the sum of these logs by their factors."""
    logs = {
        worker: [
            math.fsum(factor * row.centre(row.clean[worker]) for row, factor in terms)
        ]
        for worker in set.intersection(*(set(row.clean) for row, _ in terms))
    }
    row = replace(terms[0][0], clean=logs)
    return row.estimate(confidence, at=math.log(value))


def _beside_alone(report: Report, group: Group, case: Case, row: InPlace) -> InPlace:
    """The row with whether the ratio of its FFN alone is another one, beyond both
    intervals; None where that can't be told.
    """
    ffn = alone(group, case)
    comparison = ffn and report.comparison(ffn.label)
    if case.label == group.reference or not (row.ratio and comparison):
        return row
    in_stack, by_itself = row.ratio, comparison.ratio
    if not (in_stack.low and in_stack.high):
        return row
    if by_itself is None or not (by_itself.low and by_itself.high):
        return row
    differs = in_stack.low > by_itself.high or in_stack.high < by_itself.low
    return replace(row, differs=differs)
