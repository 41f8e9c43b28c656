"""What a second machine is worth: `python benchmarks/confirm.py [--repeats N]`, two
and a half minutes of one CPU.

Runs of `ab` on simulated machines by the real loop and decisions: of unchanged code and
of code that is slower by 3, 5, 7 and 10 %, at the default tolerance. The ratio of head
to base differs between machines by 0.5, 1 and 2 %. What a run calls REGRESSED is
measured again on a second machine, as by `ab --confirm`. Prints how many of the runs
end so by one machine, and by both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from exam.alarms import check_plan
from exam.machine import STATES
from exam.simulated import Confirmation, simulate_confirmations
from exam.text import table

from ffnbench.gate.decision import DEFAULT_LATENCY, Status

SHARES = (0.0, 0.03, 0.05, 0.07, 0.10)


def accused(entries: Sequence[Confirmation]) -> tuple[int, int]:
    """How many are REGRESSED by the first run, and by both."""
    return (
        sum(entry.first is Status.REGRESSED for entry in entries),
        sum(entry.both is Status.REGRESSED for entry in entries),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; end with 1 where unchanged code is accused by both machines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=80, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit-only",
        action="store_true",
        help="only code at the limit, on machines that differ by 1 %%",
    )
    asked = parser.parse_args(arguments)
    worlds, shares = STATES, SHARES
    if asked.limit_only:
        worlds, shares = STATES[1:2], (DEFAULT_LATENCY,)
    entries = simulate_confirmations(
        check_plan(variants="relu,swiglu", precision=None),
        DEFAULT_LATENCY,
        shares,
        asked.repeats,
        worlds,
        seed=asked.seed,
    )
    rows = []
    for world in worlds:
        cells = []
        for share in shares:
            of_cell = [
                entry
                for entry in entries
                if (entry.world, entry.injected) == (world.name, share)
            ]
            cells.append("{} -> {}".format(*accused(of_cell)))
        rows.append((world.name.replace("states of", "machines differ by"), *cells))
    print(table(("", *(f"+{share:.0%}" for share in shares)), rows))
    print(f"\nREGRESSED of {asked.repeats}: by one machine -> by both")
    _, wrong = accused([entry for entry in entries if not entry.injected])
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
