"""What check, ab and compare say of a drawn run: the real rules on the means of its workers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log1p

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Plan, Protocol
from ffnbench.selftest.draws import FORM, HEAD, ROWS, Drawn
from ffnbench.selftest.simulated import SimulatedMachine
from ffnbench.stats.enough import Pace, half_width, hoped_for, limit_after, scatter_of
from ffnbench.stats.history import History, history_of
from ffnbench.stats.interval import WeightedMean
from ffnbench.stats.looks import (
    DECIDED,
    LATE,
    decided,
    first_plan,
    half_in_reach,
    level_after,
    level_of_end,
    resolves,
    rest_of,
)
from ffnbench.stats.regression import Decided, Finding, Policy, Status, changes, confirmed, paired
from ffnbench.stats.regression import Row as Checked
from ffnbench.stats.verdict import CONFIDENCE, level, slack_of

Find = Callable[[Sequence[str], int, int, float], list[Finding]]  # rows, first worker, workers, level of the look
Decide = Callable[[dict[Checked, WeightedMean | None], float], Mapping[Checked, Decided | None]]  # means, slack


@dataclass(frozen=True, slots=True)
class Looked:
    """One look: after how many workers it ended, and what it found."""

    workers: int
    found: list[Finding]


@dataclass(frozen=True, slots=True)
class Looker:
    """Checks of one machine, as one policy asks for them."""

    machine: SimulatedMachine
    policy: Policy
    protocol: Protocol

    def hoped(self, past: Drawn) -> WeightedMean:
        """How well a check can know a ratio, by the scatter of a baseline's run."""
        protocol = replace(self.protocol, budget_s=LATE * self.machine.budget_s)
        found = scatter_of([past.logs[row] for row in ROWS])
        return hoped_for(protocol, found, Pace(self.machine.start_s, self.machine.round_s))

    def refuses(self, past: Mapping[str, History], hoped: WeightedMean) -> bool:
        """Whether a baseline can't resolve a tolerance."""
        return not all(resolves(half_in_reach(of, hoped), self.policy.of(row, LATENCY)) for row, of in past.items())

    def check(self, past: Mapping[str, History], now: Drawn, slowed: float) -> list[Finding]:
        """What `check` says of a run held against a baseline."""
        before = {(row, LATENCY): of for row, of in past.items()}
        return self._looks(now, ROWS, slowed, lambda means, slack: changes(before, means, self.policy, slack))

    def ab(self, now: Drawn, slowed: float) -> list[Finding]:
        """What `ab` says of one form in old and new code."""
        return self._looks(now, (HEAD,), slowed, lambda means, slack: paired(means, self.policy, slack))

    def _looks(self, now: Drawn, rows: Sequence[str], slowed: float, decide: Decide) -> list[Finding]:
        """A first look, and one at its suspects in further workers."""

        def find(rows: Sequence[str], first: int, workers: int, confidence: float) -> list[Finding]:
            means: dict[Checked, WeightedMean | None] = {
                (row, LATENCY): _mean(now, row, slowed, first, workers, confidence) for row in rows
            }
            return self._findings(decide(means, slack_of(now.mean(CONTROL, first, workers))))

        budget = self.machine.budget_s
        one = _look(now, rows, 0, budget, LATE * budget, self.protocol, find)
        suspects = [finding.case for finding in one.found if finding.status is Status.REGRESSED]
        if not suspects:
            return one.found
        rest = rest_of(budget, now.seconds(0, one.workers))
        two = _look(now, suspects, one.workers, rest, inf, self.protocol, find)
        return confirmed(one.found, two.found)

    def _findings(self, found: Mapping[Checked, Decided | None]) -> list[Finding]:
        return [
            Finding(case=case, metric=metric, status=of.status, tolerance=self.policy.of(case, metric))
            for (case, metric), of in found.items()
            if of
        ]


def looker(machine: SimulatedMachine, plan: Plan, policy: Policy) -> Looker:
    """Checks of a plan on that machine."""
    return Looker(machine, policy, first_plan(plan, policy, machine.budget_s).protocol)


def _look(
    now: Drawn, rows: Sequence[str], first: int, budget: float, late_s: float, protocol: Protocol, find: Find
) -> Looked:
    """One look: until its rows are decided, or `budget` ends; after `late_s` seconds a suspect ends it as well."""
    workers, limit, found = protocol.workers, "", []

    def said() -> str:
        nonlocal found
        found = find(rows, first, workers, level_after(workers))
        return decided(found, now.seconds(first, workers) > late_s)

    while not (limit := limit_after(workers, protocol, now.seconds(first, workers + 1) <= budget, said)):
        workers += 1
    if limit != DECIDED:
        found = find(rows, first, workers, level_of_end(workers, limit))
    return Looked(workers, found)


def _mean(now: Drawn, row: str, slowed: float, first: int, workers: int, confidence: float) -> WeightedMean:
    """The mean of a row, what looks cost in its error."""
    mean = now.mean(row, first, workers).paid(confidence, CONFIDENCE)
    return replace(mean, mean=mean.mean + log1p(slowed)) if row in (FORM, HEAD) else mean


def history(runs: Sequence[Drawn], workers: int) -> dict[str, History]:
    """What runs of that many workers say of every row, the oldest first."""
    return {row: history_of([run.mean(row, 0, workers) for run in runs]) for row in ROWS}


def compared(now: Drawn, protocol: Protocol) -> tuple[int, WeightedMean]:
    """The workers that a run of `compare` with that protocol has, and the mean of FORM's row."""

    def said() -> str:
        means = [now.mean(row, 0, workers) for row in ROWS]
        return "precision" if half_width(means, protocol) <= (protocol.precision or 0.0) else ""

    workers, budget = protocol.workers, protocol.budget_s or 0.0
    while not limit_after(workers, protocol, now.seconds(0, workers + 1) <= budget, said):
        workers += 1
    return workers, now.mean(FORM, 0, workers)


def holds(mean: WeightedMean, protocol: Protocol, truth: float) -> bool:
    """Whether the interval of a row holds a true log ratio."""
    low, high = mean.interval(level(protocol)) or (0.0, 0.0)
    return low <= truth <= high
