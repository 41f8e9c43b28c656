"""Modules that cheat, beside honest ones, through the real runner: which are caught, and what that costs.

The table tells of each what it does, in which mode it is run, whether `@like` has to say which function it should be
(a module that is wrong from its first call is held against itself without that), and whether it needs CUDA.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from exam.text import share, table
from ffnbench.device.environment import auto_device
from ffnbench.errors import FfnbenchError
from ffnbench.metrics import LATENCY
from ffnbench.plan import Mode, Plan, Probe, cost_of
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import CaseCost, FailureKind, Run, Verdict
from ffnbench.run.prober import Prober
from ffnbench.run.runner import run
from ffnbench.run.session import Session
from ffnbench.stats.verdict import summarise

FORWARD, TRAIN = Mode.FORWARD.value, Mode.TRAIN.value
FILE = Path(__file__).with_name("cheats.py")
REFERENCE, OWN_CODE = "swiglu", "honest"  # the honest rows of every run: a form of ours, and a module like the cheats
SIZES = "d_ff=512@batch=4@seq_len=32"
D_MODEL, WORKERS, ROUNDS = 256, 3, 6
TOGETHER = 10  # cheats of one run
CUDA = "cuda"
REFUSED = "refused"  # before anything was measured


@dataclass(frozen=True, slots=True)
class Cheat:
    """A row of the table. `alone`: it changes its process, so that it is run beside no other cheat. `gains` is False
    for one that is right in every call, as no input repeats, or makes rows busy: it is not called faster then.
    """

    name: str
    kind: str  # its class
    does: str
    mode: str = FORWARD
    like: bool = False
    cuda: bool = False
    alone: bool = False
    gains: bool = True
    threads: int | None = None


# fmt: off
CHEATS = (
    Cheat("cache by address", "CacheByAddress", "the last output for this address"),
    Cheat("cache by content", "CacheByContent", "the last output for these numbers", gains=False),
    Cheat("cache by checksum", "CacheByChecksum", "the last output for this mean size"),
    Cheat("magnitudes kept", "MagnitudesKept", "its signs, and the first magnitudes"),
    Cheat("one output", "OneOutput", "every output in the same memory"),
    Cheat("only first calls", "OnlyFirstCalls", "right in the first calls"),
    Cheat("one in four skipped", "OneInFourSkipped", "a stale output in every fourth call"),
    Cheat("until a look", "UntilALook", "right until somebody has looked"),
    Cheat("sparse weights", "SparseWeights", "leaves out weights that are zero", like=True),
    Cheat("stale memory", "StaleMemory", "memory that is not written to"),
    Cheat("only first worker", "OnlyFirstWorker", "right in the first processes"),
    Cheat("zeros", "Zeros", "zeros", like=True),
    Cheat("input returned", "InputReturned", "the input", like=True),
    Cheat("secret bfloat16", "SecretBfloat16", "bfloat16 inside", like=True),
    Cheat("low rank", "LowRank", "weights of a quarter of the rank", like=True),
    Cheat("fewer units", "FewerUnits", "half of the hidden units", like=True),
    Cheat("draws and skips units", "DrawsFewerUnits", "the same, and draws random numbers", like=True),
    Cheat("only first tokens", "OnlyFirstTokens", "right on the first 16 tokens", like=True),
    Cheat("only small shapes", "OnlySmallShapes", "right for small inputs", like=True),
    Cheat("every other token", "EveryOtherToken", "every second token copied", like=True),
    Cheat("one token for all", "OneTokenForAll", "one token's output for all", like=True),
    Cheat("wrong in inference", "WrongInInference", "zeros in inference mode", like=True),
    Cheat("lazy result", "LazyResult", "computed when it is looked at"),
    Cheat("no data", "NoData", "a tensor without memory"),
    Cheat("not a number", "NotANumber", "NaN after the first calls"),
    Cheat("fewer tokens", "FewerTokens", "half of the tokens"),
    Cheat("another dtype", "AnotherDtype", "a result in bfloat16"),
    Cheat("into the input", "IntoInput", "written over the input"),
    Cheat("background thread", "BackgroundThread", "filled by a thread later", alone=True),
    Cheat("second half later", "SecondHalfLater", "half of it by a thread later", alone=True),
    Cheat("own process", "OwnProcess", "another process's last result", alone=True),
    Cheat("slows the others", "SlowsTheOthers", "takes the CPUs from other rows", alone=True, gains=False),
    Cheat("slows linear layers", "SlowsLinear", "makes torch slow for other rows", alone=True),
    Cheat("mode left", "ModeLeft", "a slow mode of torch for other rows", alone=True),
    Cheat("hook left", "HookLeft", "a slow hook of all modules", alone=True),
    Cheat("slow parameters", "SlowParameters", "a slow class for others' weights", alone=True),
    Cheat("more threads", "MoreThreads", "more threads than the row has", alone=True, threads=1),
    Cheat("another stream", "AnotherStream", "on a stream of its own", cuda=True),
    Cheat("patched clock", "PatchedClock", "a slow time.perf_counter", alone=True),
    Cheat("patched clocks", "PatchedClocks", "a slow clock in every module", alone=True),
    Cheat("patched event", "PatchedEvent", "a slow torch.cuda.Event", cuda=True, alone=True),
    Cheat("patched checks", "PatchedChecks", "zeros, and torch.allclose says yes", like=True, alone=True),
    Cheat("no weight gradients", "NoWeightGradients", "the weights get no gradient", mode=TRAIN, like=True),
    Cheat("stale gradients", "StaleGradients", "gradients of an earlier call", mode=TRAIN),
    Cheat("wrong in train", "WrongInTrain", "half of the units in train mode", mode=TRAIN, like=True),
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one row. `failure` is the kind of its failure, "" for none; `claimed` the ratio to the honest
    reference that its samples say, None without samples; `judging_s` and `wall_s` are of the whole run that it was in.
    """

    cheat: str
    does: str
    honest: bool = False
    ran: bool = True
    failure: str = ""
    message: str = ""
    verdict: str = ""
    gains: bool = True
    claimed: float | None = None
    judging_s: float = 0.0
    wall_s: float = 0.0

    @property
    def caught(self) -> bool:
        """Whether it has no figures; one that is right all the same, whether it is not called faster."""
        return bool(self.failure) or (not self.gains and self.verdict != Verdict.FASTER.value)


