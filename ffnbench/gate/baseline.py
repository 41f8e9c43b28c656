"""Whether a saved run can be a baseline, and why not; and the new baseline after a
check.

Functions named `why_...` give the reason as a text, which is empty if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.units import counted
from ffnbench.gate.decision import (
    EXACT_METRICS,
    Finding,
    Status,
    exact_value,
)
from ffnbench.plan.metrics import LATENCY
from ffnbench.record.result import FailureKind, Report
from ffnbench.report.store import made_anew, report_text
from ffnbench.stats.rounds import labels_without_clean, rounds_of, row_logs

FEWEST_BASELINE_WORKERS = 5  # of each run of a baseline that has latencies


def refuse_no_baseline(before: Report, path: str, *, exact_only: bool) -> None:
    """Raise FfnbenchError for the file `path` if it can't be a baseline."""
    for number, run in enumerate(before.runs, start=1):
        hint = made_anew(path, before)
        problem = ""
        if run.interrupted or run.stopped:
            problem = "is incomplete and can't be a baseline"
        elif not exact_only:
            problem = _why_no_latencies(run)
        if not problem and not exact_only:
            problem = why_too_few(run)
            with_more = f" with --workers {2 * FEWEST_BASELINE_WORKERS}"
            hint = made_anew(path, before, with_more)
        if problem:
            name = repr(path)
            if before.repeats:
                name = f"run {number} of {path!r}, of {run.created},"
            if number > 1:
                hint = 'take it out of "repeats"'
            raise FfnbenchError(f"{name} {problem}", hint)


def has_latencies(report: Report) -> bool:
    """Whether a run has latencies, and the environment that they were measured in."""
    return LATENCY in report.plan.metrics and report.environment is not None


def has_unpredicted(before: Report, now: Report) -> bool:
    """Whether the baseline has an exact metric that `now` lacks, which no closed form
    predicts: it has to be measured again.
    """
    return any(
        exact_value(before, case.label, metric) is not None
        and exact_value(now, case.label, metric) is None
        for case in before.plan.shown
        for metric in EXACT_METRICS
        if metric.job
    )


def _why_no_latencies(run: Report) -> str:
    """Why a run has no latencies that a baseline could use: a row is wrong, was not
    measured, or has no clean rounds. A run without latency has no need of them.
    """
    if not has_latencies(run):
        return ""
    for failure in run.failures:
        if failure.kind is FailureKind.MISMATCH:
            return f"can't be a baseline: {failure.case!r} is wrong: {failure.message}"
    timed = {sample.case for sample in run.samples if sample.metric == LATENCY}
    for case in run.plan.shown:
        if case.label not in timed and not run.could_not_run(case.label):
            return f"has no samples of {case.label!r}"
    lacking = labels_without_clean(rounds_of(run))
    if lacking:
        return f"was measured on a busy machine: no undisturbed round of {lacking[0]!r}"
    return ""


def why_too_few(run: Report) -> str:
    """Why a run has too few processes for a baseline. A single comparison may be made
    of fewer, for its own interval is wider then.
    """
    rounds = rounds_of(run)
    processes = [len(row_logs(rounds, label).clean) for label in rounds.labels]
    fewest = min(processes, default=FEWEST_BASELINE_WORKERS)
    if fewest >= FEWEST_BASELINE_WORKERS:
        return ""
    return f"has {counted(fewest, 'undisturbed process')}, and a baseline needs {FEWEST_BASELINE_WORKERS}: its luck would stay in every check"


def new_baseline(
    path: str, before: Report, now: Report, findings: Iterable[Finding]
) -> str:
    """The run that was measured now, as the text of a file. Raises Unfinished if it
    lacks something that a baseline needs.
    """
    missing = {
        finding.case
        for finding in findings
        if finding.status in (Status.MISSING, Status.INCOMPARABLE)
    }
    missing |= set(labels_without_clean(rounds_of(now)))
    few, reason = why_too_few(now), ""
    if missing:
        reason = f"nothing was measured for {', '.join(sorted(missing))}"
    elif few:
        reason = f"this run {few}"
    elif now.interrupted or now.stopped:
        reason = "this run is incomplete"
    elif has_latencies(before) and not now.samples:
        reason = "this run has no latencies"
    if reason:
        hint = made_anew(path, before)
        raise Unfinished(f"the baseline was not updated: {reason}", hint)
    return report_text(now)
