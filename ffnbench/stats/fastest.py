"""Which backend is fastest for a network and its workload, as far as the rounds of one run can tell. Pure.

Two rows are told apart by the ratio between them in the same rounds, never by two intervals against a third. The row
with the smallest mean is called the fastest where it is FASTER than every other row (verdict.py). Claims are falsest
where two rows are equal and all others far behind: then as often as that one ratio is. Where more are equal, each would
have to be ahead of all others by more than chance, and claims are rarer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from ffnbench.plan import Backend, Case, CompileMode, Plan
from ffnbench.result import Estimate, Fastest, Report, Verdict
from ffnbench.stats.rounds import Table, table_of
from ffnbench.stats.verdict import control_slack, verdicts


def groups_of(plan: Plan) -> list[tuple[Case, ...]]:
    """The cases that differ in nothing but the backend, in their order."""
    found: dict[object, list[Case]] = defaultdict(list)
    for case in plan.shown:
        alike = replace(case.workload, backend=Backend.EAGER, compile=CompileMode.DEFAULT, freeze=False)
        found[case.ffn, alike, case.arm].append(case)
    return [tuple(cases) for cases in found.values() if len({case.workload for case in cases}) > 1]


def fastest(report: Report) -> list[Fastest]:
    """One answer for each network that was measured by several backends; none where fewer than two have rounds."""
    groups = groups_of(report.plan)
    if not groups:
        return []
    table, slack = table_of(report), control_slack(report)
    known = [[case for case in group if report.has_time(case.label)] for group in groups]
    return [_fastest(cases, table, slack) for cases in known if len(cases) > 1]


def _fastest(cases: list[Case], table: Table, slack: float) -> Fastest:
    logs = {case.label: mean.mean for case in cases if (mean := table.seconds(case.label).mean())}
    first, *others = sorted(logs, key=logs.__getitem__)
    ahead = {label: mean for label in others if (mean := table.ratio(first, label).mean())}
    said = {label: verdict for label, (verdict, _) in verdicts(ahead, slack).items()}
    beside = [label for label in others if said.get(label) is not Verdict.FASTER]
    same = all(said.get(label) is Verdict.SAME for label in beside)
    chosen = (first, *beside)
    eager = [case.label for case in cases if case.workload.eager and chosen != (case.label,)]
    against = (eager or [label for label in others if label not in beside] or [chosen[-1]])[0]
    return Fastest(
        cases=tuple(cases),
        first=chosen,
        verdict=Verdict.FASTER if not beside else Verdict.SAME if same else Verdict.UNCLEAR,
        against=against,
        ratios=tuple(
            table.ratio(label, against).around(math.exp(logs[label] - logs[against])) or Estimate(value=1.0)
            for label in chosen
        ),
    )
