"""Whether honest rows are left alone: `python benchmarks/honest_rows.py [--rows N]`.

Draws rows at random: every built-in name, dtypes, modes, backends, experts, clamps, dropout, odd sizes, the modules of
honest_modules.py, and those of timm and of x-transformers where these are installed. Measures many in
a run with few rounds, and counts rows that are called SUSPECT: each is an accusation of an honest one. `--only RUN`
makes one run again. Ends with 1 where one is accused.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.variants import GATED
from ffnbench.plan import Backend, Mode, Plan, cost_of
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import CaseCost, FailureKind
from ffnbench.run.prober import Prober
from ffnbench.run.runner import run
from ffnbench.run.session import Session

OWN = Path(__file__).with_name("honest_modules.py")
FORWARD, TRAIN, BACKWARD = (mode.value for mode in (Mode.FORWARD, Mode.TRAIN, Mode.BACKWARD))
TOGETHER = 25  # rows of one run
WORKERS, ROUNDS = 3, 4
D_MODELS = (1, 3, 8, 16, 31, 48, 64, 96, 100, 128, 192, 256)
D_FFS = (1, 2, 7, 16, 33, 64, 100, 128, 170, 256, 384, 512)
SHAPES = ((1, 1), (1, 2), (1, 7), (1, 16), (2, 16), (1, 17), (3, 11), (4, 32), (1, 64), (2, 100), (1, 256))
DTYPES = ("float32", "float32", "float32", "bfloat16", "bfloat16", "float16", "float64")
MODES = (FORWARD, FORWARD, TRAIN, TRAIN, BACKWARD)
COMPILED = 0.01  # of the rows: compiling takes long
EXPERTS = ("2x1", "4x2", "8x2", "8x8", "16x4", "5x3")
TIMM = tuple(f"timm.layers.mlp:{name}" for name in ("Mlp", "GluMlp", "SwiGLU"))
X_TRANSFORMERS = tuple(
    f"x_transformers.x_transformers:FeedForward{keys}"
    for keys in ("", "@glu=true", "@glu=true@swish=true", "@relu_squared=true@no_bias=true", "@dropout=0.2",
                 "@post_act_ln=true")
)  # fmt: skip
SWIGLU = ("Plain", "Counted", "Packed", "MovingScalar", "Dropped", "Recomputed")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one row."""

    run: int
    variant: str
    d_model: int
    failure: str = ""
    message: str = ""


@dataclass(slots=True)
class Sources:
    """Where rows come from, those that are installed."""

    foreign: list[str] = field(default_factory=list)


