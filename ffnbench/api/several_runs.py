"""Measures a plan several times, with a pause between two runs, as for a baseline: one
report has all runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ffnbench.api.preparing import Prepared
from ffnbench.common.errors import termination_as_interruption
from ffnbench.following import Following, ProgressListener
from ffnbench.plan import Note, NoteKind
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Progress
from ffnbench.run.world import World
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import labels_without_clean, rounds_of

MeasureRun = Callable[[Prepared, World, Following], ShownReport]

WITHOUT_CLEAN = "a row had no undisturbed round"


def measure_several_runs(
    prepared: Prepared, world: World, following: Following, measure_run: MeasureRun
) -> ShownReport:
    """Make as many runs as the protocol asks for; gives one report of all.

    A run does not count where a row has no clean round or, after the first run, every
    row failed. It is made up for, at most half as many times as runs were asked for.
    The first run stands in the report until another one counts. A later one that is
    interrupted is not kept.
    """
    runs = prepared.plan.protocol.runs
    report = measure_run(prepared, world.from_now, following.part(1, runs, "run"))
    if report.interrupted or report.stopped or report.failed_wholly:
        return report
    complete = 0
    reasons: list[str] = []  # why runs do not count
    reason = _why_not_counted(report)
    if reason:
        reasons.append(reason)
    else:
        complete = 1
    most = runs + (runs + 1) // 2
    while complete < runs and complete + len(reasons) < most:
        what = "run"
        if reason:
            tried = len(reasons) + complete + 1
            how = "was busy" if reason == WITHOUT_CLEAN else "failed"
            following.progress.tell(
                f"run {complete + 1} {how}: again ({tried} of {most})"
            )
            what = f"try {tried} of {most}, run"
        of_run = following.part(complete + 1, runs, what)
        try:
            with termination_as_interruption():
                _pause(prepared.plan.protocol.pause_s, of_run.progress)
            again = measure_run(prepared, world.from_now, of_run)
        except KeyboardInterrupt:
            return _cut_short(report, complete, runs)
        if again.interrupted or again.stopped:
            return _cut_short(report, complete, runs)
        reason = _why_not_counted(again)
        if reason:
            reasons.append(reason)
            continue
        if complete:
            again = with_figures(report.with_repeat(again))
        report = again
        complete += 1
    if complete == runs:
        return report
    why = ", or ".join(dict.fromkeys(reasons))
    text = f"{complete} of {runs} runs could be kept: in the others {why}"
    if not complete:
        text = f"none of {runs} runs is complete, and the first is kept: in each {why}"
    return _with_note(report, text)


def _why_not_counted(report: ShownReport) -> str:
    """Why a run does not count as one of those that were asked for; "" where it
    does.
    """
    if report.failed_wholly:
        return "every row failed"
    if labels_without_clean(rounds_of(report)):
        return WITHOUT_CLEAN
    return ""


def _cut_short(report: ShownReport, complete: int, runs: int) -> ShownReport:
    """The report of the runs that were made before an interruption."""
    text = f"interrupted: {complete} of {runs} runs are complete, and kept"
    if not complete:
        text = f"interrupted: none of {runs} runs is complete; the first is kept, in which {WITHOUT_CLEAN}"
    return replace(_with_note(report, text), cut_short=True)


def _with_note(report: ShownReport, text: str) -> ShownReport:
    """The report with a note that is about all of its rows."""
    return replace(
        report, warnings=(*report.warnings, Note(text=text, kind=NoteKind.GENERAL))
    )


def _pause(seconds: float, progress: ProgressListener) -> None:
    """Wait, and show for how long."""
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        progress(Progress(done=0.0, text="waiting for the next run", eta_s=left_s))
        time.sleep(min(1.0, left_s))
