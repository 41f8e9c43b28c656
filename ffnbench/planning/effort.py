"""How much is measured: the flags of an effort -> Protocol. Pure; every default of
theirs stands here.

Either the numbers of workers and rounds are given, or limits, and the run finds the
numbers (stats/stopping.py).
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
BUDGET_A_CASE_S, LEAST_BUDGET_S = 5.0, 5.0
MOST_RUNS, PAUSE_S, DAY_S, MOST_S = 20, 60.0, 86_400, 1e9


def protocol_of(cases: int, effort: MeasuredRequest) -> Protocol:
    """The protocol for that many cases. Raises FfnbenchError for limits that contradict
    each other or can't be met.
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
    """Workers and rounds as they are given."""
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
    """The fewest workers and rounds, with limits that say how many more: percent, and
    seconds.
    """
    if budget is None:
        if precision is None:
            budget = BUDGET_A_CASE_S * max(cases, 3)
        else:
            budget = DEFAULT_BUDGET_S
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
    """The value of a flag; raises FfnbenchError where it is out of its range."""
    if not least <= value <= most:
        shown = f"{value:g}" if isinstance(value, float) else value
        raise FfnbenchError(f"{spelling(name)} {shown} is out of range", hint)
    return value


def check_seed(seed: int) -> int:
    """A seed that every generator takes."""
    _in_range("seed", seed, 0, 2**63 - 1, "a seed is between 0 and 2^63 - 1")
    return seed


def check_budget(seconds: float) -> None:
    """Raise FfnbenchError for a budget that the fewest workers can't keep to."""
    hint = f"give at least {LEAST_BUDGET_S:g} seconds: {MIN_WORKERS} workers take that long to start"
    _in_range("budget", seconds, LEAST_BUDGET_S, MOST_S, hint)


def check_timeout(seconds: float) -> float:
    """A timeout is positive and finite."""
    return _in_range(
        "timeout", seconds, 1e-9, MOST_S, "give positive seconds; the default is 300"
    )


def pause_of(runs: int, pause: float | None) -> float:
    """Seconds between two runs; raises FfnbenchError for what is no number of runs, or
    of seconds.
    """
    _in_range("runs", runs, 1, MOST_RUNS, f"a file holds 1 to {MOST_RUNS} runs")
    if pause is None:
        return PAUSE_S
    return _in_range(
        "pause", pause, 0, DAY_S, f"give 0 to {DAY_S} seconds, which is a day"
    )


def repeated(protocol: Protocol, request: Request) -> Protocol:
    """The protocol with how often the whole is measured, and whether its budget was
    typed and so is a bound.
    """
    protocol = replace(protocol, bound=getattr(request, "budget", None) is not None)
    if not isinstance(request, MeasuredRequest):
        return protocol
    pause_s = pause_of(request.runs, request.pause)
    return replace(
        protocol, runs=request.runs, pause_s=pause_s if request.runs > 1 else 0.0
    )
