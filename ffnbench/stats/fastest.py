"""Which backend is fastest for a network and its workload, as far as the rounds of one run can tell. Pure.

Two rows are told apart by the ratio between them in the same rounds, never by two intervals against a third. The row
with the smallest mean is called the fastest where Holm's correction (1979) tells it from every other row, two-sided.
Claims are falsest where two rows are equal and all others far behind: then as often as that one ratio is (alpha). Where
more are equal, each would have to be ahead of all others by more than chance, and claims are rarer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from ffnbench.plan import Backend, Case, Plan
from ffnbench.result import Estimate, Report, Verdict, unjudged
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.rounds import Table, table_of
from ffnbench.stats.verdict import control_slack, decide, holm


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The answer for one network and workload: `first` holds the fastest, by label, and what can't be told from it.

    `verdict` is FASTER for one that is the fastest, SAME for several within 2 %, else UNCLEAR. `against` is the row
    that `ratios`, of the first ones and in their order, are relative to.
    """

    cases: tuple[Case, ...]
    first: tuple[str, ...]
    verdict: Verdict
    against: str
    ratios: tuple[Estimate, ...]


def groups_of(plan: Plan) -> list[tuple[Case, ...]]:
    """The cases that differ in nothing but the backend, in their order."""
    found: dict[object, list[Case]] = defaultdict(list)
    for case in plan.shown:
        alike = replace(case.workload, backend=Backend.EAGER.value, compile="", freeze=False)
        found[case.ffn, alike, case.arm].append(case)
    return [tuple(cases) for cases in found.values() if len({case.workload for case in cases}) > 1]


def fastest(report: Report) -> list[Fastest]:
    """One answer for each network that was measured by several backends; none where fewer than two have rounds."""
    groups = groups_of(report.plan)
    if not groups:
        return []
    table, slack = table_of(report), control_slack(report)
    failed = {failure.case for failure in report.failures} | unjudged(report.judged).keys()
    found = (
        _fastest([case for case in group if case.label in table.rounds.keys() - failed], table, slack)
        for group in groups
    )
    return [one for one in found if one]


def _fastest(cases: list[Case], table: Table, slack: float) -> Fastest | None:
    labels = [case.label for case in cases]
    if len(labels) < 2:
        return None
    eager = [case.label for case in cases if case.workload.eager]
    means = {label: _between(table, label, labels[0]) for label in labels[1:]}
    known = {labels[0]: 0.0} | {label: mean.mean for label, mean in means.items() if mean}
    first = min(known, key=lambda label: known[label])
    ahead = {label: _between(table, first, label) for label in labels if label != first}
    differ = holm({label: _chance(mean, slack) for label, mean in ahead.items()}, 1 - CONFIDENCE)
    verdicts = {label: _verdict(mean, label in differ, slack) for label, mean in ahead.items()}
    beside = sorted(
        (label for label, verdict in verdicts.items() if verdict is not Verdict.FASTER),
        key=lambda label: known.get(label, math.inf),
    )
    beside = [label for label in beside if not _is_behind(table, label, labels, slack)] or beside
    same = all(verdicts[label] is Verdict.SAME for label in beside)
    chosen = (first, *beside)
    others = [label for label in labels if label not in chosen]
    against = next((label for label in eager if chosen != (label,)), None)
    against = against or min(others, key=lambda label: known.get(label, math.inf), default=chosen[-1])
    return Fastest(
        cases=tuple(cases),
        first=chosen,
        verdict=Verdict.FASTER if not beside else Verdict.SAME if same else Verdict.UNCLEAR,
        against=against,
        ratios=tuple(_ratio(table, label, against) for label in chosen),
    )


def _is_behind(table: Table, label: str, labels: list[str], slack: float) -> bool:
    """Whether some other row is faster than it, with a correction for all of them: then it can't be the fastest."""
    for other in labels:
        mean = _between(table, other, label) if other != label else None
        interval = mean.interval(1 - (1 - CONFIDENCE) / len(labels)) if mean else None
        if interval is not None and interval[1] + slack < 0:
            return True
    return False


def _between(table: Table, label: str, other: str) -> Mean | None:
    """The mean log of label / other in the same clean rounds; None where there are none."""
    return table.ratio(label, other).mean()


def _chance(mean: Mean | None, slack: float) -> float:
    """Two-sided p of "the first is not faster". `slack` is what the machine is off by."""
    if mean is None or mean.mean + slack >= 0:
        return 1.0
    return replace(mean, mean=mean.mean + slack).p_value()


def _verdict(mean: Mean | None, differs: bool, slack: float) -> Verdict:
    """Whether the first is FASTER, the SAME within 2 %, or neither is known."""
    interval = mean.interval(CONFIDENCE) if mean else None
    if interval is None:
        return Verdict.UNCLEAR
    verdict = decide(math.exp(interval[0] - slack), math.exp(interval[1] + slack))
    return Verdict.UNCLEAR if verdict is Verdict.FASTER and not differs else verdict


def _ratio(table: Table, label: str, against: str) -> Estimate:
    """Of a row's time to another's, as the table has it: without the correction for several rows."""
    mean = None if label == against else _between(table, label, against)
    interval = mean.interval(CONFIDENCE) if mean else None
    if mean is None or interval is None:
        return Estimate(value=math.exp(mean.mean) if mean else 1.0)
    low, high = map(math.exp, interval)
    return Estimate(value=math.exp(mean.mean), low=low, high=high, confidence=CONFIDENCE)
