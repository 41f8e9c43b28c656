"""Which levels the looks of a check take: `python benchmarks/spending.py [--write]`,
two minutes.

A check looks after 6, 7, 8, 10, ... workers whether every row is decided. Each look
spends a part of the error of 5 % (Lan and DeMets 1983): after n of N workers alpha * (n
/ N) ** rho is spent, where rho falls from 4 to 1/2 as N grows. A run of few workers
keeps its error for the end, as O'Brien and Fleming (1979) do; a long one spends it
early, and ends early. The level of a look is that of Student's interval, with the
component between starters, which leaves out the truth just that often: runs of
unchanged code are simulated, and their p-values are ranked.

Prints the levels for each N. `--write` puts them where the program reads them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from ffnbench.record.result import CONFIDENCE
from ffnbench.stats.interval import STARTERS_FREEDOM, STARTERS_SD, WorkerValue, mean_of
from ffnbench.stats.stopping import interim_analyses

LEVELS = (
    Path(__file__).resolve().parents[1] / "ffnbench" / "gate" / "interim_levels.json"
)
ALPHA = 1 - CONFIDENCE
RUNS = 200_000
AT_A_TIME = 5_000  # runs, for the memory
MOST = 400  # workers
LATE_UP_TO, EARLIEST = 24.0, 0.5  # rho is 24 / N, and not below 1/2


@dataclass(frozen=True)
class Machine:
    """What scatters: a worker and a starter, in logs, and for how many workers two
    starters serve.
    """

    worker: float = 0.03
    starter: float = STARTERS_SD
    serve: int = 20

    def starters(self, workers: int) -> np.ndarray:
        """The number of each worker's starter: two by turns, and then the next two."""
        number = np.arange(workers)
        return 2 * (number // self.serve) + number % 2


def rho(workers: int) -> float:
    """How late a run of so many workers spends its error."""
    return max(EARLIEST, LATE_UP_TO / workers)


def spent(share: float, workers: int) -> float:
    """The error that is spent when this share of a run's workers is done."""
    return ALPHA * share ** rho(workers)


def p_values(
    machine: Machine, at: Sequence[int], runs: int, dice: np.random.Generator
) -> np.ndarray:
    """Of so many runs without a change the two-sided p at each look, as
    stats/interval.py reckons it.
    """
    parts = []
    for _ in range(runs // AT_A_TIME):
        starters = machine.starters(at[-1])
        values = machine.worker * dice.standard_normal((AT_A_TIME, at[-1]))
        values += (
            machine.starter
            * dice.standard_normal((AT_A_TIME, int(starters.max()) + 1))[:, starters]
        )
        parts.append(
            np.stack(
                [p_of(values[:, :count], starters[:count]) for count in at], axis=1
            )
        )
    return np.concatenate(parts)


def p_of(values: np.ndarray, starters: np.ndarray) -> np.ndarray:
    """The two-sided p of mean_of(...) of each row of values, all at once."""
    count, groups = values.shape[1], int(starters.max()) + 1
    member = np.zeros((count, groups))
    member[np.arange(count), starters] = 1.0
    sizes = member.sum(axis=0)
    mean = values.mean(axis=1)
    middles = values @ member / sizes
    squares = (values**2).sum(axis=1) - (sizes * middles**2).sum(axis=1)
    within = squares / (count - groups)
    more = groups - 1
    size = (count - (sizes**2).sum() / count) / more
    between_squares = (sizes * (middles - mean[:, None]) ** 2).sum(axis=1) / more
    seen = np.maximum(0.0, (between_squares - within) / size)
    freedom = STARTERS_FREEDOM + more
    of_starters = (
        (sizes**2).sum()
        / count**2
        * (STARTERS_FREEDOM * STARTERS_SD**2 + more * seen)
        / freedom
    )
    of_workers = within / count
    variance = of_workers + of_starters
    together = variance**2 / (
        of_workers**2 / (count - groups) + of_starters**2 / freedom
    )
    return 2 * stdtr(together, -np.abs(mean) / np.sqrt(variance))


def boundary(p: np.ndarray, at: Sequence[int]) -> list[float]:
    """The level of each look at which the error is spent as it should be; none is below
    the stated one.
    """
    going, done, levels = np.ones(len(p), bool), 0.0, []
    for place, count in enumerate(at):
        wanted = spent(count / at[-1], at[-1]) - done
        ranked = np.sort(p[going, place])
        limit = min(ALPHA, float(ranked[max(0, round(wanted * len(p)) - 1)]))
        out = going & (p[:, place] <= limit)
        done += out.mean()
        going &= ~out
        levels.append(round(1 - limit, 5))
    return levels


def left_out(p: np.ndarray, levels: Sequence[float]) -> float:
    """How often one of the looks leaves out the truth."""
    return float((p <= 1 - np.array(levels)).any(axis=1).mean())


def check_against_the_program(dice: np.random.Generator) -> None:
    """That the statistic here is the one that decides."""
    machine = Machine()
    for count in (6, 7, 25, 60):
        starters = machine.starters(count)
        values = machine.worker * dice.standard_normal((3, count))
        ours = p_of(values, starters)
        for row, p in zip(values, ours, strict=True):
            mean = mean_of(
                WorkerValue(float(log), int(of))
                for log, of in zip(row, starters, strict=True)
            )
            theirs = 2 * stdtr(mean.freedom, -abs(mean.mean) / mean.error)
            assert abs(theirs - p) < 1e-9, (count, theirs, p)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the levels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write {LEVELS.name}")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    dice = np.random.default_rng(asked.seed)
    check_against_the_program(dice)
    table: dict[int, list[float]] = {}
    for most in interim_analyses():
        if most > MOST:
            break
        at = [count for count in interim_analyses() if count <= most]
        table[most] = boundary(p_values(Machine(), at, asked.runs, dice), at)
        print(
            f"{most:4} workers: {' '.join(f'{level:.4f}' for level in table[most])}",
            flush=True,
        )
    if asked.write:
        rows = ",\n".join(
            f'  "{most}": {json.dumps(levels)}' for most, levels in table.items()
        )
        LEVELS.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
