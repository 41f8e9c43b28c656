"""Every two variants of a cell against each other: what is decided of their ratio, and which variants none beats. Pure.

The verdicts on ratios to a reference are the report's own. All other pairs of a run are one family for Holm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ffnbench.metrics import LATENCY, PEAK
from ffnbench.result import Report, Verdict
from ffnbench.stats.interval import Mean
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import SAME_WITHIN, control_slack, verdicts

BESIDE = ("params", "flops_forward", "flops_backward")  # what is counted of each case


@dataclass(frozen=True, slots=True)
class Pair:
    """The log of the ratio of one case's time to another's, by label, and what is decided of it."""

    mean: Mean
    verdict: Verdict

    @property
    def side(self) -> int:
        """1 where it is decided slower, -1 where it is decided faster, else 0."""
        return {Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(self.verdict, 0)

    @property
    def turned(self) -> Pair:
        """The other one's ratio to this one."""
        turns = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
        return Pair(replace(self.mean, mean=-self.mean.mean), turns.get(self.verdict, self.verdict))


Pairs = dict[tuple[str, str], Pair]


def is_told(report: Report, label: str) -> bool:
    """Whether a case has a time that can be held against another one's: it did not fail, and nothing disturbed it."""
    found = report.estimate(label, LATENCY)
    return found is not None and report.failure(label) is None


def pairs_of(report: Report) -> Pairs:
    """Both orders of every two cases of a cell whose times are known."""
    table, found, others = table_of(report), {}, {}
    for group in report.plan.groups:
        known = [case.label for case in group.cases if is_told(report, case.label)]
        for one, other in combinations(known, 2):
            if group.reference in (one, other):
                case = other if one == group.reference else one
                comparison, mean = report.comparison(case), table.row(case).mean()
                if mean and comparison and comparison.verdict is not Verdict.BUSY:
                    found[case, group.reference] = Pair(mean, comparison.verdict)
            elif (row := table.ratio(other, one)).clean and not row.disturbed and (mean := row.mean()):
                others[other, one] = mean
    told = verdicts(others, control_slack(report), report.plan.protocol.looks) if others else {}
    found |= {labels: Pair(mean, told[labels][0]) for labels, mean in others.items()}
    return found | {(other, one): pair.turned for (one, other), pair in found.items()}


def unbeaten(report: Report) -> dict[str, bool]:
    """Of each case that was timed whether no other one of its cell beats it: is nowhere worse, and better somewhere.

    Better in time is what is decided; bytes, parameters and FLOPs are the same within SAME_WITHIN, for widths that are
    matched miss by a little. A case that stands alone, or has no time, is not told.
    """
    found: dict[str, bool] = {}
    groups = [group for group in report.plan.groups if len(group.cases) > 1] if report.comparisons else []
    pairs = pairs_of(report) if groups else {}
    for group in groups:
        known = [case.label for case in group.cases if is_told(report, case.label)]
        amounts = {label: _amounts(report, label) for label in known}
        for label in known:
            rivals = (other for other in known if other != label)
            found[label] = not any(
                _beats(pairs.get((other, label)), amounts[other], amounts[label]) for other in rivals
            )
    return found


def _amounts(report: Report, label: str) -> Sequence[float | None]:
    return report.value(label, PEAK), *(getattr(report.cost(label), name) for name in BESIDE)


def _beats(pair: Pair | None, one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    if pair is None or pair.verdict not in (Verdict.FASTER, Verdict.SAME):
        return False
    known = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if any(a > b * (1 + SAME_WITHIN) for a, b in known):
        return False
    return pair.verdict is Verdict.FASTER or any(a * (1 + SAME_WITHIN) < b for a, b in known)
