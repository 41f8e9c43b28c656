"""Every two variants of a cell against each other: what is decided of their ratio. Pure.

The verdicts on ratios to a reference are the report's own. All other pairs of a run are one family for Holm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from ffnbench.result import Report, Verdict
from ffnbench.stats.interval import Mean
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import control_slack, verdicts


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


def pairs_of(report: Report) -> Pairs:
    """Both orders of every two cases of a cell whose times are known."""
    table, found, others = table_of(report), {}, {}
    for group in report.plan.groups:
        known = [case.label for case in group.cases if report.has_time(case.label)]
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
