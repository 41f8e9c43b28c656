"""What is promised of simulated worlds, and which promises the counts do not keep. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from ffnbench.selftest.simulated import Forms, SimulatedWorld, Workers
from ffnbench.selftest.tallies import AB, BASELINES, CHECK, Covered, Tally
from ffnbench.stats.regression import DEFAULT_LATENCY

FALSE_AT_MOST = 0.01  # of checks
COVERAGE = (0.94, 0.97)
ENOUGH = 1000  # runs for a share to be taken at its word; of fewer, two standard errors are chance
FINE = 0.01  # a tolerance that asks much
UNCHANGED = 0.0
HERE = Callable[[SimulatedWorld], bool]


def only_between(world: SimulatedWorld) -> bool:
    """Whether nothing but runs differs, if they do."""
    nothing = world.neighbour == world.wander_sd == world.step == Forms()
    return nothing and world.workers is Workers.NORMAL and world.placements_sd <= world.workers_sd


def moving_by(least: float, most: float) -> HERE:
    """Worlds in which runs move by so much, and nothing else differs."""
    return lambda world: only_between(world) and least <= world.between_sd.other <= most


def everywhere(world: SimulatedWorld) -> bool:
    """Every world with runs that move by at most 1 %."""
    return world.between_sd.other <= 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A share of checks that is at most, or at least, something. `count` is a field of Tally."""

    count: str
    at_most: float = 1.0
    at_least: float = 0.0
    command: str = CHECK
    baselines: tuple[int, ...] = BASELINES
    tolerance: float = FINE
    slowed: float = UNCHANGED
    worlds: HERE = everywhere

    def is_about(self, tally: Tally, world: SimulatedWorld) -> bool:
        """Whether these checks are what it speaks of."""
        asked = (tally.command, tally.tolerance, tally.slowed) == (self.command, self.tolerance, self.slowed)
        return asked and (not tally.baseline or tally.baseline in self.baselines) and self.worlds(world)

    def broken_by(self, tally: Tally) -> str:
        """How the counts break it, or nothing."""
        of = tally.checks if self.count == "refused" else tally.asked
        hits = getattr(tally, self.count)
        if within(hits, of, self.at_least, self.at_most):
            return ""
        bound = f"at most {self.at_most:.0%}" if self.at_most < 1 else f"at least {self.at_least:.0%}"
        return f"{_asked(tally)}: {self.count.replace('_', ' ')} in {hits} of {of} ({bound})"


UNCLEAR, FOUND, REFUSED = "unclear", "found", "refused"
PROMISES = (
    Promise(count=UNCLEAR, at_most=0.5, baselines=(5,), worlds=moving_by(0.003, 0.003)),
    Promise(count=UNCLEAR, at_most=0.3, baselines=(20,), worlds=moving_by(0.003, 0.003)),
    Promise(count=FOUND, at_least=0.95, baselines=(5, 20), slowed=0.03, worlds=moving_by(0.003, 0.003)),
    Promise(count=REFUSED, at_least=0.5, baselines=(5, 20), worlds=moving_by(0.006, 0.01)),
    Promise(count=UNCLEAR, at_most=0.05, tolerance=DEFAULT_LATENCY),
    Promise(count=FOUND, at_least=0.99, tolerance=DEFAULT_LATENCY, slowed=0.10),
    Promise(count=UNCLEAR, at_most=0.1, command=AB),
    Promise(count=FOUND, at_least=0.95, command=AB, slowed=0.02),
    Promise(count=FOUND, at_least=0.99, command=AB, slowed=0.03),
)


def broken_by_checks(tallies: Iterable[Tally], worlds: Sequence[SimulatedWorld]) -> list[str]:
    """The promises that checks did not keep, each with its counts: false alarms first."""
    by_name, counted = {world.name: world for world in worlds}, list(tallies)
    found = [
        f"{_asked(t)}: false alarms in {t.false_alarms} of {t.asked} (at most {FALSE_AT_MOST:.0%})"
        for t in counted
        if not within(t.false_alarms, t.asked, 0.0, FALSE_AT_MOST)
    ]
    kept = ((promise, tally) for promise in PROMISES for tally in counted)
    said = (promise.broken_by(t) for promise, t in kept if promise.is_about(t, by_name[t.world]))
    return found + [text for text in said if text]


def broken_by_intervals(covered: Iterable[Covered], worlds: Sequence[SimulatedWorld]) -> list[str]:
    """Where an interval does not hold the truth of its own run as often as it should, and the world does not say so."""
    known = {world.name for world in worlds if world.missed}
    return [
        f"{of.world}: intervals of {of.how} runs hold {of.in_run} of {of.runs}"
        for of in covered
        if of.world not in known and not _covers(of.in_run, of.runs)
    ]


def not_of_all_runs(covered: Iterable[Covered]) -> list[str]:
    """The worlds in which the interval of one run does not hold what all runs come to as often as it should."""
    out = [of.world for of in covered if not _covers(of.in_world, of.runs)]
    return list(dict.fromkeys(out))


def within(hits: int, of: int, low: float, high: float) -> bool:
    """Whether a share lies between two bounds; of few, but for chance."""
    below, above = (0.0 if of >= ENOUGH else _chance(bound, of) for bound in (low, high))
    return low * of - below <= hits <= high * of + above


def _covers(hits: int, of: int) -> bool:
    """Whether a coverage is what it should be, but for chance: 95 % is too near to the bounds for 2,000 runs."""
    low, high = COVERAGE
    return low * of - _chance(low, of) <= hits <= high * of + _chance(high, of)


def _chance(share: float, of: int) -> float:
    return 2 * sqrt(share * (1 - share) * of)


def _asked(tally: Tally) -> str:
    runs = f", baseline of {tally.baseline}" if tally.baseline else ""
    slowed = f", +{tally.slowed:.0%}" if tally.slowed else ""
    return f"{tally.world}, {tally.command} at {tally.tolerance:.0%}{runs}{slowed}"
