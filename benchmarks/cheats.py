"""Which modules that cheat are caught: `python benchmarks/cheats.py [--cheat NAME]`, some six minutes.

Each is run beside honest ones by what `compare` does. Prints what each gives, by what it is caught, what it claims to
take of the honest one's time, and what judging cost. Ends with 1 where one is not caught, or an honest row is accused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from exam.judge import CHEATS, ROUNDS, broken_by_cheats, in_order, judgements_of, report
from exam.text import save

from ffnbench.device.environment import usable_cpus


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cheat", action="append", choices=[cheat.name for cheat in CHEATS], help="repeatable")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", metavar="FILE.json", help="save what became of each row")
    asked = parser.parse_args(arguments)
    cheats = [cheat for cheat in CHEATS if not asked.cheat or cheat.name in asked.cheat]
    found = []
    for some in judgements_of(asked.seed, usable_cpus(), cheats, asked.rounds):
        found += some
        print(*some, sep="\n", file=sys.stderr)
    found = in_order(found, cheats)
    broken = broken_by_cheats(found)
    save(asked.o, found)
    print(report(found), *broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
