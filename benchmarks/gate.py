"""How often `check` is wrong on simulated machines: `python benchmarks/gate.py
[--baselines N]`, minutes on two CPUs.

Baselines of three runs on machines made of dice, and checks of each by the real loop:
of unchanged code and of code that is slower by 3, 5, 7, 8 and 10 %, at the default
tolerance. `--ab` simulates `ab` in place of `check`. Prints a row a world; ends with 1
at a false alarm too many.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from exam.alarms import broken_promises, check_plan, report
from exam.machine import STATES, WORLDS, as_measured
from exam.simulated import BASELINE_RUNS, simulate_checks, simulate_sides

from ffnbench.gate.decision import DEFAULT_LATENCY
from ffnbench.plan.protocol import DEFAULT_BUDGET_S

CHOSEN = (*WORLDS[:3], STATES[0])
SHARES = (0.0, 0.03, 0.05, 0.07, 0.08, 0.10)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--baselines", type=int, default=60, help="in all worlds together"
    )
    parser.add_argument("--runs", type=int, default=BASELINE_RUNS, help="of a baseline")
    parser.add_argument(
        "--ab",
        action="store_true",
        help="two sides of one run, in place of a baseline and its check",
    )
    parser.add_argument(
        "--budget", type=float, default=DEFAULT_BUDGET_S, help="seconds of a check"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    worlds = (as_measured(), *CHOSEN)
    repeats = max(1, asked.baselines // len(worlds))
    settings = {"budget": asked.budget, "seed": asked.seed}
    if asked.ab:
        plan = check_plan(variants="relu,swiglu", precision=None)
        alarms = simulate_sides(
            plan, DEFAULT_LATENCY, SHARES, repeats, worlds, **settings
        )
    else:
        plan = check_plan(precision=None)
        alarms = simulate_checks(
            plan, DEFAULT_LATENCY, SHARES, repeats, worlds, runs=asked.runs, **settings
        )
    broken = broken_promises(alarms)
    print(report(alarms, DEFAULT_LATENCY), *broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
