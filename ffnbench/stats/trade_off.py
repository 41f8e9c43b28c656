"""Time against error: which rows of a group are worth their error. Pure.

Two times are compared by their ratio in the same rounds: by the verdict on it, or by
its mean if the verdict can't tell. An error is the same in every process; it counts as
worse than another one only beyond a factor that rounding does not make.
"""

from __future__ import annotations

from itertools import permutations

from ffnbench.plan.metrics import ERROR
from ffnbench.plan.plan import Group
from ffnbench.record.result import Report, TradeOff, Verdict
from ffnbench.stats.curves import Pair, PairsByLabels, pairs_of, pareto_front

# an error is worse than another one if it is more than so many times as large
WORSE = 1.5
# smaller errors are those of rounding in float32, and count as equal
ROUNDING_ERROR = 1e-5


def trade_offs(report: Report) -> tuple[TradeOff, ...]:
    """One answer for each group with rows of several precisions whose times and errors
    are known.
    """
    pairs = pairs_of(report)
    answers = (_trade_off(report, group, pairs) for group in report.plan.groups)
    return tuple(answer for answer in answers if answer is not None)


def _trade_off(report: Report, group: Group, pairs: PairsByLabels) -> TradeOff | None:
    if len({case.workload.weights for case in group.cases}) == 1:
        return None
    timed = {label for pair in pairs for label in pair}
    errors: dict[str, float] = {}
    for case in group.cases:
        error = report.value(case.label, ERROR)
        if case.label in timed and error is not None:
            errors[case.label] = error
    if len(errors) <= 1:
        return None
    worse = {
        (label, other): error_side(errors[label], errors[other])
        for label, other in permutations(errors, 2)
    }
    slower = {labels: time_side(pair) for labels, pair in pairs.items()}
    front = tuple(pareto_front(errors, slower, worse))
    return TradeOff(reference=group.reference, front=front)


def time_side(pair: Pair) -> int:
    """1 if the first of the pair is slower, -1 if it is faster, 0 if the two are the
    same; what is not decided goes by the mean.
    """
    if pair.verdict is Verdict.SAME:
        return 0
    if pair.side:
        return pair.side
    return 1 if pair.mean.mean > 0 else -1


def error_side(error: float, other: float) -> int:
    """1 if `error` is worse than `other`, -1 if it is better, else 0."""
    first, second = max(error, ROUNDING_ERROR), max(other, ROUNDING_ERROR)
    if first > WORSE * second:
        return 1
    return -1 if second > WORSE * first else 0
