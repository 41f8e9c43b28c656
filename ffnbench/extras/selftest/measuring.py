"""How often are runs wrong? A comparison of rows whose true ratios are known is
measured again and again, and the verdicts and intervals that are wrong are counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ffnbench.api.measuring import tell_duration
from ffnbench.common.errors import FfnbenchError, Interrupted, Unfinished
from ffnbench.common.units import percent
from ffnbench.device.environment import usable_cpus
from ffnbench.ffn.spec import require_positive
from ffnbench.following import ProgressListener
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.report.formats import NOT_ALL
from ffnbench.request import CompareRequest, Request, Seconds
from ffnbench.result import CONFIDENCE, Progress, Run, Verdict
from ffnbench.run.runner import run_workers
from ffnbench.run.world import World
from ffnbench.stats.verdict import summarise

# the labels of rows: the reference, rows equal to it, and rows that are slower by a
# known share
REFERENCE, EQUAL_ROWS = "base", ("same1", "same2")
SLOWDOWNS = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
# what is promised: the share of runs with a false difference at most, and the bounds of
# the share of intervals that hold the truth
FALSE_AT_MOST, COVERAGE = 0.05, (0.93, 0.97)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestRow:
    """What one run said of one row; `truth` is the true ratio of the row to the
    reference.
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
        """Whether the interval holds the truth; a row without one does not."""
        return (
            self.low is not None
            and self.high is not None
            and self.low <= self.truth <= self.high
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestRuns:
    """The rows of the runs that were measured, and why they are not all runs."""

    rows: list[SelftestRow]
    problem: FfnbenchError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of some runs or rows something is true of."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """The rate as a fraction; 0 of 0 is 0."""
        return self.hits / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often some runs were right and wrong. A run has a false difference if any of
    its equal rows is called slower or faster.
    """

    runs: int
    false_difference: Rate
    covered: Rate  # of the rows with an interval, which a busy row does not have
    detected: dict[str, Rate]  # by the label of a slowed row
    wrong_way: Rate  # of the slowed rows: called faster, or the same
    busy: Rate  # of the runs: a row is not decided because others used the CPUs
    seconds: float  # of a run, the mean


def comparison_plan(**options: object) -> Plan:
    """Plan a comparison of the reference with itself twice, and with itself slowed down
    by known shares. `options` are fields of the CompareRequest.
    """
    variants = [f"{name}=relu" for name in (REFERENCE, *EQUAL_ROWS)]
    variants += [f"{name}=relu@slowdown={share}" for name, share in SLOWDOWNS.items()]
    settings: dict[str, object] = {
        "d_model": 256,
        "device": "cpu",
        "metrics": "latency",
        **options,
    }
    return plan_compare(CompareRequest(variants=",".join(variants), **settings))  # type: ignore[arg-type]


def rows_of_run(run: Run, plan: Plan, number: int) -> list[SelftestRow]:
    """What a run of the plan says of each row but the reference. `number` is that of
    the run.
    """
    rows = []
    _, comparisons, _ = summarise(run)
    for comparison in comparisons:
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
            seconds=run.wall_s or 0.0,
        )
        rows.append(row)
    return rows


def error_rates(rows: Sequence[SelftestRow]) -> Rates:
    """Count how often these rows, of any number of runs, are right and wrong."""
    seconds = {row.run: row.seconds for row in rows}

    def runs_with(labels: Collection[str], *verdicts: Verdict) -> Rate:
        """The runs in which one of these rows has one of these verdicts."""
        values = {verdict.value for verdict in verdicts}
        hits = {row.run for row in rows if row.row in labels and row.verdict in values}
        return Rate(hits=len(hits), of=len(seconds))

    slowed = [row for row in rows if row.row in SLOWDOWNS]
    wrong_way = [row for row in slowed if row.verdict in (Verdict.FASTER, Verdict.SAME)]
    with_interval = [row for row in rows if row.low is not None]
    return Rates(
        runs=len(seconds),
        false_difference=runs_with(EQUAL_ROWS, Verdict.SLOWER, Verdict.FASTER),
        covered=Rate(
            hits=sum(row.covers for row in with_interval), of=len(with_interval)
        ),
        detected={name: runs_with((name,), Verdict.SLOWER) for name in SLOWDOWNS},
        wrong_way=Rate(hits=len(wrong_way), of=len(slowed)),
        busy=runs_with((*EQUAL_ROWS, *SLOWDOWNS), Verdict.BUSY),
        seconds=sum(seconds.values()) / max(1, len(seconds)),
    )


def broken_promises(rates: Rates) -> list[str]:
    """Say which promises the runs did not keep, by more than chance explains."""
    problems = []
    most_false = FALSE_AT_MOST + _chance(FALSE_AT_MOST, rates.runs)
    if rates.false_difference.value > most_false:
        problems.append(
            f"false differences in {rates.false_difference.value:.1%} of the runs"
        )
    least, most = COVERAGE
    # chance is that of so many runs, not rows: the rows of a run share their reference
    least -= _chance(least, rates.runs)
    most += _chance(most, rates.runs)
    if rates.covered.of and not least <= rates.covered.value <= most:
        problems.append(
            f"the {percent(CONFIDENCE)} intervals cover {rates.covered.value:.1%}"
        )
    return problems


def _chance(share: float, runs: int) -> float:
    """How far the share in so many runs may be from the true one: three standard
    errors.
    """
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
) -> SelftestRuns:
    """Measure all runs on this machine."""
    plan, repeats = plan_selftest(request), request.repeats
    tell_duration(plan, world, progress, repeats * (plan.protocol.budget_s or 0.0))
    with world.lock(progress.tell):
        return measure_repeats(plan, repeats, world, progress)


def plan_selftest(request: SelftestRequest) -> Plan:
    """Plan the comparison that is measured `repeats` times; raises FfnbenchError for
    every mistake.
    """
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
) -> SelftestRuns:
    """Measure the plan `repeats` times, each time with a seed of its own.

    Where it is interrupted, or a run can't be finished, it gives the rows of the runs
    before, and the problem; raises FfnbenchError where there are none.
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
            run = run_workers(replace(plan, protocol=protocol), world)
            _refuse_unfinished(run)
            rows += rows_of_run(run, plan, number)
    except KeyboardInterrupt:
        if not rows:
            raise Interrupted("interrupted before the first run was complete") from None
        return SelftestRuns(rows=rows, problem=Interrupted(f"interrupted; {NOT_ALL}"))
    except Unfinished as problem:
        if not rows:
            raise
        unfinished = Unfinished(f"{problem.message}: {problem.hint}", NOT_ALL)
        return SelftestRuns(rows=rows, problem=unfinished)
    return SelftestRuns(rows=rows)


def _refuse_unfinished(run: Run) -> None:
    """Raise KeyboardInterrupt for a run that was interrupted, and Unfinished for one
    that failed or was stopped.
    """
    if run.interrupted:
        raise KeyboardInterrupt
    if run.failures:
        raise Unfinished("a case of the selftest failed", run.failures[0].message)
    if run.stopped:
        raise Unfinished("a case of the selftest failed", run.stopped)
