"""What a check found, as a table and as records: the rows that matter first, exact rows that are equal in one line."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import replace

from ffnbench.common.streams import visible
from ffnbench.common.units import counted, percent, signed_percent
from ffnbench.gate.decision import OUTPUT, TIMED, Checked, Finding, Status
from ffnbench.gate.trust import code_of, trust_flags
from ffnbench.metrics import LATENCY
from ffnbench.plan import NoteKind
from ffnbench.report.columns import column
from ffnbench.report.frame import UNKNOWN, Frame, Row
from ffnbench.report.notes import effort, notes_of_run
from ffnbench.report.sentences import general_line, machine_line
from ffnbench.report.words import CERTAIN, listed, side_lines

FAILS = {Status.REGRESSED, Status.MISSING}
WARNS = {Status.UNCLEAR, Status.INCOMPARABLE}


def described(finding: Finding) -> str:
    """One finding in one line of words."""
    change = finding.change
    text = f"{finding.case} {finding.metric}: {finding.status.word}"
    if change and change.low and change.high:
        value, low, high = (signed_percent(v - 1) for v in (change.value, change.low, change.high))
        text += f", {value} [{low}, {high}] at a tolerance of {percent(finding.tolerance)}"
    elif finding.before is not None and finding.now is not None and finding.before != finding.now:
        text += f", {finding.before:,.0f} then, {finding.now:,.0f} now"
    return visible(text + (f" ({finding.reason})" if finding.reason else ""))


def workflow_commands(findings: Sequence[Finding]) -> str:
    """GitHub's workflow commands: an error for what fails, a warning for what can't be told."""
    lines = []
    for finding in findings:
        level = "error" if finding.status in FAILS else "warning" if finding.status in WARNS else ""
        if level:
            text = described(finding).replace("%", "%25")
            lines.append(f"::{level} title=ffnbench {finding.status.word}::{text}")
    return "".join(line + "\n" for line in lines)


def junit(findings: Sequence[Finding]) -> str:
    """JUnit XML: a test case a row; what can't be told is skipped, with its reason."""
    failed = sum(f.status in FAILS for f in findings)
    unclear = sum(f.status in WARNS for f in findings)
    suite = xml.Element(
        "testsuite", name="ffnbench check", tests=str(len(findings)), failures=str(failed), skipped=str(unclear)
    )
    for finding in findings:
        case = xml.SubElement(suite, "testcase", classname=visible(f"ffnbench.{finding.case}"), name=finding.metric)
        if finding.status in FAILS:
            xml.SubElement(case, "failure", type=finding.status, message=described(finding))
        elif finding.status in WARNS:
            xml.SubElement(case, "skipped", message=described(finding))
        else:
            xml.SubElement(case, "system-out").text = described(finding)
    xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


STYLES = {
    Status.REGRESSED: "bold red", Status.MISSING: "bold red", Status.UNCLEAR: "bold yellow",
    Status.INCOMPARABLE: "bold yellow", Status.IMPROVED: "green", Status.OK: "green",
}  # fmt: skip
LOUD = {
    Status.UNCLEAR: "can't tell for",
    Status.INCOMPARABLE: "could not compare",
    Status.MISSING: "could not measure",
}
PASSED = (Status.OK, Status.IMPROVED)


def finding_records(findings: tuple[Finding, ...]) -> list[Row]:
    """One flat record a row, numbers in full precision."""
    return [
        {
            "case": f.case, "metric": f.metric, "status": f.status, "tolerance": f.tolerance,
            "before": f.before, "now": f.now, "change": f.ratio,
            "change_low": f.change and f.change.low, "change_high": f.change and f.change.high, "reason": f.reason,
        }
        for f in findings
    ]  # fmt: skip


def findings_frame(checked: Checked) -> Frame:
    """Every row that is not an equal exact metric; those are counted below."""
    now, rows = checked.now, finding_records(checked.findings)
    quiet = [row for row in rows if is_quiet(row)]
    order = [*Status]
    shown = sorted((row for row in rows if not is_quiet(row)), key=lambda row: order.index(row["status"]))
    reasons = {row["reason"] for row in rows}
    has_intervals = any(row["change_low"] is not None for row in rows)
    return Frame(
        columns=tuple(replace(each, unit=CERTAIN) if each.interval and has_intervals else each for each in SHOWN),
        rows=shown,
        saved=rows,
        header=[_title(checked)],
        summary=_summary(checked, len(quiet)),
        details=[
            *([effort(now)] if now.samples else []),
            *side_lines(now.sides),
            *(text for text in notes_of_run(now) if text not in reasons),
        ],
    )


