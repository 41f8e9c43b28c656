"""Every figure of a report, made once from its samples: estimates, comparisons, and what follows from them. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL
from ffnbench.result import Estimate, Figures, Narrowing, Report, Verdict
from ffnbench.stats.ceilings import ceilings_of, roofline_of, shares_of
from ffnbench.stats.cells import cells_of, whole
from ffnbench.stats.curves import crossings_of
from ffnbench.stats.fastest import fastest
from ffnbench.stats.history import ratios_over_runs
from ffnbench.stats.interval import CONFIDENCE
from ffnbench.stats.rounds import table_of
from ffnbench.stats.stopping import SEVERAL, workers_for
from ffnbench.stats.verdict import COMPUTED, launch_bound, summarise

LONGEST_S = 1800  # that a hint asks for
SPARE = 1.3  # of time, so that the hint is likelier to do
R = TypeVar("R", bound=Report)


def with_figures(report: R) -> R:
    """With every figure, and every note that is made of samples, computed anew."""
    measured, comparisons, notes = summarise(report)
    told = (*(note for note in report.warnings if note.kind not in COMPUTED), *notes)
    timed = {one.case for one in measured if one.metric == LATENCY}
    shares = tuple(share for share in shares_of(report, report.costs) if share.case in timed)
    found = replace(report, measured=measured, comparisons=comparisons, shares=shares, warnings=told)
    return replace(found, figures=figures_of(found))


def figures_of(report: Report) -> Figures:
    """What follows from the estimates, the comparisons and the samples of a report."""
    table, labels = table_of(report), [case.label for case in report.plan.shown]
    rows = {label: table.row(label) for label in labels if label in table.rounds}
    cells = cells_of(report.plan)
    known = {case.label for case in whole(report, cells).plan.cases} if report.plan.is_sweep else set()
    ceilings = ceilings_of(report, report.costs) if report.roofs else {}
    return Figures(
        rounds={label: (row.clean_rounds, row.rounds) for label, row in rows.items() if row.rounds},
        launch_bound={label: launch_bound(report, label) for label in labels},
        ceilings=ceilings,
        roofline=roofline_of(report, ceilings),
        over_runs=_over_runs(report),
        crossings=crossings_of(report),
        fastest=tuple(fastest(report)),
        narrowing=_narrowing(report),
        cells=(sum(cell.reference in known for cell in cells), len(cells)),
    )


def _over_runs(report: Report) -> dict[str, Estimate]:
    """The mean of each ratio over all runs of a file that holds several."""
    found = {}
    for label, history in ratios_over_runs(report).items() if report.repeats else ():
        low, high = map(math.exp, history.over_runs.interval(CONFIDENCE) or (-math.inf, math.inf))
        found[label] = Estimate(value=math.exp(history.mean), low=low, high=high)
    return found


def _narrowing(report: Report) -> Narrowing | None:
    """What would decide the rows that could not be; None where none is, or where that takes a quiet machine."""
    verdicts = {comparison.verdict for comparison in report.comparisons}
    unclear = [c for c in report.comparisons if c.verdict is Verdict.UNCLEAR and c.case != CONTROL and c.ratio]
    halves = {c.case: half for c in unclear if c.ratio and (half := c.ratio.half_width)}
    if Verdict.BUSY in verdicts or not halves or report.interrupted or not report.wall_s:
        return None
    asked, table = report.plan.protocol.precision or 0.01, table_of(report)
    wanted = asked if max(halves.values()) > asked else asked / 2
    rows = [table.row(label) for label in halves]
    workers = min(len(row.clean) for row in rows)
    a_worker_s = SPARE * report.wall_s / workers
    seconds = a_worker_s * max(workers, *(workers_for(math.log1p(wanted), row) for row in rows))
    is_likely = seconds <= LONGEST_S
    if not is_likely and workers >= SEVERAL:
        return Narrowing(rows=len(halves), precision=wanted, is_asked=wanted == asked, seconds=None)
    seconds = min(seconds, LONGEST_S)  # of few workers who knows
    return Narrowing(rows=len(halves), precision=wanted, is_asked=wanted == asked, seconds=seconds, is_likely=is_likely)
