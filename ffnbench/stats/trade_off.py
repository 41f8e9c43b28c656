"""Time against error: which rows of a group are worth their error. Pure.

Times are told apart by the ratio between two rows in the same rounds; an error is the same in every process, and is
worse where it is beyond another one by a factor that its last digits do not make.
"""

from __future__ import annotations

from itertools import permutations
from math import inf

from ffnbench.metrics import ERROR, LATENCY
from ffnbench.plan import Group
from ffnbench.result import Report, TradeOff
from ffnbench.stats.curves import Pairs, pairs_of, pareto_front, sides_of

WORSE = 1.5  # the factor from one error to another that is worse
EXACT = 1e-5  # below it an error is that of float32's rounding, in whatever order
SMALL_ERROR = 0.01  # what many take for no error at all


def trade_offs(report: Report) -> tuple[TradeOff, ...]:
    """One answer for each group with rows of several precisions whose times and errors are known."""
    pairs = pairs_of(report)
    answers = (_trade_off(report, group, pairs) for group in report.plan.groups)
    return tuple(answer for answer in answers if answer is not None)


def _trade_off(report: Report, group: Group, pairs: Pairs) -> TradeOff | None:
    if len({case.workload.weights for case in group.cases}) == 1:
        return None
    timed = {label for pair in pairs for label in pair}
    errors = {case.label: report.value(case.label, ERROR) for case in group.cases if case.label in timed}
    known = {label: error for label, error in errors.items() if error is not None}
    if len(known) <= 1:
        return None
    seconds = {label: report.value(label, LATENCY) or inf for label in known}
    worse = {(one, other): error_side(known[one], known[other]) for one, other in permutations(known, 2)}
    small = [label for label, error in known.items() if error <= SMALL_ERROR]
    return TradeOff(
        reference=group.reference,
        front=tuple(pareto_front(known, sides_of(pairs), worse)),
        fastest=min(known, key=lambda label: seconds[label]),
        fastest_of_small_error=min(small, key=lambda label: seconds[label], default=None),
    )


def error_side(error: float, other: float) -> int:
    """1 where the first is worse, -1 where it is better, else 0."""
    first, second = max(error, EXACT), max(other, EXACT)
    if first > WORSE * second:
        return 1
    return -1 if second > WORSE * first else 0
