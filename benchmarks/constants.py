"""What happens when a constant of `check` is wrong by half: `python
benchmarks/constants.py`, a minute on one CPU.

Normal workers and runs, drawn and decided in numpy, apart from ffnbench's own code: the
table of constants in docs/methodology-details.md has its figures from here. Shares are
of a ratio's log, in percent.
"""

from __future__ import annotations

import numpy as np  # noqa: TID253 - drawing is all that this file does
from scipy.special import stdtr, stdtrit  # noqa: TID253

CHECKS = 100_000
DICE = np.random.default_rng(5)


def checks(
    between: float, runs: int, tolerance: float, prior: float, weight: float
) -> str:
    """Two unchanged rows against a baseline of so many runs: how many are accused,
    unclear, found at +3 x.
    """
    accused, unclear = np.zeros(CHECKS, bool), np.zeros(CHECKS, bool)
    for _ in range(2):
        means = DICE.normal(0, np.hypot(between, 0.2), (CHECKS, runs))
        own = (0.04 * DICE.chisquare(6, (CHECKS, runs)) / 6).sum(1) / runs**2
        now = DICE.normal(0, np.hypot(between, 0.12), CHECKS)
        error = 0.0144 * DICE.chisquare(12, CHECKS) / 12 * 1.25**2
        seen = 2 * (runs - 1) ** 2 / (3 * runs - 4) if runs > 1 else 0.0
        steps = (
            (np.diff(means, axis=1) ** 2).mean(1) / 2 - own * runs
            if runs > 1
            else np.zeros(CHECKS)
        )
        moved = (weight * prior**2 + seen * np.maximum(steps, 0)) / (weight + seen)
        parts = ((moved * (1 + 1 / runs), weight + seen), (own, 6 * runs), (error, 12))
        whole = sum(part for part, _ in parts)
        freedom = whole**2 / sum(part**2 / n for part, n in parts)
        half, change = stdtrit(freedom, 0.975) * np.sqrt(whole), now - means.mean(1)

        def beyond(more: float) -> np.ndarray:
            room = (tolerance - change - more) / np.sqrt(whole)  # noqa: B023 - called here
            return stdtr(freedom, room) <= 0.0125  # noqa: B023

        accused |= beyond(0.0)
        unclear |= ~beyond(0.0) & (change + half > tolerance)
    told = [
        f"{100 * rows.mean():.1f} %"
        for rows in (accused, unclear, ~beyond(3 * tolerance))
    ]
    return f"accused {told[0]}, unclear {told[1]}, +3 x missed {told[2]}"


def main() -> None:
    """Each constant at its value, at half and at one and a half of it."""
    for prior in (0.2, 0.4, 0.6):
        print(
            f"RUNS_SD {prior} %: 1 run, tolerance 2 %, runs move by 1 %: {checks(1.0, 1, 2.0, prior, 3)}"
        )
    for weight in (1.5, 3.0, 4.5):
        print(f"RUNS_FREEDOM {weight}: the same: {checks(1.0, 1, 2.0, 0.4, weight)}")


if __name__ == "__main__":
    main()
