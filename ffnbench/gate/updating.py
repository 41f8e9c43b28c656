"""What becomes of a baseline after a check: a new one, or the old one with a further run."""

from __future__ import annotations

from ffnbench.common.errors import Unfinished
from ffnbench.gate.baseline import is_timed, too_few
from ffnbench.gate.decision import Checked, Status, machine_kind
from ffnbench.report.files.store import made_anew, report_text
from ffnbench.report.formats import Longer
from ffnbench.stats.rounds import table_of


def new_baseline(checked: Checked) -> str:
    """What was measured now, as the text of a file; raises Unfinished where that is not all of it."""
    now = checked.now
    missing, few = _not_measured(checked), too_few(now)
    if now.interrupted or missing or few or (is_timed(checked.before) and not now.samples):
        reason = ""
        if missing:
            reason = f": nothing was measured for {', '.join(sorted(missing))}"
        elif few:
            reason = f": it {few}"
        raise Unfinished(f"the baseline was not updated{reason}", made_anew(checked.against, checked.before))
    return report_text(now)


def longer_baseline(checked: Checked) -> Longer:
    """The baseline with this run, or why it was not added.

    Runs are not added for being good ones alone, for that would make the scatter between runs look small.
    """
    path = repr(checked.against)
    reason = _why_not_added(checked)
    if reason:
        return Longer(f"this run was not added to {path}: {reason}")
    longer = checked.before
    for run in checked.now.runs:
        longer = longer.with_repeat(run)
    return Longer(f"added to {path}: {len(longer.runs)} runs", report_text(longer))


def _why_not_added(checked: Checked) -> str:
    """Why this run can't be a further one of the baseline; empty where it can."""
    now, table = checked.now, table_of(checked.now)
    if checked.interrupted or now.stopped:
        return "it is incomplete"
    of_status: dict[Status, list[str]] = {status: [] for status in Status}
    for finding in checked.findings:
        of_status[finding.status].append(finding.case)
    regressed = [f"{f.case} {f.metric}" for f in checked.findings if f.status is Status.REGRESSED]
    if regressed:
        return f"{', '.join(regressed)} regressed"
    if machine_kind(now.environment) != machine_kind(checked.before.environment) or of_status[Status.INCOMPARABLE]:
        return "it ran on another kind of machine, or the baseline was measured with another method"
    if of_status[Status.MISSING]:
        return f"nothing was measured for {', '.join(dict.fromkeys(of_status[Status.MISSING]))}"
    busy = [label for label in of_status[Status.UNCLEAR] if label in table.rounds and table.row(label).disturbed]
    busy = busy or sorted(table.labels_without_clean())
    if busy:
        return f"the machine was busy: {', '.join(busy)}"
    few = too_few(now)
    return f"it {few}" if few else ""


def _not_measured(checked: Checked) -> set[str]:
    """The cases that a new baseline would not have, or that are not comparable with the old one."""
    missing = {f.case for f in checked.findings if f.status in (Status.MISSING, Status.INCOMPARABLE)}
    return missing | set(table_of(checked.now).labels_without_clean())
