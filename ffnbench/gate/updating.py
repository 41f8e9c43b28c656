"""What becomes of a baseline after a check: a new one, or the old one with a further run."""

from __future__ import annotations

from ffnbench.common.errors import Unfinished
from ffnbench.gate.baseline import is_timed, too_few
from ffnbench.gate.decision import Checked, Status, kind
from ffnbench.report.files.store import made_anew, report_text
from ffnbench.report.formats import Longer
from ffnbench.stats.rounds import table_of


def new_baseline(checked: Checked) -> str:
    """What was measured now; raises Unfinished where that is not all of it."""
    now, before, lacking = checked.now, checked.before, _lacking(checked)
    few = too_few(now)
    if now.interrupted or lacking or few or (is_timed(before) and not now.samples):
        what = f": nothing was measured for {', '.join(sorted(lacking))}" if lacking else f": it {few}" * bool(few)
        raise Unfinished(f"the baseline was not updated{what}", made_anew(checked.against, before))
    return report_text(now)


def longer_baseline(checked: Checked) -> Longer:
    """The baseline with this run; not only the good ones are added, for that would make the scatter look small."""
    now, path = checked.now, repr(checked.against)
    regressed = [f"{f.case} {f.metric}" for f in checked.findings if f.status is Status.REGRESSED]
    statuses, busy = {f.status for f in checked.findings}, table_of(now).disturbed()
    undecided = [f.case for f in checked.findings if f.status is Status.UNCLEAR and f.case in busy]
    missing = [f.case for f in checked.findings if f.status is Status.MISSING]
    lacking = sorted(_lacking(checked))
    if checked.interrupted or now.stopped:
        why = "it is incomplete"
    elif regressed:
        why = f"{', '.join(regressed)} regressed"
    elif kind(now.environment) != kind(checked.before.environment) or Status.INCOMPARABLE in statuses:
        why = "it ran on another kind of machine, or the baseline was measured with another method"
    elif missing:
        why = f"nothing was measured for {', '.join(dict.fromkeys(missing))}"
    elif undecided or lacking:
        why = f"the machine was busy: {', '.join(undecided or lacking)}"
    elif few := too_few(now):
        why = f"it {few}"
    else:
        longer = checked.before
        for run in now.runs:
            longer = longer.with_repeat(run)
        return Longer(f"added to {path}: {len(longer.runs)} runs", report_text(longer))
    return Longer(f"this run was not added to {path}: {why}")


def _lacking(checked: Checked) -> set[str]:
    """The cases that a new baseline would not have, or only beside other work."""
    missing = {f.case for f in checked.findings if f.status in (Status.MISSING, Status.INCOMPARABLE)}
    return missing | set(table_of(checked.now).without_quiet())
