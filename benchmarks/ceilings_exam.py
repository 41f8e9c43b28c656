"""Whether shares of a ceiling are true: `python benchmarks/ceilings_exam.py [--cases N]`, half an hour for 200 on 2 CPUs.

Draws cases, measures them a few at a time beside their ceilings, and counts rows that lie above 100 %: whatever runs a
case is a path that the machine has, so such a row means that a ceiling is too low. `--repeat N` measures one plan N
times, a pause between, and tells by how much each row's share moves. Ends with 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from statistics import median

import ffnbench
from ffnbench.plan import Backend, Mode
from ffnbench.result import Report, Share

FORMS = ("relu", "gelu", "silu", "relu2", "glu", "bilinear", "swiglu", "geglu", "reglu")
D_MODELS = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
RATIOS = (1, 1.5, 2, 8 / 3, 3.5, 4, 5)  # of d_ff to d_model
TOKENS = (1, 2, 3, 4, 8, 16, 31, 32, 64, 100, 128, 256, 512, 777, 1024)
INFERENCE = {Backend.ONEDNN.value}  # what has no backward
TOGETHER = 5  # cases of one run
MOST_FLOPS = 4e10  # of one call, so that a run ends
REPEATED = ",".join(f"swiglu@seq_len={tokens}@backend=BACKEND" for tokens in (1, 16, 512))
WITHIN = 0.03  # of a share that repeats


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its share, None where it has none, and why that is."""

    name: str
    share: Share | None
    why: str = ""


def drawn(dice: random.Random, dtypes: list[str], backends: list[str]) -> tuple[int, list[str]]:
    """The width that the cases of one run share, and the cases as variants."""
    d_model, variants = dice.choice(D_MODELS), set[str]()
    while len(variants) < TOGETHER:
        d_ff, tokens = 8 * round(dice.choice(RATIOS) * d_model / 8), dice.choice(TOKENS)
        backend = dice.choice(backends)
        mode = Mode.FORWARD if backend in INFERENCE or dice.random() < 0.7 else Mode.TRAIN
        if 6 * 3 * d_model * d_ff * tokens <= MOST_FLOPS:
            variants.add(
                f"{dice.choice(FORMS)}@d_ff={d_ff}@seq_len={tokens}@dtype={dice.choice(dtypes)}"
                f"@mode={mode.value}@backend={backend}"
            )
    return d_model, sorted(variants)


def rows_of(report: Report, before: str = "") -> list[Row]:
    """The rows of a run, each with its share or why it has none."""
    found = []
    for case in report.plan.shown:
        failure = report.failure(case.label)
        why = f"{failure.kind.value}: {failure.message}" if failure else "no clean rounds"
        share = report.share(case.label)
        found.append(Row(before + case.label, share, "" if share else why))
    return found


def told(share: Share) -> str:
    """`97.1 % [95.0, 99.2] of products by (oneDNN ...)`."""
    of = share.share
    interval = "" if of.low is None or of.high is None else f" [{100 * of.low:.1f}, {100 * of.high:.1f}]"
    return f"{100 * of.value:.1f} %{interval} of {share.bound.value} by {share.roof}"


def exam(cases: int, seed: int, dtypes: list[str], backends: list[str]) -> bool:
    """Whether no row of so many cases lies above its ceiling, interval included."""
    dice, rows = random.Random(seed), list[Row]()
    while len(rows) < cases:
        d_model, variants = drawn(dice, dtypes, backends)
        report = ffnbench.compare(variants, d_model=d_model, match="none", metrics="latency,ceilings", quick=True)
        rows += rows_of(report, f"d_model {d_model}: ")
        print(f"{len(rows)} of {cases}", file=sys.stderr, flush=True)
    known = [row for row in rows if row.share]
    above = [row for row in known if row.share.share.value > 1]
    surely = [row for row in above if (row.share.share.low or 0.0) > 1]
    print(f"seed {seed}: {len(rows)} cases, {len(known)} with a share")
    for bound, number in Counter(row.share.bound.value for row in known).most_common():
        values = [row.share.share.value for row in known if row.share.bound.value == bound]
        print(f"  held back by {bound}: {number}, share {100 * median(values):.0f} % in the middle, {100 * max(values):.1f} % at most")  # fmt: skip
    print(f"above 100 %: {len(above)}; with their whole interval: {len(surely)}")
    for row in sorted(above, key=lambda row: -row.share.share.value):
        print(f"  {row.name}: {told(row.share)}{'  BROKEN' * (row in surely)}")
    for why, number in Counter(row.why for row in rows if not row.share).most_common():
        print(f"without a share: {number} ({why})")
    return not surely


def repeated(runs: int, pause: float, dtypes: list[str], backends: list[str]) -> bool:
    """Whether each row's share stays within 3 % over so many runs of one plan."""
    variants = ",".join(REPEATED.replace("BACKEND", one) for one in backends)
    shares: dict[str, list[float]] = {}
    for number in range(runs):
        if number:
            time.sleep(pause)
        for dtype in dtypes:
            report = ffnbench.compare(variants, d_model=768, d_ff=2048, match="none", metrics="latency,ceilings", dtype=dtype)  # fmt: skip
            for row in rows_of(report):
                shares.setdefault(f"{dtype}: {row.name}", []).extend([row.share.share.value] if row.share else [])
        print(f"{number + 1} of {runs}", file=sys.stderr, flush=True)
    kept = True
    print(f"{'row':60} {'runs':>5} {'share':>8} {'moves':>7}")
    for name, values in shares.items():
        moved = max(values) / min(values) - 1 if len(values) > 1 else None
        broken = moved is not None and moved > WITHIN
        kept &= not broken
        middle = f"{100 * median(values):.1f} %" if values else "-"
        moves = "-" if moved is None else f"{100 * moved:.1f} %"
        print(f"{name:60} {len(values):5} {middle:>8} {moves:>7}{'  BROKEN' * broken}")
    return kept


def main() -> int:
    """Draw, or repeat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=0, metavar="RUNS")
    parser.add_argument("--pause", type=float, default=30.0, help="seconds between repeated runs")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--backends", default="eager,packed,onednn", help="those to draw from, of " + ", ".join(one.value for one in Backend))  # fmt: skip
    asked = parser.parse_args()
    dtypes, backends = asked.dtypes.split(","), asked.backends.split(",")
    if asked.repeat:
        return 0 if repeated(asked.repeat, asked.pause, dtypes, backends) else 1
    return 0 if exam(asked.cases, asked.seed, dtypes, backends) else 1


if __name__ == "__main__":
    sys.exit(main())
