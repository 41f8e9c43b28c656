"""How often is it wrong? One comparison again and again through the real runner: rows whose true ratio is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from ffnbench.common.errors import Interrupted, Unfinished
from ffnbench.common.units import percent
from ffnbench.device.environment import usable_cpus
from ffnbench.ffn.spec import require_positive
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest, Request, Seconds
from ffnbench.result import Progress, Run, Verdict
from ffnbench.run.runner import run
from ffnbench.run.world import World
from ffnbench.stats.interval import CONFIDENCE
from ffnbench.stats.verdict import summarise

REFERENCE, SAME = "base", ("same1", "same2")
SLOWER = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
FALSE_AT_MOST, COVERAGE = 0.05, (0.93, 0.97)


@dataclass(frozen=True, kw_only=True)
class SelftestRequest(Request):
    """`ffnbench selftest`."""

    repeats: int = 10
    budget: Seconds = 15.0
    d_model: int = 256
    threads: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one run said of one row, beside the ratio to the reference that is true of it."""

    run: int
    row: str
    truth: float
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    seconds: float  # the whole run

    @property
    def covers(self) -> bool:
        """Whether its interval holds the truth."""
        return self.low is not None and self.high is not None and self.low <= self.truth <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many of so many."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """As a fraction; 0 of 0 is 0."""
        return self.hits / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What some runs came to. One has a false difference if any of its equal rows is called slower or faster."""

    runs: int
    false_difference: Rate
    covered: Rate  # of the rows that claim an interval: a busy one has none
    found: dict[str, Rate]  # by injected slow-down
    wrong_way: Rate  # a slowed row called faster, or the same
    busy: Rate  # runs with a row that is not decided because others used the CPUs
    seconds: float  # mean


def comparison_plan(**options: object) -> Plan:
    """The reference, itself twice more, and itself slowed down by known shares."""
    variants = [f"{name}=relu" for name in (REFERENCE, *SAME)]
    variants += [f"{name}=relu@slowdown={share}" for name, share in SLOWER.items()]
    settings: dict[str, object] = {"d_model": 256, "device": "cpu", "metrics": "latency", **options}
    return plan_compare(CompareRequest(variants=",".join(variants), **settings))  # type: ignore[arg-type]


def told_by(done: Run, plan: Plan, number: int) -> list[Told]:
    """What a run of the plan says of each row that is no reference."""
    rows = [(said, said.ratio) for said in summarise(done)[1] if said.case != said.reference]
    return [
        Told(
            run=number, row=said.case, truth=1 + plan.case(said.case).workload.slowdown,
            ratio=ratio.value if ratio else None, low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            verdict=said.verdict, seconds=done.wall_s or 0.0,
        )
        for said, ratio in rows
    ]  # fmt: skip


def rates_of(told: Sequence[Told]) -> Rates:
    """Count."""
    seconds = {one.run: one.seconds for one in told}

    def runs_with(rows: Iterable[str], *verdicts: Verdict) -> Rate:
        hits = {one.run for one in told if one.row in rows and one.verdict in verdicts}
        return Rate(hits=len(hits), of=len(seconds))

    slowed = [one for one in told if one.row in SLOWER]
    wrong = sum(one.verdict in (Verdict.FASTER, Verdict.SAME) for one in slowed)
    return Rates(
        runs=len(seconds),
        false_difference=runs_with(SAME, Verdict.SLOWER, Verdict.FASTER),
        covered=Rate(hits=sum(one.covers for one in told), of=sum(one.low is not None for one in told)),
        found={name: runs_with((name,), Verdict.SLOWER) for name in SLOWER},
        wrong_way=Rate(hits=wrong, of=len(slowed)),
        busy=runs_with((*SAME, *SLOWER), Verdict.BUSY),
        seconds=sum(seconds.values()) / len(seconds) if seconds else 0.0,
    )


def failures(of: Rates) -> list[str]:
    """Which of the promises the runs did not keep, by more than chance."""
    found = []
    if of.false_difference.value > FALSE_AT_MOST + _chance(FALSE_AT_MOST, of.runs):
        found.append(f"false differences in {of.false_difference.value:.1%} of the runs")
    low, high = (_chance(bound, of.runs) for bound in COVERAGE)  # the rows of a run share their reference
    if of.covered.of and not COVERAGE[0] - low <= of.covered.value <= COVERAGE[1] + high:
        found.append(f"the {percent(CONFIDENCE)} intervals cover {of.covered.value:.1%}")
    return found


def _chance(share: float, runs: int) -> float:
    """How far a true share may be missed in so many runs: three standard errors."""
    return 3 * sqrt(share * (1 - share) / runs)


def exam(request: SelftestRequest) -> Plan:
    """What is measured `repeats` times; raises FfnbenchError for every mistake."""
    threads = usable_cpus() if request.threads is None else request.threads
    given = {"d_model": request.d_model, "threads": threads, "repeats": request.repeats}
    width, threads, _ = (require_positive(name, value) for name, value in given.items())
    return comparison_plan(d_model=width, threads=threads, budget=request.budget, seed=request.seed)


def measure(asked: Plan, repeats: int, world: World, progress: Callable[[Progress], None]) -> list[Told]:
    """Every run, each with a seed of its own.

    Interrupted, or where one can't be finished, it gives what was measured by then; raises where that is nothing.
    """
    told: list[Told] = []
    start, seed = time.monotonic(), asked.protocol.seed
    try:
        for number in range(repeats):
            done, spent = number / repeats, time.monotonic() - start
            left = spent / done - spent if done else None
            progress(Progress(done=done, text=f"run {number + 1} of {repeats}", eta_s=left))
            plan = replace(asked, protocol=replace(asked.protocol, seed=seed + number))
            told += told_by(finished(run(plan, world)), plan, number)
    except KeyboardInterrupt:
        if not told:
            raise Interrupted("interrupted before the first run was complete") from None
    except Unfinished:
        if not told:
            raise
    return told


def finished(done: Run) -> Run:
    """A run that nothing went wrong in."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else done.stopped)
    return done
