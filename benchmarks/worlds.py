"""How often ffnbench is wrong on this machine, beside neighbours: `python benchmarks/worlds.py`, 35 minutes.

swiglu against relu, and swiglu slowed down by exactly 5 %, in six worlds from quiet to bursts on every CPU, held
against a long quiet run. `--rivals` measures with torch's Timer and a median loop too, each in the same time. With
`--checks`, several hours: `ffnbench check` of unchanged code in each world, and of code that is slower by 3 and 5 %.
Prints a row a world; Ctrl-C prints what was measured by then. Ends with 1 where something was wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from exam import live
from exam.alarms import TOLERANCE, broken_promises, check_plan
from exam.alarms import report as alarms_report
from exam.readings import contradictions, exam_plan
from exam.readings import report as readings_report
from exam.text import save
from exam.worlds import LIVE_WORLDS, chosen

from ffnbench.device.environment import usable_cpus
from ffnbench.request import DEFAULT_BUDGET_S

T = TypeVar("T")


def kept(found: Iterator[list[T]]) -> list[T]:
    """All that is found, also where it is interrupted; each is told on stderr."""
    every: list[T] = []
    try:
        for some in found:
            every += some
            print(*some, sep="\n", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return every


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", action="store_true", help="checks in place of runs")
    parser.add_argument("--rivals", action="store_true", help="torch's Timer and a median loop too")
    parser.add_argument("--world", action="append", default=[], choices=list(LIVE_WORLDS), help="only this; repeatable")
    parser.add_argument("--repeats", type=int, help="20, or 10 with --checks")
    parser.add_argument("--budget", type=float, help="seconds of a run, 15, or of a check, 120")
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", metavar="FILE.json", help="save what was said, row by row")
    asked = parser.parse_args(arguments)
    worlds, sizes = chosen(asked.world), {"d_model": asked.d_model, "threads": asked.threads}
    if asked.checks:
        alarms = kept(
            live.checks(check_plan(**sizes), worlds, asked.repeats or 10, asked.budget or DEFAULT_BUDGET_S, asked.seed)
        )
        text, broken = alarms and alarms_report(alarms, TOLERANCE), broken_promises(alarms)
        save(asked.o, alarms)
    else:
        plan = exam_plan(**sizes, budget=asked.budget)
        readings = kept(live.readings(plan, worlds, asked.repeats or 20, asked.seed, rivals=asked.rivals))
        text, broken = readings and readings_report(readings), contradictions(readings)
        save(asked.o, readings)
    print(text or "nothing was measured", *broken, sep="\n")
    return 1 if broken or not text else 0


if __name__ == "__main__":
    raise SystemExit(main())
