"""What happens when a constant of `check` is wrong by half: `python benchmarks/constants.py`, a minute on one CPU.

Normal workers and runs, drawn and decided in numpy, apart from ffnbench's own code: the table of constants in
docs/methodology-details.md has its figures from here. Shares are of a ratio's log, in percent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np  # noqa: TID253 - drawing is all that this file does
from scipy.special import stdtr, stdtrit  # noqa: TID253

LOOKS = (4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 41, 48)
CHECKS, RUNS = 100_000, 20_000
DICE = np.random.default_rng(5)


def checks(between: float, runs: int, tolerance: float, prior: float, weight: float, resolved: float) -> str:
    """Two unchanged rows against a baseline of so many runs: how many are accepted, accused, unclear, found at +3 x."""
    accepted, accused, unclear = np.ones(CHECKS, bool), np.zeros(CHECKS, bool), np.zeros(CHECKS, bool)
    for _ in range(2):
        means = DICE.normal(0, np.hypot(between, 0.2), (CHECKS, runs))
        own = (0.04 * DICE.chisquare(6, (CHECKS, runs)) / 6).sum(1) / runs**2
        now = DICE.normal(0, np.hypot(between, 0.12), CHECKS)
        error = 0.0144 * DICE.chisquare(12, CHECKS) / 12 * 1.25**2
        seen = 2 * (runs - 1) ** 2 / (3 * runs - 4) if runs > 1 else 0.0
        steps = (np.diff(means, axis=1) ** 2).mean(1) / 2 - own * runs if runs > 1 else np.zeros(CHECKS)
        moved = (weight * prior**2 + seen * np.maximum(steps, 0)) / (weight + seen)
        parts = ((moved * (1 + 1 / runs), weight + seen), (own, 6 * runs), (error, 12))
        whole = sum(part for part, _ in parts)
        freedom = whole**2 / sum(part**2 / n for part, n in parts)
        half, change = stdtrit(freedom, 0.975) * np.sqrt(whole), now - means.mean(1)

        def beyond(more: float) -> np.ndarray:
            return stdtr(freedom, (tolerance - change - more) / np.sqrt(whole)) <= 0.0125  # noqa: B023 - called here

        accused |= beyond(0.0)
        unclear |= ~beyond(0.0) & (change + half > tolerance)
        accepted &= half <= resolved * tolerance
    told = [
        f"{100 * x[accepted].mean():.1f} %" if accepted.any() else "-"
        for x in (accused, unclear, ~beyond(3 * tolerance))
    ]
    return (
        f"accepted {100 * accepted.mean():.0f} %; of these accused {told[0]}, unclear {told[1]}, +3 x missed {told[2]}"
    )


def looks() -> Callable[[float, float, float], str]:
    """What the interval at the end covers, for the levels of the first look, the later ones, and an undecided end."""
    values, count = DICE.standard_normal((RUNS, LOOKS[-1])), np.arange(1, LOOKS[-1] + 1)
    mean = np.cumsum(values, 1) / count
    error = np.sqrt(np.maximum((np.cumsum(values**2, 1) - count * mean**2) / np.maximum(count - 1, 1), 0) / count)

    def one(levels: tuple[float, float, float], most: int, tolerance: float, change: float) -> float:
        going, covered = np.ones(RUNS, bool), np.zeros(RUNS, bool)
        for n in [n for n in LOOKS if n < most] + [most]:
            level = levels[0] if n <= LOOKS[0] else levels[2] if n == most else levels[1]
            half, found = stdtrit(n - 1, 0.5 + level / 2) * error[:, n - 1], mean[:, n - 1] + change
            stop = going & ((found - half > tolerance) | (found + half <= tolerance) | (n == most))
            covered[stop] = (np.abs(mean[:, n - 1]) <= half)[stop]
            going &= ~stop
        return float(covered.mean())

    def told(first: float, later: float, last: float) -> str:
        found = [
            one((first, later, last), most, tolerance, share * tolerance)
            for most in (4, 6, 8, 14, 22, 48)
            for tolerance in (0.3, 0.6, 1, 1.5, 2, 3, 5, 10)
            for share in (0, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5, 3)
        ]
        return f"covers {100 * min(found):.1f} to {100 * max(found):.1f} %"

    return told


def main() -> None:
    """Each constant at its value, at half and at one and a half of it."""
    for prior in (0.2, 0.4, 0.6):
        print(f"PRIOR {prior} %: 1 run, tolerance 2 %, runs move by 1 %: {checks(1.0, 1, 2.0, prior, 3, 1.1)}")
    for weight in (1.5, 3.0, 4.5):
        print(f"PRIOR_FREEDOM {weight}: the same: {checks(1.0, 1, 2.0, 0.4, weight, 1.1)}")
    for resolved in (0.55, 1.1, 1.65):
        for between in (0.3, 0.6):
            told = checks(between, 5, 1.0, 0.4, 3, resolved)
            print(f"RESOLVED {resolved}: 5 runs, tolerance 1 %, runs move by {between} %: {told}")
    covers = looks()
    for first, later, last in ((0.96, 0.998, 0.985), (0.992, 0.992, 0.992)):
        print(f"FIRST, LATER, LAST {first}, {later}, {last}: {covers(first, later, last)}")
    for first in (0.98, 0.94):
        print(f"FIRST {first}: {covers(first, 0.998, 0.985)}")
    for later in (0.999, 0.997):
        print(f"LATER {later}: {covers(0.96, later, 0.985)}")
    for last in (0.9925, 0.9775):
        print(f"LAST {last}: {covers(0.96, 0.998, last)}")


if __name__ == "__main__":
    main()
