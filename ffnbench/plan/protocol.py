"""How much is measured: flags -> Protocol. Pure; their defaults stand here.

Either the numbers of workers and rounds are given, or limits are, with which the run
finds these numbers (stats/stopping.py).
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.plan.plan import DEFAULT_ROUNDS, DEFAULT_WORKERS, Protocol
from ffnbench.plan.reading import spelling

MIN_WORKERS, MIN_ROUNDS = 3, 6
QUICK_WORKERS, QUICK_ROUNDS = 5, 4
DEFAULT_PRECISION, FINEST, COARSEST = 1.0, 0.05, 50.0  # percent
DEFAULT_BUDGET_S = 120.0  # of `check` and `ab`, and of a run with --precision alone
# of the default budget: so long for each case, and for so many cases at least
BUDGET_A_CASE_S, FEWEST_BUDGETED = 5.0, 3
LEAST_BUDGET_S = 5.0
MOST_RUNS, MOST_S = 20, 1e9
MOST_WORKERS, MOST_ROUNDS = 10_000, 10_000
DEFAULT_TIMEOUT_S = 300.0


def protocol_of(
    *,
    workers: int | None = None,
    rounds: int | None = None,
    quick: bool = False,
    precision: float | None = None,
    budget: float | None = None,
    seed: int = 0,
    runs: int = 1,
) -> Protocol:
    """The protocol of these flags: a precision in percent, times in seconds. Without a
    budget, `with_budget` gives it one.

    Raises FfnbenchError for limits that contradict each other or can't be met.
    """
    given = {"workers": workers, "rounds": rounds, "quick": quick or None}
    fixed = [name for name, value in given.items() if value is not None]
    limits = {"precision": precision, "budget": budget}
    limited = [name for name, value in limits.items() if value is not None]
    if fixed and limited:
        raise FfnbenchError(
            f"--{fixed[0]} and --{limited[0]} can't be given together",
            "give --workers and --rounds, or --precision and --budget",
        )
    in_range("seed", seed, 0, 2**63 - 1, "a seed is between 0 and 2^63 - 1")
    in_range("runs", runs, 1, MOST_RUNS, f"a file holds 1 to {MOST_RUNS} runs")
    budget_s = None
    if not fixed:
        workers, rounds = MIN_WORKERS, MIN_ROUNDS
        budget_s = budget
        if budget is None and precision is not None:
            budget_s = DEFAULT_BUDGET_S
        hint = f"give {FINEST:g} to {COARSEST:g} percent, the half-width of a ratio's interval: --precision 0.5 is +-0.5%"
        precision = DEFAULT_PRECISION if precision is None else precision
        in_range("precision", precision, FINEST, COARSEST, hint)
        if budget_s is not None:
            check_budget(budget_s)
    if workers is None:
        workers = QUICK_WORKERS if quick else DEFAULT_WORKERS
    if rounds is None:
        rounds = QUICK_ROUNDS if quick else DEFAULT_ROUNDS
    in_range("rounds", rounds, 1, MOST_ROUNDS, f"give 1 to {MOST_ROUNDS:,}")
    in_range("workers", workers, 1, MOST_WORKERS, f"give at most {MOST_WORKERS:,}")
    if workers < MIN_WORKERS:
        raise FfnbenchError(
            f"--workers {workers} is too few for an interval",
            f"give at least {MIN_WORKERS}: every interval is over workers, not over samples",
        )
    return Protocol(
        workers=workers,
        rounds=rounds,
        precision=None if precision is None else precision / 100,
        budget_s=budget_s,
        seed=seed,
        # a step that the budget allows is not cut off
        timeout_s=max(DEFAULT_TIMEOUT_S, budget_s or 0.0),
        bound=budget is not None,
        runs=runs,
    )


def with_budget(protocol: Protocol, cases: int) -> Protocol:
    """The protocol with the budget of a number of cases, where it has a limit and the
    user gives no budget.
    """
    if protocol.precision is None or protocol.budget_s is not None:
        return protocol
    budget_s = BUDGET_A_CASE_S * max(cases, FEWEST_BUDGETED)
    return replace(protocol, budget_s=budget_s)


def in_range(name: str, value: float, least: float, most: float, hint: str) -> None:
    """Raise FfnbenchError where the value of a flag is out of its range."""
    if not least <= value <= most:
        shown = f"{value:g}" if isinstance(value, float) else value
        raise FfnbenchError(f"{spelling(name)} {shown} is out of range", hint)


def check_budget(seconds: float) -> None:
    """Raise FfnbenchError for a budget too short for the fewest workers."""
    hint = f"give at least {LEAST_BUDGET_S:g} seconds: {MIN_WORKERS} workers take that long to start"
    in_range("budget", seconds, LEAST_BUDGET_S, MOST_S, hint)
