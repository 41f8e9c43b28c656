"""Runs of a simulated world: the logs of every round, drawn for many runs at once. No process, no clock.

What a run draws is ratios to the reference: of a form with other matrix products (FORM), of one with the same
(ALIKE), of the reference itself (CONTROL), and of one form in old and new code (HEAD).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ffnbench.selftest.simulated import Forms, SimulatedMachine, SimulatedWorld, Workers
from ffnbench.stats.interval import Summary, WeightedMean, mean_of_summaries, summary_of
from ffnbench.stats.rounds import Placed

FORM, ALIKE, HEAD = "swiglu", "gelu", "head"
ROWS = (FORM, ALIKE)
Array = Any  # of numpy, which no module loads at its top


@dataclass(slots=True)
class Drawn:
    """One run: of each row what its workers made, and by how much its ratio was more at their time; when they ended."""

    logs: dict[str, list[Placed]]
    state: dict[str, list[float]]
    ends: list[float]
    _means: dict[tuple[str, int, int], WeightedMean] = field(default_factory=dict)
    _workers: dict[tuple[str, int], Summary] = field(default_factory=dict)

    def mean(self, row: str, first: int, workers: int) -> WeightedMean:
        """The mean of so many workers, as a run of them alone gives it."""
        key = row, first, workers
        if key not in self._means:
            self._means[key] = mean_of_summaries([self._worker(row, n) for n in range(first, first + workers)])
        return self._means[key]

    def _worker(self, row: str, number: int) -> Summary:
        key = row, number
        if key not in self._workers:
            self._workers[key] = summary_of(self.logs[row][number])
        return self._workers[key]

    def truth(self, row: str, workers: int) -> float:
        """What the ratio's log was while so many workers measured."""
        return sum(self.state[row][:workers]) / workers

    def seconds(self, first: int, workers: int) -> float:
        """How long so many workers took."""
        return self.ends[first + workers - 1] - (self.ends[first - 1] if first else 0.0)


def draw(
    world: SimulatedWorld, machine: SimulatedMachine, dice: Array, *, runs: int, workers: int, rows: tuple[str, ...],
    neighbours: float,
) -> list[Drawn]:  # fmt: skip
    """So many runs, the share `neighbours` of them beside a neighbour. `dice` is a generator of numpy."""
    ends = (machine.worker_s * _exp(machine.seconds_sd * dice.standard_normal((runs, workers)))).cumsum(axis=1)
    state = _states(world, machine, dice, ends, neighbours)
    logs, states = {}, {}
    for row in rows:
        moved = state[row] if row in state else 0 * ends
        worker = moved + _workers(world, dice, (runs, workers))
        placed = worker[..., None] + world.placements_sd * dice.standard_normal((runs, workers, machine.placements))
        noise = dice.standard_normal((runs, workers, machine.placements, machine.rounds_each))
        logs[row] = (placed[..., None] + world.rounds_sd * noise).tolist()
        states[row] = moved.tolist()
    return [
        Drawn({row: logs[row][n] for row in rows}, {row: states[row][n] for row in rows}, end)
        for n, end in enumerate(ends.tolist())
    ]


def _workers(world: SimulatedWorld, dice: Array, shape: tuple[int, int]) -> Array:
    """What each worker adds: mean 0, the standard deviation of the world."""
    drawn = {
        Workers.NORMAL: lambda: dice.standard_normal(shape),
        Workers.STUDENT3: lambda: dice.standard_t(3, shape) / 3**0.5,
        Workers.SKEWED: lambda: dice.standard_exponential(shape) - 1,
        Workers.BIMODAL: lambda: _bimodal(world.slow_share, dice.random(shape)),
    }
    return world.workers_sd * drawn[world.workers]()


def _bimodal(share: float, uniform: Array) -> Array:
    return ((uniform < share) - share) / (share * (1 - share)) ** 0.5


def _states(
    world: SimulatedWorld, machine: SimulatedMachine, dice: Array, ends: Array, neighbours: float
) -> dict[str, Array]:
    """By how much the ratio of each form is more, for every worker of every run."""
    runs = len(ends)
    between = {row: dice.standard_normal((runs, 1)) for row in ROWS}
    beside = dice.random((runs, 1)) < neighbours
    signs = dice.choice((-1.0, 1.0), (runs, 1)) * (dice.random((runs, 1)) < world.steps)
    stepped = signs * (ends > machine.budget_s * dice.random((runs, 1)))
    wander = _wander(world, dice, ends)

    def of(row: str, forms: Forms) -> float:
        return forms.other if row == FORM else forms.alike

    return {
        row: of(row, world.between_sd) * between[row]
        + of(row, world.neighbour) * beside
        + of(row, world.step) * stepped
        + of(row, world.wander_sd) * wander
        for row in ROWS
    }


def _wander(world: SimulatedWorld, dice: Array, ends: Array) -> Array:
    """Standard normal at the end of each worker, and forgotten exponentially in between (Ornstein and Uhlenbeck)."""
    fresh = dice.standard_normal(ends.shape)
    if not world.wander_s:
        return 0 * ends
    found = fresh.copy()
    for worker in range(1, ends.shape[1]):
        kept = _exp(-(ends[:, worker] - ends[:, worker - 1]) / world.wander_s)
        found[:, worker] = kept * found[:, worker - 1] + (1 - kept**2) ** 0.5 * fresh[:, worker]
    return found


def _exp(logs: Array) -> Array:
    import numpy as np

    return np.exp(logs)