def sources() -> Sources:
    """All that this interpreter has."""
    tree = ast.parse(OWN.read_text(encoding="utf-8"))
    own = [f"{OWN}:{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)]
    found = Sources(foreign=own)
    if find_spec("timm"):
        found.foreign += TIMM
    if find_spec("x_transformers"):
        found.foreign += X_TRANSFORMERS
    return found


def drawn_form(dice: random.Random, backend: str) -> str:
    """One of ffnbench's own forms with its keys."""
    gated = [*GATED.names(), *(f"{name}_glu" for name in ACTIVATIONS.names())]
    classic = ACTIVATIONS.names()
    needs_gate = backend in (Backend.PACKED.value, Backend.PACKED_UP_GATE.value)
    name = dice.choice(gated if needs_gate or dice.random() < 0.5 else classic)
    keys = [f"d_ff={dice.choice(D_FFS)}"]
    if dice.random() < 0.4:
        keys.append("bias=true")
    if dice.random() < 0.15:
        keys.append("dropout=0.2")
    if name in ("silu", "swish", "swiglu") and dice.random() < 0.3:
        keys.append(f"beta={dice.choice((0.5, 1.702, 2))}")
    if name in gated and dice.random() < 0.2:
        keys.append(f"limit={dice.choice((0.5, 1, 7))}")
        keys += [f"offset={dice.choice((0.5, 1))}"] * (dice.random() < 0.5)
    if name in classic and not needs_gate and dice.random() < 0.1:
        keys.append("gate=output")
    if dice.random() < 0.15:
        keys.append(f"init={dice.choice(('he_xavier', 'normal'))}")
    if dice.random() < 0.2:
        keys += drawn_experts(dice)
    return "@".join([name, *keys])


def drawn_experts(dice: random.Random) -> list[str]:
    """Keys of a mixture."""
    shape = dice.choice(EXPERTS)
    keys = [f"moe={shape}"]
    if dice.random() < 0.4:
        keys += ["shared=16", *(["shared_gate=true"] if dice.random() < 0.5 else [])]
    if dice.random() < 0.3:
        keys.append("scores=sigmoid")
    if dice.random() < 0.3:
        keys.append("router_bias=true")
    if dice.random() < 0.3:
        keys.append("normalised=false")
    if dice.random() < 0.2:
        keys.append("routed_scale=2.5")
    if shape == "8x2" and dice.random() < 0.5:
        keys.append("groups=4x2")
    if dice.random() < 0.3:
        keys.append(f"routing={dice.choice(('uniform', 'skewed', 'trained-like'))}")
    return keys


def drawn(dice: random.Random, known: Sources) -> str:
    """A row: what is run, and on what."""
    kind = dice.random()
    backend = dice.choice([one.value for one in Backend if one is not Backend.COMPILE])
    if dice.random() < 0.4:
        backend = Backend.EAGER.value
    if dice.random() < COMPILED:
        backend = Backend.COMPILE.value
    if kind < 0.65:
        base = drawn_form(dice, backend)
    else:
        base, backend = f"{dice.choice(known.foreign)}@d_ff={dice.choice(D_FFS)}", Backend.EAGER.value
        base += "@like=swiglu" * (base.partition("@")[0].endswith(tuple(f":{name}" for name in SWIGLU)))
    batch, seq_len = dice.choice(SHAPES)
    dtype, mode = dice.choice(DTYPES), dice.choice(MODES)
    if backend == Backend.ONEDNN.value:
        dtype, mode = "float32", FORWARD
    return f"{base}@batch={batch}@seq_len={seq_len}@dtype={dtype}@mode={mode}@backend={backend}"


def plan_of(variants: list[str], d_model: int, seed: int, threads: int | None, probe: Prober) -> Plan:
    """One run of these rows; raises FfnbenchError where one is none."""
    labelled = ",".join(f"r{number}={variant}" for number, variant in enumerate(variants))
    request = CompareRequest(
        variants=labelled, d_model=d_model, match="none", metrics="latency", workers=WORKERS, rounds=ROUNDS,
        seed=seed, device="cpu", threads=threads,
    )  # fmt: skip
    return plan_compare(request, probe)


def costs_of(plan: Plan, probe: Prober) -> tuple[CaseCost, ...]:
    """What each row costs."""
    return tuple(CaseCost(case=case.label, cost=cost_of(case, probe)) for case in plan.cases)


def one_run(number: int, asked: argparse.Namespace, known: Sources) -> list[Row]:
    """Draw rows, leave out those that can't be planned, measure the rest."""
    dice = random.Random(f"{asked.seed}/{number}")
    d_model, threads = dice.choice(D_MODELS), asked.threads or dice.choice((1, 2))
    variants: list[str] = []
    with Prober() as probe:
        while len(variants) < TOGETHER:
            variant = drawn(dice, known)
            try:
                plan = plan_of([variant], d_model, 0, threads, probe)
                costs_of(plan, probe)
            except FfnbenchError as problem:
                if asked.verbose:
                    print(f"  not drawn: {variant}: {problem.message}", file=sys.stderr)
                continue
            variants.append(variant)
        plan = plan_of(variants, d_model, number, threads, probe)
        costs = costs_of(plan, probe)
    done = run(plan, costs=costs, judge=Session)
    failures = {failure.case: failure for failure in done.failures}
    judging.append((done.judging_s, done.wall_s))
    unjudged.update(one.why for one in done.judged if one.error is None)
    rows = []
    for case, variant in zip(plan.cases, variants, strict=True):
        failure = failures.get(case.label)
        kind, message = (failure.kind.value, failure.message) if failure else ("", "")
        rows.append(Row(number, variant, d_model, kind, message))
    return rows


judging: list[tuple[float, float]] = []
unjudged: Counter[str] = Counter()


def draw(asked: argparse.Namespace) -> bool:
    """Whether no honest row was accused."""
    known, rows = sources(), list[Row]()
    numbers = [asked.only] if asked.only is not None else range(asked.first, 10**6)
    start = time.monotonic()
    for number in numbers:
        if len(rows) >= asked.rows or time.monotonic() - start > asked.minutes * 60:
            break
        rows += one_run(number, asked, known)
        accused = sum(row.failure == FailureKind.SUSPECT.value for row in rows)
        print(f"run {number}: {len(rows)} rows, {accused} accused", file=sys.stderr, flush=True)
    accused_rows = [row for row in rows if row.failure == FailureKind.SUSPECT.value]
    others = [row for row in rows if row.failure and row not in accused_rows]
    print(f"seed {asked.seed}: {len(rows)} rows, {len(rows) - len(accused_rows) - len(others)} without a failure")
    print(f"accused: {len(accused_rows)}")
    for row in accused_rows:
        print(told(row, asked.seed))
    print(f"failed otherwise: {len(others)}")
    for row in others:
        print(told(row, asked.seed))
    for why, count in unjudged.most_common():
        print(f"not judged: {count} ({why})")
    if judging:
        judged, whole = (sum(of) for of in zip(*judging, strict=True))
        print(f"judging took {100 * judged / whole:.1f} % of {whole:.0f} s")
    return not accused_rows


def told(row: Row, seed: int) -> str:
    """A row with what makes it again."""
    return f"  --seed {seed} --only {row.run}, d_model {row.d_model}: {row.variant}: {row.failure}: {row.message}"


def main() -> int:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so many, with what there is")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="RUN", help="begin with this run")
    parser.add_argument("--only", type=int, metavar="RUN", help="one run again")
    parser.add_argument("--threads", type=int, help="of every row; drawn where it is not given")
    parser.add_argument("--verbose", action="store_true", help="tell what can't be planned")
    return 0 if draw(parser.parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
