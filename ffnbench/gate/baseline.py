"""Whether a saved run can be a baseline, and why not; and the new baseline after a
check.
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
        problem, more = why_no_baseline(run, exact_only=exact_only)
        if problem:
            name, hint = repr(path), made_anew(path, before, more)
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


def why_no_baseline(run: Report, *, exact_only: bool) -> tuple[str, str]:
    """Why a run can't be a baseline, in words that follow its name, and the flags with
    which it could be one. With `exact_only` its latencies do not count.

    A single comparison may be made of fewer processes than a baseline, for its own
    interval is wider then.
    """
    if run.interrupted or run.stopped:
        return "is incomplete and can't be a baseline", ""
    if exact_only or not has_latencies(run):
        return "", ""
    for failure in run.failures:
        if failure.kind is FailureKind.MISMATCH:
            text = f"{failure.case!r} is wrong: {failure.message}"
            return f"can't be a baseline: {text}", ""
    timed = {sample.case for sample in run.samples if sample.metric == LATENCY}
    for case in run.plan.shown:
        if case.label not in timed and not run.could_not_run(case.label):
            return f"has no samples of {case.label!r}", ""
    rounds = rounds_of(run)
    for label in labels_without_clean(rounds):
        busy = f"was measured on a busy machine: no undisturbed round of {label!r}"
        return busy, ""
    processes = [len(row_logs(rounds, label).clean) for label in rounds.labels]
    fewest = min(processes, default=FEWEST_BASELINE_WORKERS)
    if fewest < FEWEST_BASELINE_WORKERS:
        few = f"has {counted(fewest, 'undisturbed process')}, and a baseline needs {FEWEST_BASELINE_WORKERS}: its luck would stay in every check"
        return few, f" with --workers {2 * FEWEST_BASELINE_WORKERS}"
    return "", ""


def new_baseline(
    path: str, before: Report, now: Report, findings: Iterable[Finding]
) -> str:
    """The run that was measured now, as the text of a file. Raises Unfinished if it
    lacks something that a baseline needs.
    """
    lost = (Status.MISSING, Status.INCOMPARABLE)
    missing = sorted({each.case for each in findings if each.status in lost})
    problem, _ = why_no_baseline(now, exact_only=not has_latencies(before))
    reason = problem and f"this run {problem}"
    if missing:
        reason = f"nothing was measured for {', '.join(missing)}"
    elif not problem and has_latencies(before) and not now.samples:
        reason = "this run has no latencies"
    if reason:
        hint = made_anew(path, before)
        raise Unfinished(f"the baseline was not updated: {reason}", hint)
    return report_text(now)
