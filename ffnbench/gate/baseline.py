"""Whether a saved run can be a baseline, and why not; the policy of a check; and the
new baseline after it.

Functions named `why_...` give the reason as a text, which is empty if there is none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence, Set
from dataclasses import asdict

from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.units import counted
from ffnbench.gate.decision import (
    EXACT_METRICS,
    Checked,
    Policy,
    Status,
    exact_value,
    parse_tolerances,
)
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Plan, Value
from ffnbench.record.result import FailureKind, Report
from ffnbench.report.files.store import made_anew, report_text
from ffnbench.stats.rounds import labels_without_clean, rounds_of, row_logs

FEWEST_BASELINE_WORKERS = 5  # of each run of a baseline that has latencies
# the flags with which a baseline that has too few workers should be measured again; one
# that is None or False is left out of the command
ENOUGH_EFFORT = {
    "workers": 2 * FEWEST_BASELINE_WORKERS,
    "rounds": None,
    "quick": False,
    "precision": None,
    "budget": None,
}


def policy_for(
    before: Report, path: str, tolerance: Sequence[str], *, exact_only: bool
) -> Policy:
    """The policy of a check against the file `path`. Raises FfnbenchError for a file
    that can't be a baseline, and for tolerances that do not fit it.
    """
    for number, run in enumerate(before.runs, start=1):
        name = repr(path)
        hint = made_anew(path, before)
        hint_of_few = made_anew(path, before, **ENOUGH_EFFORT)
        if before.repeats:
            name = f"run {number} of {path!r}, of {run.created},"
        if number > 1:
            hint = hint_of_few = 'take it out of "repeats"'
        if run.interrupted or run.stopped:
            raise FfnbenchError(f"{name} is incomplete and can't be a baseline", hint)
        if exact_only:
            continue
        problem = _why_no_latencies(run)
        if problem:
            raise FfnbenchError(f"{name} {problem}", hint)
        few = why_too_few(run)
        if few:
            raise FfnbenchError(f"{name} {few}", hint_of_few)
    rows = {case.label: case.row for case in before.plan.shown}
    return Policy(tolerances=parse_tolerances(tolerance, rows))


def has_latencies(report: Report) -> bool:
    """Whether a run has latencies, and the environment that they were measured in."""
    return LATENCY in report.plan.metrics and report.environment is not None


def has_unpredicted(before: Report, now: Report) -> bool:
    """Whether the baseline has an exact metric that `now` lacks, which no closed form
    predicts: it has to be measured again.
    """
    measured = [metric for metric in EXACT_METRICS if metric.job]
    for case in before.plan.shown:
        for metric in measured:
            was_known = exact_value(before, case.label, metric) is not None
            if was_known and exact_value(now, case.label, metric) is None:
                return True
    return False


def refuse_another_plan(baseline: str, current: str, before: Plan, now: Plan) -> None:
    """Raise FfnbenchError for a saved run, of the file `current`, of another plan.

    Such a run answers another command, or shares no row with the baseline. Or its rows
    differ from the baseline's in something that they are fed, in all rows that both
    have, or are compared with another reference. What else differs is a finding.
    """
    common = {case.label for case in before.shown} & {case.label for case in now.shown}
    then, here = _what_is_asked(before, common), _what_is_asked(now, common)
    if here["command"] != then["command"]:
        differing = ["command"]
    else:
        differing = [
            name for name, values in then.items() if here[name].isdisjoint(values)
        ]
        if not differing and here["reference"] != then["reference"]:
            differing = ["reference"]
    if not differing:
        return
    differences = []
    for name in differing:
        of_baseline = " ".join(map(str, then[name]))
        of_run = " ".join(map(str, here[name]))
        differences.append(f"{name} {of_baseline} then, {of_run} now")
    raise FfnbenchError(
        f"{current!r} was measured by another plan: {'; '.join(differences)}",
        f"`ffnbench check {shlex.quote(baseline)}` measures the plan of the baseline",
    )


def _what_is_asked(plan: Plan, common: Set[str]) -> dict[str, Set[Value]]:
    """The values of a plan by their names, over the rows that two plans have in common;
    over all rows if they have none.
    """
    cases = [case for case in plan.shown if case.label in common] or plan.shown
    asked = [
        {
            "command": plan.kind,
            "d_model": case.ffn.d_model,
            **asdict(case.workload.identity),
            "reference": plan.reference_of(case.label),
            "rows": case.label,
        }
        for case in cases
    ]
    # sets that keep their order
    return {name: dict.fromkeys(of[name] for of in asked).keys() for name in asked[0]}


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
    fewest = min(
        (len(row_logs(rounds, label).clean) for label in rounds.labels),
        default=FEWEST_BASELINE_WORKERS,
    )
    if fewest >= FEWEST_BASELINE_WORKERS:
        return ""
    return f"has {counted(fewest, 'undisturbed process')}, and a baseline needs {FEWEST_BASELINE_WORKERS}: its luck would stay in every check"


def new_baseline(checked: Checked) -> str:
    """The run that was measured now, as the text of a file. Raises Unfinished if it
    lacks something that a baseline needs.
    """
    reason = _why_no_new_baseline(checked)
    if reason:
        raise Unfinished(
            f"the baseline was not updated: {reason}",
            made_anew(checked.against, checked.before),
        )
    return report_text(checked.now)


def _why_no_new_baseline(checked: Checked) -> str:
    """What this run lacks to be the new baseline; empty if it lacks nothing."""
    now = checked.now
    missing, few = _not_measured(checked), why_too_few(now)
    if missing:
        return f"nothing was measured for {', '.join(sorted(missing))}"
    if few:
        return f"this run {few}"
    if now.interrupted or now.stopped:
        return "this run is incomplete"
    if has_latencies(checked.before) and not now.samples:
        return "this run has no latencies"
    return ""


def _not_measured(checked: Checked) -> set[str]:
    """The cases that a new baseline would not have, or that are not comparable with the
    old one.
    """
    missing = {
        f.case
        for f in checked.findings
        if f.status in (Status.MISSING, Status.INCOMPARABLE)
    }
    return missing | set(labels_without_clean(rounds_of(checked.now)))
