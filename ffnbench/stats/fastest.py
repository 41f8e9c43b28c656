"""Which backend is fastest for a network and its workload, as far as the rounds of one
run can tell. Pure.

Two rows are told apart by the ratio between them in the same rounds, never by two
intervals against a third. The row with the smallest mean is called the fastest where it
is FASTER than every other row (verdict.py). Claims are falsest where two rows are equal
and all others far behind: then as often as that one ratio is. Where more are equal,
each would have to be ahead of all others by more than chance, and claims are rarer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ffnbench.choices import Backend, CompileMode
from ffnbench.plan import Case
from ffnbench.result import Estimate, Fastest, Report, Verdict
from ffnbench.stats.rounds import RoundTable, table_of
from ffnbench.stats.verdict import control_slack, verdicts


def fastest(report: Report) -> list[Fastest]:
    """One answer for each network that was measured by several backends; none where
    fewer than two have rounds.
    """
    # the cases that differ in nothing but the backend
    networks: dict[object, list[Case]] = defaultdict(list)
    for case in report.plan.shown:
        without_backend = replace(
            case.workload,
            backend=Backend.EAGER,
            compile=CompileMode.DEFAULT,
            freeze=False,
            spin=False,
        )
        networks[case.ffn, without_backend, replace(case.arm, name="")].append(case)
    table, slack = table_of(report), control_slack(report)
    answers = []
    for cases in networks.values():
        timed = [case for case in cases if report.has_time(case.label)]
        if len({case.workload for case in cases}) > 1 and len(timed) > 1:
            answers.append(_fastest_of_cases(timed, table, slack))
    return answers


def _fastest_of_cases(
    cases: Sequence[Case], table: RoundTable, slack: float
) -> Fastest:
    logs: dict[str, float] = {}
    for case in cases:
        mean = table.seconds(case.label).mean()
        if mean:
            logs[case.label] = mean.mean
    first, *others = sorted(logs, key=logs.__getitem__)
    ratios = {label: table.ratio(first, label).mean() for label in others}
    decided = verdicts({label: mean for label, mean in ratios.items() if mean}, slack)
    slower = [
        label
        for label in others
        if label in decided and decided[label][0] is Verdict.FASTER
    ]
    tied = [label for label in others if label not in slower]
    if not tied:
        verdict = Verdict.FASTER
    elif all(label in decided and decided[label][0] is Verdict.SAME for label in tied):
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNCLEAR
    answer = (first, *tied)
    # the ratios that are shown are relative to eager, unless that alone is the answer;
    # else to the next row behind
    eager = [
        case.label for case in cases if case.workload.eager and answer != (case.label,)
    ]
    against = [*eager, *slower, answer[-1]][0]
    relative = [
        table.ratio(label, against).centred_at(math.exp(logs[label] - logs[against]))
        for label in answer
    ]
    return Fastest(
        cases=tuple(cases),
        first=answer,
        verdict=verdict,
        against=against,
        ratios=tuple(ratio or Estimate(value=1.0) for ratio in relative),
    )
