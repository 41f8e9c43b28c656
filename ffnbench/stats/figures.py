"""Every figure of a report, made once from its samples: estimates, comparisons, and
what follows from them. Pure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from ffnbench.plan.metrics import COPY, DEVICE_TIME, HOST_TIME, PRODUCTS, RATE
from ffnbench.plan.plan import CONTROL
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    Estimate,
    Figures,
    Narrowing,
    Report,
    Verdict,
)
from ffnbench.stats.rounds import confidences, paired_logs, rounds_of, row_logs
from ffnbench.stats.stopping import WORKERS_WANTED, workers_for
from ffnbench.stats.verdict import COMPUTED, is_launch_bound, summarise

# times the budget that should decide a row: a hint that names more is more often enough
SPARE = 1.3
DEFAULT_PRECISION = 0.01  # that a hint is for where the plan asks for none
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
    figures = figures_of(summarised)
    return replace(summarised, figures=figures)


def figures_of(report: Report) -> Figures:
    """What follows from the estimates, the comparisons and the samples of a report.

    Modules that a plain comparison does not need (repeated runs, a sweep,
    backends) are imported only if the report has such figures.
    """
    plan = report.plan
    labels = [case.label for case in plan.shown]
    figures = Figures(
        launch_bound={
            label: is_launch_bound(
                report.estimate(label, DEVICE_TIME), report.estimate(label, HOST_TIME)
            )
            for label in labels
        },
        narrowing=_narrowing_of(report),
    )
    if RATE in plan.metrics:
        figures = replace(figures, rates=_rates_of(report))
    if report.repeats:
        from ffnbench.stats.history import histories_of

        over_runs = {
            label: history.over_runs.exp()
            for label, history in histories_of(report).items()
        }
        figures = replace(figures, over_runs=over_runs)
    if plan.is_sweep:
        from ffnbench.stats.cells import cells_of_plan, complete_cells

        cells = cells_of_plan(plan)
        complete = {case.label for case in complete_cells(report, cells).plan.cases}
        figures = replace(
            figures,
            cells=(sum(cell.reference in complete for cell in cells), len(cells)),
        )
    if plan.axes:
        from ffnbench.stats.curves import crossings_of

        figures = replace(figures, crossings=crossings_of(report))
    if plan.compares_precisions:
        from ffnbench.stats.trade_off import trade_offs

        figures = replace(figures, trade_offs=trade_offs(report))
    return figures


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
    of it.
    """
    half_widths = {}
    for row in report.comparisons:
        is_unclear = row.verdict is Verdict.UNCLEAR and row.case != CONTROL
        if is_unclear and row.ratio and row.ratio.half_width:
            half_widths[row.case] = row.ratio.half_width
    is_busy = any(row.verdict is Verdict.BUSY for row in report.comparisons)
    if is_busy or not half_widths or report.interrupted or not report.wall_s:
        return None
    asked = report.plan.protocol.precision or DEFAULT_PRECISION
    is_asked = max(half_widths.values()) > asked  # and was not reached
    wanted = asked if is_asked else asked / 2
    rounds = rounds_of(report)
    rows = {label: row_logs(rounds, label) for label in half_widths}
    workers = min(len(row.clean) for row in rows.values())
    confidence_of = confidences(rounds)
    more_workers = max(
        workers,
        *(
            workers_for(math.log1p(wanted), row, confidence_of[label])
            for label, row in rows.items()
        ),
    )
    seconds = SPARE * report.wall_s / workers * more_workers
    narrowing = Narrowing(
        rows=len(rows), precision=wanted, is_asked=is_asked, seconds=seconds
    )
    if seconds <= LONGEST_BUDGET_S:
        return narrowing
    if workers >= WORKERS_WANTED:
        return replace(narrowing, seconds=None)
    # a few workers may scatter more than most, so that less time may be enough
    return replace(narrowing, seconds=LONGEST_BUDGET_S, is_likely=False)