def judgements_of(
    seed: int, threads: int, cheats: Sequence[Cheat] = CHEATS, rounds: int = ROUNDS
) -> Iterator[list[Judgement]]:
    """Every cheat by what `compare` does, a run at a time; those that need CUDA only where it is."""
    try:
        for asked in prepared(cheats, seed, threads, rounds):
            yield judged(asked)
    finally:
        _forget_traces()


def in_order(found: Iterable[Judgement], cheats: Sequence[Cheat] = CHEATS) -> list[Judgement]:
    """As the table has them, with those that were not run; honest rows at the end."""
    found = list(found)
    known = {row.cheat for row in found}
    missing = [Judgement(cheat=c.name, does=c.does, ran=False) for c in cheats if c.name not in known]
    order = {cheat.name: number for number, cheat in enumerate(cheats)}
    return sorted([*found, *missing], key=lambda row: order.get(row.cheat, len(order)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One run: its plan with what its rows cost, the cheats in it, and those that can't be planned, with the reason."""

    cheats: Sequence[Cheat]
    plan: Plan
    costs: tuple[CaseCost, ...]
    refused: dict[Cheat, str]


def prepared(cheats: Iterable[Cheat], seed: int, threads: int, rounds: int) -> list[Asked]:
    """All runs; the process that looks at the cheats has ended before the first."""
    with Prober() as prober:
        cuda = auto_device(prober.torch_or_error()) == CUDA
        together = groups(cheat for cheat in cheats if cuda or not cheat.cuda)
        return [_prepare(of, seed, threads, rounds, prober) for of in together]


def _prepare(cheats: Sequence[Cheat], seed: int, threads: int, rounds: int, probe: Probe) -> Asked:
    refused: dict[Cheat, str] = {}
    for cheat in cheats:
        try:
            _costs(cheats_plan([cheat], seed, threads, rounds, probe), probe)
        except FfnbenchError as problem:
            refused[cheat] = problem.message
    left = [cheat for cheat in cheats if cheat not in refused]
    plan = cheats_plan(left, seed, threads, rounds, probe)
    return Asked(cheats=cheats, plan=plan, costs=_costs(plan, probe), refused=refused)


def _costs(plan: Plan, probe: Probe) -> tuple[CaseCost, ...]:
    return tuple(CaseCost(case=case.label, cost=cost_of(case, probe)) for case in plan.cases)


def groups(cheats: Iterable[Cheat]) -> Iterator[list[Cheat]]:
    """Those of one run: of one mode, a few at a time; what changes its process is by itself."""
    alone, together = [], dict[tuple[str, bool], list[Cheat]]()
    for cheat in cheats:
        if cheat.alone:
            alone.append(cheat)
        else:
            together.setdefault((cheat.mode, cheat.cuda), []).append(cheat)
    for of in together.values():
        yield from (of[first : first + TOGETHER] for first in range(0, len(of), TOGETHER))
    yield from ([cheat] for cheat in alone)


def cheats_plan(cheats: Sequence[Cheat], seed: int, threads: int, rounds: int, probe: Probe) -> Plan:
    """The honest rows, then these cheats."""
    rows = [f"{REFERENCE}={REFERENCE}@{SIZES}", f"{OWN_CODE}={FILE}:Swiglu@{SIZES}"]
    rows += [f"{cheat.name}={FILE}:{cheat.kind}@{SIZES}{'@like=swiglu' * cheat.like}" for cheat in cheats]
    mode, cuda = (cheats[0].mode, cheats[0].cuda) if cheats else (FORWARD, False)
    threads = (cheats[0].threads if cheats else None) or threads
    request = CompareRequest(
        variants=",".join(rows), d_model=D_MODEL, match="none", metrics="latency,ceilings", workers=WORKERS,
        rounds=rounds, seed=seed, mode=mode, device=CUDA if cuda else "cpu", threads=threads,
    )  # fmt: skip
    return plan_compare(request, probe)


def judged(asked: Asked) -> list[Judgement]:
    """Measure one run; what can't be planned has failed as well."""
    done = run(asked.plan, costs=asked.costs, judge=Session)
    if done.interrupted:
        raise KeyboardInterrupt
    refused = [
        Judgement(cheat=cheat.name, does=cheat.does, failure=REFUSED, message=message)
        for cheat, message in asked.refused.items()
    ]
    return [*judgements(asked.cheats, done), *refused]


def judgements(cheats: Sequence[Cheat], done: Run) -> list[Judgement]:
    """What a run says of its rows."""
    _, comparisons, _ = summarise(done)
    verdicts = {c.case: c.verdict.value for c in comparisons}
    failures = {f.case: f for f in done.failures}
    rows = {cheat.name: (cheat.does, False, cheat.gains) for cheat in cheats}
    labels = [case.label for case in done.plan.shown]
    rows |= {label: ("what it should", True, True) for label in labels if label not in rows}
    return [
        Judgement(
            cheat=label, does=rows[label][0], honest=rows[label][1], gains=rows[label][2],
            failure=failures[label].kind.value if label in failures else "",
            message=failures[label].message if label in failures else "",
            verdict=verdicts.get(label, ""), claimed=claimed(done, label), judging_s=done.judging_s, wall_s=done.wall_s,
        )
        for label in labels
    ]  # fmt: skip


def claimed(done: Run, label: str) -> float | None:
    """The median ratio of a row's samples to the reference's of the same round, whatever became of the row."""
    values = {(s.case, s.worker, s.round): s.value for s in done.samples if s.metric == LATENCY}
    ratios = [
        value / values[done.plan.reference, worker, round_]
        for (case, worker, round_), value in values.items()
        if case == label and (done.plan.reference, worker, round_) in values
    ]
    return median(ratios) if ratios else None


def broken_by_cheats(found: Sequence[Judgement]) -> list[str]:
    """What should not be: a cheat that was not caught, an honest row that failed."""
    missed = [row.cheat for row in found if row.ran and not row.honest and not row.caught]
    accused = [row for row in found if row.honest and row.failure]
    broken = [f"{len(missed)} cheats were not caught: {', '.join(missed)}"] if missed else []
    return broken + [f"the honest row {row.cheat} is {row.failure}: {row.message}" for row in accused]


SIGNS = (  # what stands in the message of a failure, and what a column says in its place; the first that fits
    ("before timing", "output, before timing"),
    ("threads of its row", "threads"),
    ("replaced", "replaced function"),
    ("plain tensor", "no plain tensor"),
    ("unlike its input", "shape or dtype"),
    ("own memory", "changed input"),
    ("into its input", "changed input"),
    ("made twice", "another instance"),
    ("two instances", "another instance"),
    ("second instance of it can't", "another instance"),
    ("with other weights", "other weights"),
    ("memory of an earlier", "one output for all"),
    ("output of an earlier", "one output for all"),
    ("a call can't be", "floor"),
    ("a call is impossible", "floor"),
    ("gradient", "gradient"),
    ("output", "output"),
)


def caught_by(row: Judgement) -> str:
    """What a row failed by, in a word or two."""
    if not row.ran:
        return "not run"
    if row.failure in (FailureKind.MISMATCH.value, FailureKind.SUSPECT.value):
        return next((word for sign, word in SIGNS if sign in row.message), row.failure)
    if row.failure:
        return REFUSED if row.failure == REFUSED else f"it fails: {row.failure}"
    return "no gain" if row.caught else "NOT CAUGHT"


def report(found: Sequence[Judgement]) -> str:
    """Which cheats were caught, by what, and what looking cost; the honest rows are counted below."""
    rows = [
        (row.cheat, row.does, caught_by(row), "-" if row.claimed is None else f"{row.claimed:.3f}",
         share(row.judging_s, row.wall_s))
        for row in found if not row.honest
    ]  # fmt: skip
    ran, honest = [row for row in found if row.ran and not row.honest], [row for row in found if row.honest]
    caught, accused = sum(row.caught for row in ran), sum(bool(row.failure) for row in honest)
    notes = (
        f"claims: the time that it shows, of the honest {REFERENCE}'s; judging: of the whole run that it was in",
        "no gain: it is not called faster, as no input comes twice, or its rows are busy; not run: it needs CUDA",
        f"{caught} of {len(ran)} cheats were caught; of {len(honest)} honest rows beside them {accused} were accused",
    )
    return "\n".join((table(("cheat", "what it gives", "caught by", "claims", "judging"), rows, left=3), "", *notes))


def _forget_traces() -> None:
    """The file by which the processes of one cheat know which is the first."""
    Path(tempfile.gettempdir(), f"ffnbench-first-worker-{os.getpid()}").unlink(missing_ok=True)
