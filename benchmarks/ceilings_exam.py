"""Whether shares of a ceiling are true: `python benchmarks/ceilings_exam.py [--cases N]`, half an hour for 200 cases.

Draws cases, measures them a few at a time beside their ceilings, and counts rows that lie above 100 %: whatever runs a
case is a path that the machine has, so such a row means that a ceiling is too low. Ends with 1 where one is, its
whole interval. Where something else works on the machine few rows have a share; `--threads 1` leaves it a CPU.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from statistics import median

import ffnbench
from ffnbench.choices import Backend, Mode
from ffnbench.result import Report, Share

CLASSIC, GATED = ("relu", "gelu", "silu", "relu2"), ("glu", "bilinear", "swiglu", "geglu", "reglu")
D_MODELS = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
RATIOS = (1, 1.5, 2, 8 / 3, 3.5, 4, 5)  # of d_ff to d_model
TOKENS = (1, 2, 3, 4, 8, 16, 31, 32, 64, 100, 128, 256, 512, 777, 1024)
INFERENCE = {Backend.ONEDNN}  # what has no backward
NEEDS_GATE = {Backend.PACKED, Backend.PACKED_UP_GATE}
TOGETHER = 5  # cases of one run
MOST_FLOPS = 4e10  # of one call, so that a run ends


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its share; without one, why that is."""

    name: str
    share: Share


def drawn(dice: random.Random, dtypes: list[str], backends: list[str]) -> tuple[int, list[str]]:
    """The width that the cases of one run share, and the cases as variants."""
    d_model, variants = dice.choice(D_MODELS), set[str]()
    while len(variants) < TOGETHER:
        d_ff, tokens = 8 * round(dice.choice(RATIOS) * d_model / 8), dice.choice(TOKENS)
        backend = dice.choice(backends)
        form = dice.choice(GATED if backend in NEEDS_GATE else CLASSIC + GATED)
        mode = Mode.FORWARD if backend in INFERENCE or dice.random() < 0.7 else Mode.TRAIN
        keys = f"d_ff={d_ff}@seq_len={tokens}@dtype={dice.choice(dtypes)}@mode={mode.value}@backend={backend}"
        if 6 * 3 * d_model * d_ff * tokens <= MOST_FLOPS:
            variants.add(f"{form}@{keys}")
    return d_model, sorted(variants)


def rows_of(report: Report, before: str, missing: Counter[str]) -> list[Row]:
    """The rows of a run that have a share; the others are counted by what they lack."""
    found = []
    for case in report.plan.shown:
        share, failure = report.share(case.label), report.failure(case.label)
        if share:
            found.append(Row(before + case.label, share))
        else:
            missing[f"{failure.kind.value}: {failure.message}" if failure else "no clean rounds"] += 1
    return found


def told(share: Share) -> str:
    """`97.1 % [95.0, 99.2] of products by (oneDNN ...)`."""
    of = share.share
    interval = "" if of.low is None or of.high is None else f" [{100 * of.low:.1f}, {100 * of.high:.1f}]"
    return f"{100 * of.value:.1f} %{interval} of {share.bound.value} by {share.roof}"


def exam(asked: argparse.Namespace) -> bool:
    """Whether no row of so many cases lies above its ceiling, interval included."""
    dice, rows, missing = random.Random(asked.seed), list[Row](), Counter[str]()
    while (done := len(rows) + missing.total()) < asked.cases:
        print(f"{done} of {asked.cases}", file=sys.stderr, flush=True)
        d_model, variants = drawn(dice, asked.dtypes, asked.backends)
        report = ffnbench.compare(
            variants, d_model=d_model, match="none", metrics="latency,ceilings", quick=True, threads=asked.threads
        )
        rows += rows_of(report, f"d_model {d_model}: ", missing)
    above = sorted((row for row in rows if row.share.share.value > 1), key=lambda row: -row.share.share.value)
    surely = [row for row in above if (row.share.share.low or 0.0) > 1]
    print(f"seed {asked.seed}: {done} cases, {len(rows)} with a share")
    for bound, number in Counter(row.share.bound for row in rows).most_common():
        values = [100 * row.share.share.value for row in rows if row.share.bound is bound]
        print(
            f"  bound by {bound.value}: {number}, half above {median(values):.0f} % and none above {max(values):.1f} %"
        )
    print(f"above 100 %: {len(above)}; with their whole interval: {len(surely)}")
    for row in above:
        print(f"  {row.name}: {told(row.share)}{'  BROKEN' * (row in surely)}")
    for why, number in missing.most_common():
        print(f"without a share: {number} ({why})")
    return not surely


def main() -> int:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(one.value for one in Backend)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32"])
    parser.add_argument(
        "--backends", type=lambda text: text.split(","), default=["eager", "packed", "onednn"], help=known
    )
    parser.add_argument("--threads", type=int)
    return 0 if exam(parser.parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
