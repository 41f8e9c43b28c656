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
    def inverse(self) -> Pair:
        """The other one's ratio to this one."""
        opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
        return Pair(replace(self.mean, mean=-self.mean.mean), opposite.get(self.verdict, self.verdict))


K = TypeVar("K")
Pairs = dict[tuple[str, str], Pair]


def pairs_of(report: Report) -> Pairs:
    """Both orders of every two cases of a cell whose times are known."""
    table = table_of(report)
    pairs: Pairs = {}
    without_reference: dict[tuple[str, str], Mean] = {}
    for group in report.plan.groups:
        labels = [case.label for case in group.cases if report.has_time(case.label)]
        others = [label for label in labels if label != group.reference]
        if group.reference in labels:
            for label in others:
                comparison, mean = report.comparison(label), table.row(label).mean()
                if mean and comparison and comparison.verdict is not Verdict.BUSY:
                    pairs[label, group.reference] = Pair(mean, comparison.verdict)
        for first, second in combinations(others, 2):
            row = table.ratio(second, first)
            mean = row.mean()
            if mean and not row.disturbed:
                without_reference[second, first] = mean
    decided = verdicts(without_reference, control_slack(report), report.plan.protocol.looks)
    pairs |= {labels: Pair(mean, decided[labels][0]) for labels, mean in without_reference.items()}
    return in_both_orders(pairs)


def in_both_orders(pairs: Mapping[tuple[K, K], Pair]) -> dict[tuple[K, K], Pair]:
    """Pairs as they are, and the other way round."""
    inverse = {(other, name): pair.inverse for (name, other), pair in pairs.items()}
    return {**pairs, **inverse}


def pareto_front(names: Iterable[K], *families: Mapping[tuple[K, K], Pair]) -> list[K]:
    """The Pareto front of several figures, each with its pairs in both orders.

    A name is on it unless some other is decided better in one figure and not decided worse in any.
    """
    candidates = list(names)

    def is_dominated(name: K, other: K) -> bool:
        sides = [pairs[name, other].side for pairs in families if (name, other) in pairs]
        return any(side > 0 for side in sides) and all(side >= 0 for side in sides)

    return [name for name in candidates if not any(is_dominated(name, other) for other in candidates if other != name)]
