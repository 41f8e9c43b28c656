"""Which backend is fastest for a network and its workload, as far as the rounds of one
run can tell. Pure.

Two rows are told apart by the ratio between them in the same rounds, never by two
intervals against a third. The row with the smallest mean is called the fastest if it is
FASTER than every other row (verdict.py). Such a claim is most often false if two rows
are equal and all others far behind: as often as the verdict on that one ratio is. If
more rows are equal, one has to be ahead of all others by chance, which is rarer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ffnbench.common.choices import DEFAULT_MODE, Backend
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Case
from ffnbench.record.result import Estimate, Fastest, Report, Verdict
from ffnbench.stats.interval import confidence_of_each
from ffnbench.stats.rounds import Rounds, ratio_logs, rounds_of
from ffnbench.stats.verdict import control_slack, verdict_of


def fastest(report: Report) -> list[Fastest]:
    """One answer for each network and workload that was measured by several backends,
    if at least two of its rows have a time.
    """
    # the cases that differ in nothing but the backend
    networks: dict[object, list[Case]] = defaultdict(list)
    for case in report.plan.shown:
        without_backend = replace(
            case.workload,
            backend=Backend.EAGER,
            compile=DEFAULT_MODE,
            freeze=False,
            spin=False,
        )
        networks[case.ffn, without_backend, replace(case.arm, name="")].append(case)
    rounds = rounds_of(report)
    slack = control_slack(rounds)
    answers = []
    for cases in networks.values():
        timed = [case for case in cases if report.has_time(case.label)]
        if len({case.workload for case in cases}) > 1 and len(timed) > 1:
            answers.append(_fastest_of_cases(report, timed, rounds, slack))
    return answers


def _fastest_of_cases(
    report: Report, cases: Sequence[Case], rounds: Rounds, slack: float
) -> Fastest:
    """The row with the smallest mean and those that are not slower, or can't be told
    from it; with the ratios that are shown of them.
    """
    logs: dict[str, float] = {}
    for case in cases:
        estimate = report.estimate(case.label, LATENCY)
        if estimate:
            logs[case.label] = math.log(estimate.value)
    leader, *others = sorted(logs, key=logs.__getitem__)
    ratios = {label: ratio_logs(rounds, leader, label).mean() for label in others}
    together = confidence_of_each(len(others))
    # of the leader's ratio to each other row; none of a row without common rounds
    verdict_on = {
        label: verdict_of(mean, together, slack)
        for label, mean in ratios.items()
        if mean
    }
    slower = [label for label in others if verdict_on.get(label) is Verdict.FASTER]
    tied = [label for label in others if label not in slower]
    if not tied:
        verdict = Verdict.FASTER
    elif all(verdict_on.get(label) is Verdict.SAME for label in tied):
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNCLEAR
    answer = (leader, *tied)
    # The ratios that are shown are relative to eager, unless that alone is the answer.
    # Else they are relative to the next row that is slower, or the last one of the
    # answer if none is.
    eager = [
        case.label for case in cases if case.workload.eager and answer != (case.label,)
    ]
    against = [*eager, *slower, answer[-1]][0]
    relative = [
        ratio_logs(rounds, label, against).estimate(
            together, at=logs[label] - logs[against]
        )
        for label in answer
    ]
    return Fastest(
        cases=tuple(cases),
        first=answer,
        verdict=verdict,
        against=against,
        ratios=tuple(ratio or Estimate(value=1.0) for ratio in relative),
    )