def is_quiet(row: Row) -> bool:
    """Whether it is an exact metric that is equal."""
    return row["status"] == Status.OK and row["metric"] not in (*TIMED, OUTPUT) and row["change_low"] is None


def _limit(row: Row) -> str:
    if row["metric"] == OUTPUT:
        return _value(row["metric"], row["tolerance"])
    if row["metric"] not in TIMED and not row["tolerance"]:
        return "equal"
    return f"+{percent(row['tolerance'])}"


def _value(metric: str, value: float | None) -> str:
    if value is None or metric in TIMED:  # a time's change says it, in the unit of its limit
        return UNKNOWN
    if metric == OUTPUT:
        return f"{value:.1e}" if value else "0"
    return f"{value:,.0f}"


def _before(row: Row) -> str:
    return _value(row["metric"], row["before"])


def _now(row: Row) -> str:
    return _value(row["metric"], row["now"])


def _style(row: Row) -> str:
    return STYLES.get(row["status"], "")


SHOWN = (
    column("case"),
    column("metric"),
    column("status", write=lambda status: status.word, style=_style),
    column("change"),
    column("tolerance", text=_limit),
    column("before", text=_before),
    column("now", text=_now),
)


def _title(checked: Checked) -> str:
    if checked.sides:
        return f"A/B of {checked.now.plan.case(checked.now.plan.reference).variant}: {'; '.join(checked.sides)}"
    references = [case.label for case in checked.now.plan.shown if checked.now.plan.is_reference(case.label)]
    ratio = f"; latency: time vs {references[0] if len(references) == 1 else 'the reference'}"
    return f"check against {checked.against}" + ratio * bool(checked.now.samples)


def _summary(checked: Checked, equal: int) -> list[str]:
    """What regressed, what could not be told and why, what this run could have caught."""
    findings, now = checked.findings, checked.now
    regressed: dict[str, list[str]] = {}  # what is said of one row, or of several alike
    for f in findings:
        if f.status is Status.REGRESSED:
            regressed.setdefault(described(replace(f, case="")), []).append(f.case)
    lines = ["; ".join(", ".join(cases) + text for text, cases in regressed.items())]
    for status, words in LOUD.items():
        of = [f for f in findings if f.status is status]
        rows, reasons = dict.fromkeys(f.case for f in of), dict.fromkeys(f.reason for f in of if f.reason)
        longer = "; a longer --budget may tell" * (not checked.saved)
        crosses = f": the interval crosses the limit{longer}" * (status is Status.UNCLEAR)
        why = "".join(f": {reason}" for reason in reasons) or crosses
        lines.append(f"WARNING: {words} {counted(len(of), 'row')}: {', '.join(rows)}{why}" if of else "")
    lines.append("; ".join(f"{f.case} {f.metric}: {f.reason}" for f in findings if f.status in PASSED and f.reason))
    timed = [f for f in findings if f.metric == LATENCY]
    if len(timed) > 1 and all(f.status is Status.IMPROVED for f in timed):
        references = listed(group.reference for group in now.plan.groups)
        lines.append(f"every row improved: has {references}, the reference, become slower?")
    untimed = "; latency was not compared" * (not timed)
    told = [f"{counted(equal, 'exact row')} {'is' if equal == 1 else 'are'} equal{untimed}"] if equal else []
    if now.wall_s and any(f.change for f in timed):
        told.append(f"measured in {now.wall_s:.0f} s")
    if checked.smallest is not None:
        told.append(f"a slowdown of {percent(checked.smallest)} would have shown in every row")
    elif checked.excluded is not None:
        told.append(f"OK excludes slowdowns above {percent(checked.excluded)}")
    ended = [] if any(NoteKind.BUSY is note.kind for note in now.notes("")) else machine_line(now)
    if regressed and checked.against:
        update = ["ffnbench check", shlex.quote(checked.against), "--update", trust_flags(code_of(checked.before.plan))]
        ended.append(f"a change that is meant becomes the baseline: {' '.join(filter(None, update))}")
    known = {finding.reason for finding in findings}
    general = [line for line in general_line(now) if line not in known]
    return list(filter(None, [*lines, "; ".join(told), *general, *ended]))
