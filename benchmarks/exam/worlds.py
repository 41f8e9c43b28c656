"""What works beside a live exam: a table of neighbours, from none to bursts on every CPU. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from math import inf

QUIET = "quiet"
LONGEST = 4  # of a turn, in means


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorld:
    """How many processes work beside us (None: one for each usable CPU, all in step) and how long a turn of theirs is.

    Turns of work and of rest are exponentially distributed with that mean; without one there is no rest.
    """

    name: str
    processes: int | None
    mean_s: float | None = None


_TABLE = (
    LiveWorld(name=QUIET, processes=0),
    LiveWorld(name="spinner", processes=1),
    LiveWorld(name="spinners", processes=None),
    LiveWorld(name="bursts 0.1 s", processes=1, mean_s=0.1),
    LiveWorld(name="bursts 1 s", processes=1, mean_s=1.0),
    LiveWorld(name="bursts 3 s", processes=None, mean_s=3.0),
)
LIVE_WORLDS = {world.name: world for world in _TABLE}


def chosen(names: Iterable[str]) -> tuple[LiveWorld, ...]:
    """The worlds of these names, all where none is named."""
    wanted = set(names)
    return tuple(world for world in _TABLE if not wanted or world.name in wanted)


def seed_of(repeat: int, name: str | None) -> int:
    """The seed of one run: each world of each repeat has its own, and so has its truth (None)."""
    names = list(LIVE_WORLDS)
    return repeat * (len(names) + 1) + (len(names) if name is None else names.index(name))


def turns(seed: int, mean_s: float | None) -> Iterator[tuple[bool, float]]:
    """Whether to work, and for how many seconds: by turns, the same for the same seed."""
    if mean_s is None:
        yield True, inf
        return
    dice = random.Random(seed)
    for works in cycle((True, False)):
        yield works, min(dice.expovariate(1 / mean_s), LONGEST * mean_s)
