"""Every two variants of a cell against each other: what is decided of their ratio. Pure.

The verdicts on ratios to a reference are the report's own. All other pairs of a run are one family for Holm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

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


K = TypeVar("K")
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
    return in_both_orders(found)


def in_both_orders(pairs: Mapping[tuple[K, K], Pair]) -> dict[tuple[K, K], Pair]:
    """Pairs as they are, and turned."""
    return {**pairs, **{(other, one): pair.turned for (one, other), pair in pairs.items()}}


def pareto_front(names: Iterable[K], *families: Mapping[tuple[K, K], Pair]) -> list[K]:
    """The Pareto front of several figures, each with its pairs in both orders: beside no other name is one decided
    worse in a figure and decided better in none.
    """
    known = list(names)

    def is_beaten(name: K, other: K) -> bool:
        sides = [pairs[name, other].side for pairs in families if (name, other) in pairs]
        return any(side > 0 for side in sides) and all(side >= 0 for side in sides)

    return [name for name in known if not any(is_beaten(name, other) for other in known if other != name)]
