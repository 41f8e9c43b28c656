"""The worlds of the simulated exam, read from simulated.toml, which explains every number and has none of the code."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.jsonable import decode

FILE = Path(__file__).with_name("simulated.toml")


class Workers(StrEnum):
    """How workers are distributed."""

    NORMAL = "normal"
    STUDENT3 = "student3"
    SKEWED = "skewed"
    BIMODAL = "bimodal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """A number for a form with other matrix products than the reference's, and one for a form with the same."""

    other: float = 0.0
    alike: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorld:
    """What a world does to ratios."""

    name: str
    what: str
    rounds_sd: float
    placements_sd: float
    workers_sd: float
    workers: Workers = Workers.NORMAL
    slow_share: float = 0.0
    between_sd: Forms = Forms()
    neighbour: Forms = Forms()
    in_baseline: float = 0.0
    in_check: float = 0.0
    wander_sd: Forms = Forms()
    wander_s: float = 0.0
    step: Forms = Forms()
    steps: float = 0.0
    missed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMachine:
    """What is the same in every world: seconds and numbers of workers, rounds and placements."""

    budget_s: float
    baseline_workers: int
    start_s: float
    round_s: float
    placements: int
    rounds_each: int
    seconds_sd: float

    @property
    def worker_s(self) -> float:
        """Seconds of a worker."""
        return self.start_s + self.placements * self.rounds_each * self.round_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """One for whoever changes the code, one for what is published."""

    development: int
    publishing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The whole file."""

    seeds: Seeds
    machine: SimulatedMachine
    worlds: tuple[SimulatedWorld, ...]


@cache
def simulated() -> Simulated:
    """The worlds of simulated.toml, read at the first call."""
    return parse(FILE.read_text(encoding="utf-8"))


def parse(text: str) -> Simulated:
    """The worlds that a text says; raises ValueError for a wrong table, naming it and the key."""
    import tomllib  # not before it is needed

    data = tomllib.loads(text)
    if unknown := sorted(data.keys() - {"seeds", "machine", "usual", "world"}):
        raise ValueError(f"unknown key {unknown[0]!r}")
    worlds = tuple(_world({**data.get("usual", {}), **row}) for row in data.get("world", []))
    names = [world.name for world in worlds]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"world {twice[0]!r} stands there twice")
    seeds, machine = (_read(of, data.get(key), key) for key, of in (("seeds", Seeds), ("machine", SimulatedMachine)))
    if seeds.development == seeds.publishing:
        raise ValueError("seeds: publishing is the seed of development")
    return Simulated(seeds=seeds, machine=machine, worlds=worlds)


def _world(row: dict[str, Any]) -> SimulatedWorld:
    where = f"world {row.get('name')!r}"
    world: SimulatedWorld = _read(SimulatedWorld, row, where)
    for key in ("in_baseline", "in_check", "steps", "slow_share"):
        if getattr(world, key) > 1:
            raise ValueError(f"{where}: {key}: {getattr(world, key):g} is no share")
    if (world.workers is Workers.BIMODAL) != (0 < world.slow_share < 1):
        raise ValueError(f"{where}: slow_share: bimodal workers have one between 0 and 1, others have none")
    if (world.wander_sd != Forms()) != (world.wander_s > 0):
        raise ValueError(f"{where}: wander_s: what wanders takes seconds")
    return world


def _read(kind: type, row: Any, where: str) -> Any:
    """A table of the file, without negative numbers."""
    try:
        found: Any = decode(kind, row)
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}".replace(f"{kind.__name__}.", "")) from problem
    if negative := _negative(found):
        raise ValueError(f"{where}: {negative}: below 0")
    return found


def _negative(of: Any) -> str:
    """The key of the first number below 0, or nothing."""
    for field in fields(of):
        value = getattr(of, field.name)
        if is_dataclass(value) and (inner := _negative(value)):
            return f"{field.name}.{inner}"
        if isinstance(value, int | float) and value < 0:
            return field.name
    return ""
