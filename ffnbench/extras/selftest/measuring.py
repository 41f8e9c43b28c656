"""How often are runs wrong? The same comparison, of rows whose true ratio is known, is
measured again and again, and what the runs say of each row is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ffnbench.api.measuring import tell_duration
from ffnbench.common.errors import Interrupted, Unfinished
from ffnbench.common.units import percent
from ffnbench.device.environment import usable_cpus
from ffnbench.ffn.spec import require_positive
from ffnbench.following import ProgressListener
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest, Request, Seconds
from ffnbench.result import CONFIDENCE, Progress, Run, Verdict
from ffnbench.run.runner import run_workers
from ffnbench.run.world import World
from ffnbench.stats.verdict import summarise

REFERENCE, SAME = "base", ("same1", "same2")
SLOWER = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
FALSE_AT_MOST, COVERAGE = 0.05, (0.93, 0.97)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestRow:
    """What one run said of one row, beside the ratio to the reference that is true of
    it.
    """

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
        return (
            self.low is not None
            and self.high is not None
            and self.low <= self.truth <= self.high
        )


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
    """What some runs came to. One has a false difference if any of its equal rows is
    called slower or faster.
    """

    runs: int
    false_difference: Rate
    covered: Rate  # of the rows that claim an interval: a busy one has none
    detected: dict[str, Rate]  # by injected slow-down
    wrong_way: Rate  # a slowed row called faster, or the same
    busy: Rate  # runs with a row that is not decided because others used the CPUs
    seconds: float  # mean


def comparison_plan(**options: object) -> Plan:
    """The reference, itself twice more, and itself slowed down by known shares."""
    variants = [f"{name}=relu" for name in (REFERENCE, *SAME)]
    variants += [f"{name}=relu@slowdown={share}" for name, share in SLOWER.items()]
    settings: dict[str, object] = {
        "d_model": 256,
        "device": "cpu",
        "metrics": "latency",
        **options,
    }
    return plan_compare(CompareRequest(variants=",".join(variants), **settings))  # type: ignore[arg-type]


def rows_of_run(done: Run, plan: Plan, number: int) -> list[SelftestRow]:
    """What a run of the plan says of each row that is no reference."""
    rows = []
    for comparison in summarise(done)[1]:
        if comparison.case == comparison.reference:
            continue
        value = low = high = None
        if comparison.ratio:
            value = comparison.ratio.value
            low = comparison.ratio.low
            high = comparison.ratio.high
        row = SelftestRow(
            run=number,
            row=comparison.case,
            truth=1 + plan.case(comparison.case).workload.slowdown,
            ratio=value,
            low=low,
            high=high,
            verdict=comparison.verdict.value,
            seconds=done.wall_s or 0.0,
        )
        rows.append(row)
    return rows


def error_rates(rows: Sequence[SelftestRow]) -> Rates:
    """Count."""
    seconds = {row.run: row.seconds for row in rows}

    def runs_with(labels: Collection[str], *verdicts: Verdict) -> Rate:
        values = {verdict.value for verdict in verdicts}
        hits = {row.run for row in rows if row.row in labels and row.verdict in values}
        return Rate(hits=len(hits), of=len(seconds))

    slowed = [row for row in rows if row.row in SLOWER]
    wrong_way = [row for row in slowed if row.verdict in (Verdict.FASTER, Verdict.SAME)]
    with_interval = [row for row in rows if row.low is not None]
    return Rates(
        runs=len(seconds),
        false_difference=runs_with(SAME, Verdict.SLOWER, Verdict.FASTER),
        covered=Rate(
            hits=sum(row.covers for row in with_interval), of=len(with_interval)
        ),
        detected={name: runs_with((name,), Verdict.SLOWER) for name in SLOWER},
        wrong_way=Rate(hits=len(wrong_way), of=len(slowed)),
        busy=runs_with((*SAME, *SLOWER), Verdict.BUSY),
        seconds=sum(seconds.values()) / max(1, len(seconds)),
    )


def failures(rates: Rates) -> list[str]:
    """Which of the promises the runs did not keep, by more than chance."""
    problems = []
    if rates.false_difference.value > FALSE_AT_MOST + _chance(
        FALSE_AT_MOST, rates.runs
    ):
        problems.append(
            f"false differences in {rates.false_difference.value:.1%} of the runs"
        )
    least, most = COVERAGE
    # of runs and not of rows, for the rows of a run share their reference
    least -= _chance(least, rates.runs)
    most += _chance(most, rates.runs)
    if rates.covered.of and not least <= rates.covered.value <= most:
        problems.append(
            f"the {percent(CONFIDENCE)} intervals cover {rates.covered.value:.1%}"
        )
    return problems


def _chance(share: float, runs: int) -> float:
    """How far a true share may be missed in so many runs: three standard errors."""
    return 3 * math.sqrt(share * (1 - share) / runs)


@dataclass(frozen=True, kw_only=True)
class SelftestRequest(Request):
    """`ffnbench selftest`."""

    repeats: int = 10
    budget: Seconds = 15.0
    d_model: int = 256
    threads: int | None = None
    seed: int = 0


def run_selftest(
    request: SelftestRequest, world: World, progress: ProgressListener
) -> list[SelftestRow]:
    """What every run on this machine says of every row."""
    plan, repeats = plan_selftest(request), request.repeats
    tell_duration(plan, world, progress, repeats * (plan.protocol.budget_s or 0.0))
    with world.lock(progress.tell):
        return measure_repeats(plan, repeats, world, progress)


def plan_selftest(request: SelftestRequest) -> Plan:
    """What is measured `repeats` times; raises FfnbenchError for every mistake."""
    threads = usable_cpus() if request.threads is None else request.threads
    require_positive("repeats", request.repeats)
    return comparison_plan(
        d_model=require_positive("d_model", request.d_model),
        threads=require_positive("threads", threads),
        budget=request.budget,
        seed=request.seed,
    )


def measure_repeats(
    plan: Plan, repeats: int, world: World, progress: Callable[[Progress], None]
) -> list[SelftestRow]:
    """Every run, each with a seed of its own.

    Interrupted, or where one can't be finished, it gives what was measured by then;
    raises where that is nothing.
    """
    rows: list[SelftestRow] = []
    start = time.monotonic()
    try:
        for number in range(repeats):
            left_s = None
            if number:
                left_s = (time.monotonic() - start) / number * (repeats - number)
            progress(
                Progress(
                    done=number / repeats,
                    text=f"run {number + 1} of {repeats}",
                    eta_s=left_s,
                )
            )
            protocol = replace(plan.protocol, seed=plan.protocol.seed + number)
            done = refuse_unfinished(
                run_workers(replace(plan, protocol=protocol), world)
            )
            rows += rows_of_run(done, plan, number)
    except KeyboardInterrupt:
        if not rows:
            raise Interrupted("interrupted before the first run was complete") from None
    except Unfinished:
        if not rows:
            raise
    return rows


def refuse_unfinished(done: Run) -> Run:
    """A run that nothing went wrong in; raises KeyboardInterrupt or Unfinished."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures:
        raise Unfinished("a case of the selftest failed", done.failures[0].message)
    if done.stopped:
        raise Unfinished("a case of the selftest failed", done.stopped)
    return done
