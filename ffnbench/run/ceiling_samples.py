"""Samples of roofs beside those of cases: which calls could be a ceiling, when it is their turn, what they took.

The first worker finds the fastest; they are sampled in its rounds, and in the first round of each later worker, within
a small share of the run's time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ffnbench.device.ceilings import roofs_for
from ffnbench.messages import A, ExploreRoofs, ReachedRoof, SampleRoof, WorkerRequest
from ffnbench.metrics import CEILINGS, ROOF
from ffnbench.result import CaseCost, Ceiling, Sample
from ffnbench.run.record import RunRecord
from ffnbench.run.resources import room_for_ceilings
from ffnbench.stats.ceilings import may_bind

SHARE = 0.05  # of a run's time, for all that is about ceilings
EXPLORING = 0.02  # of the budget, and at most
EXPLORING_S, EXPLORING_A_WORKER_S = 1.5, 0.05  # the second where there is no budget
MAY_BIND = 0.5  # of the least time that a row's ceilings allow: what is farther away is looked at once
KEPT_ROOFS = 3  # of each ceiling: which is the fastest is known at the end
FEWEST_WORKERS = 3  # that sample those that may bind, whatever the time: one gives no interval


class Ask(Protocol):
    """Asks the worker of the reference; None where it can't do it."""

    def __call__(self, request: WorkerRequest[A]) -> A | None: ...


@dataclass(slots=True)
class RoofSamples:
    """All that a run knows of its ceilings. Without costs nothing is known of them."""

    record: RunRecord
    costs: tuple[CaseCost, ...]
    now: Callable[[], float]
    seconds: float = 0.0  # spent on ceilings
    reached: list[Ceiling] = field(default_factory=list)
    _calls: dict[str, int] = field(default_factory=dict)  # of a sample of those that are still sampled
    _may_bind: frozenset[str] = frozenset()
    _set_s: float = 0.0  # what one sample of each that may bind takes

    def begin(self, ask: Ask, room: int | None) -> None:
        """Find the fastest roofs, once in a run."""
        start = self.now()
        if CEILINGS in self.record.plan.metrics and self.costs:
            for reached in self.reach(ask, self.exploring_s, room):
                self._calls[reached.roof.name] = reached.calls
                self.record.roof(reached.roof)
            self._may_bind = may_bind(self.record.left.shown, self.costs, self.reached, MAY_BIND)
            binding = [ceiling for ceiling in self.reached if ceiling.roof.name in self._may_bind]
            self._set_s = sum(ceiling.seconds * self._calls[ceiling.roof.name] for ceiling in binding)
        self.seconds += self.now() - start

    def due(self, workers: int, round_: int, elapsed_s: float) -> list[str]:
        """The roofs whose turn it is in this round, after so many whole workers: in the very first all of them, then
        those that may bind a row, once in each of the first workers and as often as their share of the time allows.
        """
        if round_ < 0:  # practice
            return []
        if workers == 0 and round_ == 0:
            return list(self._calls)
        must_be_sampled = round_ == 0 and workers < FEWEST_WORKERS
        if must_be_sampled or self.seconds + self._set_s <= SHARE * elapsed_s:
            return [name for name in self._calls if name in self._may_bind]
        return []

    def sample(self, ask: Ask, name: str, place: dict[str, Any]) -> None:
        """One sample of a roof; one that can't be had is dropped, and fails no case."""
        start = self.now()
        roofs = {roof.name: roof for roof in self.record.roofs}
        calls = self._calls[name]
        sampled = ask(SampleRoof(roof=roofs[name], calls=calls))
        if sampled is not None and sampled.value > 0:
            value, waited = sampled.value, sampled.waited
            self.record.add(Sample(case=name, metric=ROOF, value=value, calls=calls, waited=waited, **place))
        else:
            self._calls.pop(name, None)
        self.seconds += self.now() - start

    def lost(self) -> None:
        """A worker was lost over them: they are not sampled any more."""
        self._calls = {}

    @property
    def exploring_s(self) -> float:
        """For how long they are looked for."""
        protocol = self.record.plan.protocol
        if protocol.budget_s is None:
            return min(EXPLORING_S, EXPLORING_A_WORKER_S * protocol.workers)
        return min(EXPLORING_S, EXPLORING * protocol.budget_s)

    def reach(self, ask: Ask, seconds: float, room: int | None) -> tuple[ReachedRoof, ...]:
        """Look for the fastest roofs."""
        left = self.record.left
        asked = roofs_for(left.shown, self.costs, self.record.caches, room_for_ceilings(left.cases, room))
        if not asked:
            return ()
        answer = ask(ExploreRoofs(roofs=tuple(asked), seconds=seconds, keep=KEPT_ROOFS))
        if answer is None:
            return ()
        self.reached += [Ceiling(roof=reached.roof, seconds=reached.seconds) for reached in answer.roofs]
        return answer.roofs
