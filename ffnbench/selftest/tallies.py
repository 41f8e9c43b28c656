"""What the simulated exam asks in every world, and what it counts: of checks, and of the intervals of compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any, TypeVar
from zlib import crc32

from ffnbench.plan import CONTROL, Protocol
from ffnbench.selftest.alarms import check_plan, check_policy
from ffnbench.selftest.decisions import Looker, compared, history, holds, looker
from ffnbench.selftest.draws import FORM, HEAD, ROWS, Drawn, draw
from ffnbench.selftest.processes import Counting, each, silent
from ffnbench.selftest.simulated import Simulated, SimulatedMachine, SimulatedWorld
from ffnbench.stats.regression import Finding, Status

BASELINES = (1, 5, 20)  # runs
SLOWED = {0.01: (0.02, 0.03), 0.02: (0.03, 0.05), 0.05: (0.10,)}  # by tolerance: by how much FORM is slower
SLOWED_HEAD = {0.01: (0.02, 0.03), 0.02: (0.03, 0.05)}
CHECK, AB = "check", "ab"
FIXED, STOPPED = "fixed", "stopped"
A_CHUNK = 50  # draws; each has dice of its own, so that the processes that share them change nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the checks of one world came to, for one command, baseline, tolerance and slow-down."""

    world: str
    command: str
    baseline: int  # runs, 0 for ab
    tolerance: float
    slowed: float  # 0 is unchanged code
    checks: int
    refused: int = 0
    false_alarms: int = 0  # checks that accuse a row which has not changed
    found: int = 0  # checks that accuse the slowed row
    unclear: int = 0  # checks with a row that is decided neither way

    @property
    def asked(self) -> int:
        """Checks that were not refused."""
        return self.checks - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """How often the interval of FORM's row in `compare` held the true ratio: that of the very run, and of all runs."""

    world: str
    how: str  # FIXED workers, or STOPPED by the precision
    runs: int
    workers: int  # of all runs together
    in_run: int
    in_world: int


Counted = TypeVar("Counted", Tally, Covered)


COUNTS: dict[type, tuple[str, ...]] = {
    Tally: ("checks", "refused", "false_alarms", "found", "unclear"),
    Covered: ("runs", "workers", "in_run", "in_world"),
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some draws of one world."""

    world: SimulatedWorld
    machine: SimulatedMachine
    seed: int
    number: int
    size: int

    def dice(self) -> Any:
        """The same for the same chunk, whoever draws."""
        import numpy as np

        return np.random.default_rng([self.seed, crc32(self.world.name.encode()), self.number])

    def now(self, dice: Any) -> list[Drawn]:
        """Runs of today, long enough for two looks."""
        workers = ceil(1.5 * self.machine.budget_s / self.machine.worker_s) + 4
        rows = (*ROWS, HEAD, CONTROL)
        return draw(
            self.world, self.machine, dice, runs=self.size, workers=workers, rows=rows, neighbours=self.world.in_check
        )

    def past(self, dice: Any) -> list[list[Drawn]]:
        """The runs of a baseline each, as many as the longest has."""
        most, workers = max(BASELINES), self.machine.baseline_workers
        runs = draw(
            self.world, self.machine, dice, runs=self.size * most, workers=workers, rows=ROWS,
            neighbours=self.world.in_baseline,
        )  # fmt: skip
        return [runs[first : first + most] for first in range(0, len(runs), most)]


def check_all(chunk: Chunk) -> list[Tally]:
    """Every question about checks, put to every draw."""
    dice, plan = chunk.dice(), check_plan()
    lookers = {tolerance: looker(chunk.machine, plan, check_policy(tolerance)) for tolerance in SLOWED}
    tallies: list[Tally] = []
    for past, now in zip(chunk.past(dice), chunk.now(dice), strict=True):
        tallies += _checks(chunk, lookers, past, now)
        tallies += _pairs(chunk, lookers, now)
    return added(tallies)


def _checks(chunk: Chunk, lookers: dict[float, Looker], past: Sequence[Drawn], now: Drawn) -> Iterator[Tally]:
    hoped = next(iter(lookers.values())).hoped(past[0])
    for runs in BASELINES:
        known = history(past[:runs], chunk.machine.baseline_workers)
        for tolerance, shares in SLOWED.items():
            ask = lookers[tolerance]
            refused = ask.refuses(known, hoped)
            for slowed in (0.0, *shares):
                said = None if refused else ask.check(known, now, slowed)
                yield _tally(chunk.world, CHECK, runs, tolerance, slowed, said)


def _pairs(chunk: Chunk, lookers: dict[float, Looker], now: Drawn) -> Iterator[Tally]:
    for tolerance, shares in SLOWED_HEAD.items():
        for slowed in (0.0, *shares):
            yield _tally(chunk.world, AB, 0, tolerance, slowed, lookers[tolerance].ab(now, slowed))


def _tally(
    world: SimulatedWorld, command: str, runs: int, tolerance: float, slowed: float, said: list[Finding] | None
) -> Tally:
    accused = {finding.case for finding in said or () if finding.status is Status.REGRESSED}
    changed = {FORM, HEAD} if slowed else set()
    return Tally(
        world=world.name, command=command, baseline=runs, tolerance=tolerance, slowed=slowed, checks=1,
        refused=said is None, false_alarms=bool(accused - changed), found=bool(accused & changed),
        unclear=any(finding.status is Status.UNCLEAR for finding in said or ()),
    )  # fmt: skip


def cover_all(chunk: Chunk) -> list[Covered]:
    """How often the intervals of compare hold the truth, with fixed workers and stopped by the precision."""
    found: list[Covered] = []
    for now in chunk.now(chunk.dice()):
        for how, protocol in {FIXED: Protocol(), STOPPED: check_plan().protocol}.items():
            workers, mean = compared(now, protocol)
            found.append(
                Covered(
                    world=chunk.world.name, how=how, runs=1, workers=workers,
                    in_run=holds(mean, protocol, now.truth(FORM, workers)),
                    in_world=holds(mean, protocol, long_run(chunk.world)),
                )
            )  # fmt: skip
    return added(found)


def long_run(world: SimulatedWorld) -> float:
    """What the log of FORM's ratio comes to over the runs of an endless baseline."""
    return world.in_baseline * world.neighbour.other


def added(counted: Iterable[Counted]) -> list[Counted]:
    """Counts of the same question together, in the order in which they came."""
    groups: dict[tuple[object, ...], list[Counted]] = {}
    for one in counted:
        key = tuple(getattr(one, field.name) for field in fields(one) if field.name not in COUNTS[type(one)])
        groups.setdefault(key, []).append(one)
    return [
        replace(of[0], **{n: sum(getattr(o, n) for o in of) for n in COUNTS[type(of[0])]}) for of in groups.values()
    ]


def simulate_draws(
    work: Callable[[Chunk], list[Counted]],
    given: Simulated,
    runs: int,
    *,
    seed: int,
    processes: int | None = None,
    counting: Counting = silent,
) -> list[Counted]:
    """`runs` draws of every world, shared by processes; the counts are the same for any number of these."""
    chunks = [
        Chunk(world, given.machine, seed, number, min(A_CHUNK, runs - number * A_CHUNK))
        for world in given.worlds
        for number in range(ceil(runs / A_CHUNK))
    ]
    return added(one for counted in each(work, chunks, processes, counting) for one in counted)
