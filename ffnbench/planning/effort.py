"""How much is measured: flags -> Protocol. Pure; their defaults stand here.

Either the numbers of workers and rounds are given, or limits are, with which the run
finds these numbers (stats/stopping.py).
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import read_positive
from ffnbench.plan import DEFAULT_ROUNDS, DEFAULT_WORKERS, Protocol
from ffnbench.request import DEFAULT_BUDGET_S, MeasuredRequest, Request, spelling

MIN_WORKERS, MIN_ROUNDS = 3, 6
QUICK_WORKERS, QUICK_ROUNDS = 5, 4
DEFAULT_PRECISION, FINEST, COARSEST = 1.0, 0.05, 50.0  # percent
# of the default budget: so long for each case, and for so many cases at least
BUDGET_A_CASE_S, FEWEST_BUDGETED = 5.0, 3
LEAST_BUDGET_S = 5.0
MOST_RUNS, PAUSE_S, DAY_S, MOST_S = 20, 60.0, 86_400, 1e9


def protocol_of(cases: int, effort: MeasuredRequest) -> Protocol:
    """The protocol for a number of cases. Raises FfnbenchError for limits that
    contradict each other or can't be met.
    """
    fixed = [
        name for name in ("workers", "rounds") if getattr(effort, name) is not None
    ]
    if effort.quick:
        fixed.append("quick")
    limits = [
        name for name in ("precision", "budget") if getattr(effort, name) is not None
    ]
    if fixed and limits:
        raise FfnbenchError(
            f"--{fixed[0]} and --{limits[0]} can't be given together",
            "give --workers and --rounds, or --precision and --budget",
        )
    if fixed:
        protocol = _fixed_effort(effort)
    else:
        protocol = _adaptive_effort(effort.precision, effort.budget, cases)
    return replace(
        protocol, seed=check_seed(effort.seed), timeout_s=check_timeout(effort.timeout)
    )


def _fixed_effort(effort: MeasuredRequest) -> Protocol:
    """The protocol with numbers of workers and rounds: those that are given, or the
    defaults.
    """
    workers, rounds = DEFAULT_WORKERS, DEFAULT_ROUNDS
    if effort.quick:
        workers, rounds = QUICK_WORKERS, QUICK_ROUNDS
    if effort.workers is not None:
        workers = read_positive("workers", effort.workers)
    if effort.rounds is not None:
        rounds = read_positive("rounds", effort.rounds)
    if workers < MIN_WORKERS:
        raise FfnbenchError(
            f"--workers {workers} is too few for an interval",
            f"give at least {MIN_WORKERS}: every interval is over workers, not over samples",
        )
    return Protocol(workers=workers, rounds=rounds)


def _adaptive_effort(
    precision: float | None, budget: float | None, cases: int
) -> Protocol:
    """The protocol with the fewest workers and rounds, and with limits that say how
    many more there will be: a precision in percent, and a budget in seconds.
    """
    if budget is None:
        budget = DEFAULT_BUDGET_S
        if precision is None:
            budget = BUDGET_A_CASE_S * max(cases, FEWEST_BUDGETED)
    if precision is None:
        precision = DEFAULT_PRECISION
    hint = f"give {FINEST:g} to {COARSEST:g} percent, the half-width of a ratio's interval: --precision 0.5 is +-0.5%"
    _in_range("precision", precision, FINEST, COARSEST, hint)
    check_budget(budget)
    return Protocol(
        workers=MIN_WORKERS,
        rounds=MIN_ROUNDS,
        precision=precision / 100,
        budget_s=float(budget),
    )


def _in_range(name: str, value: float, least: float, most: float, hint: str) -> float:
    """The value, as it is; raises FfnbenchError where it is out of its range."""
    if not least <= value <= most:
        shown = f"{value:g}" if isinstance(value, float) else value
        raise FfnbenchError(f"{spelling(name)} {shown} is out of range", hint)
    return value


def check_seed(seed: int) -> int:
    """The seed, as it is; raises FfnbenchError where a generator may refuse it."""
    _in_range("seed", seed, 0, 2**63 - 1, "a seed is between 0 and 2^63 - 1")
    return seed


def check_budget(seconds: float) -> None:
    """Raise FfnbenchError for a budget too short for the fewest workers."""
    hint = f"give at least {LEAST_BUDGET_S:g} seconds: {MIN_WORKERS} workers take that long to start"
    _in_range("budget", seconds, LEAST_BUDGET_S, MOST_S, hint)


def check_timeout(seconds: float) -> float:
    """The timeout, as it is; raises FfnbenchError unless it is positive and finite."""
    return _in_range(
        "timeout", seconds, 1e-9, MOST_S, "give positive seconds; the default is 300"
    )


def pause_of(runs: int, pause: float | None) -> float:
    """The seconds between two runs; raises FfnbenchError where these, or how many runs
    there are, are out of range.
    """
    _in_range("runs", runs, 1, MOST_RUNS, f"a file holds 1 to {MOST_RUNS} runs")
    if pause is None:
        return PAUSE_S
    return _in_range(
        "pause", pause, 0, DAY_S, f"give 0 to {DAY_S} seconds, which is a day"
    )


def repeated(protocol: Protocol, request: Request) -> Protocol:
    """The protocol with the number of runs of the whole plan and the pause between
    them, and with a budget that is a bound where it was typed.
    """
    protocol = replace(protocol, bound=getattr(request, "budget", None) is not None)
    if not isinstance(request, MeasuredRequest):
        return protocol
    pause_s = pause_of(request.runs, request.pause)
    return replace(
        protocol, runs=request.runs, pause_s=pause_s if request.runs > 1 else 0.0
    )
