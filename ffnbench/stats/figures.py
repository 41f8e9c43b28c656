"""Every figure of a report, made once from its samples: estimates, comparisons, and
what follows from them. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from ffnbench.plan.metrics import (
    COPY,
    DEVICE_TIME,
    ERROR,
    HOST_TIME,
    LATENCY,
    PRODUCTS,
    RATE,
)
from ffnbench.plan.plan import Group
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    SAME_WITHIN,
    Estimate,
    Figures,
    Narrowing,
    Report,
    TradeOff,
    Verdict,
)
from ffnbench.stats.rounds import paired_logs, rounds_of
from ffnbench.stats.stopping import WORKERS_WANTED
from ffnbench.stats.verdict import COMPUTED, is_launch_bound, summarise

# times the budget that should decide a row: a hint that names more is more often enough
SPARE = 1.3
DEFAULT_PRECISION = 0.01  # that a hint is for where the plan asks for none
# a time, or an error, is worse than another one if it is more than so many times as
# large; smaller errors are those of rounding in float32, and count as equal
LONGER, WORSE = 1 + SAME_WITHIN, 1.5
ROUNDING_ERROR = 1e-5
R = TypeVar("R", bound=Report)


def with_figures(report: R) -> R:
    """The report with every figure computed anew from its samples, and every note that
    samples give; notes of other kinds stay.
    """
    measured, comparisons, notes = summarise(report)
    stored = [note for note in report.warnings if note.kind not in COMPUTED]
    summarised = replace(
        report,
        measured=measured,
        comparisons=comparisons,
        warnings=(*stored, *notes),
    )
    return replace(summarised, figures=_figures_of(summarised))


def _figures_of(report: Report) -> Figures:
    """What follows from the estimates, the comparisons and the samples of a report."""
    plan = report.plan
    launch_bound = {}
    for case in plan.shown:
        device = report.estimate(case.label, DEVICE_TIME)
        host = report.estimate(case.label, HOST_TIME)
        launch_bound[case.label] = is_launch_bound(device, host)
    fronts = {}
    if plan.compares_precisions:
        fronts = {group.reference: _front_of(report, group) for group in plan.groups}
    figures = Figures(
        launch_bound=launch_bound,
        narrowing=_narrowing_of(report),
        rates=_rates_of(report) if RATE in plan.metrics else {},
        trade_offs=tuple(
            TradeOff(reference=reference, front=front)
            for reference, front in fronts.items()
            if front
        ),
    )
    # modules that a plain comparison does not need are imported where they are used
    if report.repeats:
        from ffnbench.stats.history import histories_of

        histories = histories_of(report).items()
        over_runs = {label: history.over_runs.exp() for label, history in histories}
        figures = replace(figures, over_runs=over_runs)
    if plan.is_sweep:
        from ffnbench.stats.cells import cells_of_plan, complete_cells

        cells = cells_of_plan(plan)
        complete = {case.label for case in complete_cells(report, cells).plan.cases}
        whole = sum(cell.reference in complete for cell in cells)
        figures = replace(figures, cells=(whole, len(cells)))
    if plan.layers:
        from ffnbench.stats.in_place import in_place

        figures = replace(figures, in_place=in_place(report))
    if plan.axes and report.comparisons:
        from ffnbench.stats.curves import crossings_of

        figures = replace(figures, crossings=crossings_of(report))
    return figures


def _front_of(report: Report, group: Group) -> tuple[str, ...]:
    """The labels of the rows on the Pareto front of time and error: no other row is
    better in one of the two and not worse in the other. Empty where fewer than two rows
    have both, or all have weights of one format.
    """
    rows: dict[str, tuple[float, float]] = {}
    for case in group.cases:
        seconds = report.value(case.label, LATENCY)
        error = report.value(case.label, ERROR)
        if seconds and error is not None and report.has_time(case.label):
            rows[case.label] = seconds, max(error, ROUNDING_ERROR)
    if len({case.workload.weights for case in group.cases}) == 1 or len(rows) < 2:
        return ()

    def is_beaten(label: str) -> bool:
        seconds, error = rows[label]
        return any(
            (seconds > LONGER * other_seconds or error > WORSE * other_error)
            and not (other_seconds > LONGER * seconds or other_error > WORSE * error)
            for other_seconds, other_error in rows.values()
        )

    return tuple(label for label in rows if not is_beaten(label))


def _rates_of(report: Report) -> dict[str, Estimate]:
    """How near each timed row is to the rates of its machine: the seconds of its bare
    products, or of the copy where that takes longer, over its own, in the same rounds.
    """
    timed = rounds_of(report)
    bare = [rounds_of(report, metric) for metric in (PRODUCTS, COPY)]
    rates = {}
    for label in filter(report.has_time, timed.labels):
        shares = []
        for rounds in bare:
            seconds = rounds.seconds.get(label, {})
            logs = paired_logs(seconds, timed.seconds[label], timed.starters)
            share = logs.estimate()
            if share and not logs.disturbed:
                shares.append(share)
        if len(shares) == len(bare):
            rates[label] = max(shares, key=attrgetter("value"))
    return rates


def _narrowing_of(report: Report) -> Narrowing | None:
    """The precision that would decide the unclear rows, and the budget for it; None if
    no row is unclear, or if a row is busy, which no budget helps.

    The precision is the one that was asked for, if a row has not reached it; else half
    of it. Half an interval falls with the square root of the number of workers.
    """
    unclear = [
        row.ratio
        for row in report.comparisons
        if row.verdict is Verdict.UNCLEAR and row.ratio and row.ratio.half_width
    ]
    is_busy = any(row.verdict is Verdict.BUSY for row in report.comparisons)
    if is_busy or not unclear or report.interrupted or not report.wall_s:
        return None
    widest = max(unclear, key=lambda ratio: ratio.half_width or 0.0)
    half = widest.half_width or 0.0  # of few workers larger, by Student's quantile
    asked = report.plan.protocol.precision or DEFAULT_PRECISION
    is_asked = half > asked  # and was not reached
    wanted = asked if is_asked else asked / 2
    seconds: float | None = SPARE * report.wall_s * (half / wanted) ** 2
    if seconds and seconds > LONGEST_BUDGET_S:
        # a few workers may scatter more than most, so that less time may be enough
        has_few = widest.workers < WORKERS_WANTED
        seconds = LONGEST_BUDGET_S if has_few else None
    return Narrowing(
        rows=len(unclear), precision=wanted, is_asked=is_asked, seconds=seconds
    )
