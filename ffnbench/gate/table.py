"""The findings of a check as a table and as records, for GitHub and as JUnit XML. The
table has the rows that matter first, and one line for all exact rows that are equal.
"""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ffnbench.common.streams import visible
from ffnbench.common.units import (
    TIME,
    counted,
    digits,
    percent,
    quantity,
)
from ffnbench.gate.decision import OUTPUT, Checked, Finding, Status
from ffnbench.gate.trust import code_of, trust_flags
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import NoteKind
from ffnbench.report.notes import effort, notes_of_run
from ffnbench.report.sentences import general_line, machine_line
from ffnbench.report.table import UNKNOWN_CELL, Column, Row, Table
from ffnbench.report.words import CERTAIN, change_text, side_lines

# the statuses that a CI shows as errors and as warnings, and those that are fine
FAILS = (Status.REGRESSED, Status.MISSING)
WARNS = (Status.UNCLEAR, Status.INCOMPARABLE)
PASSED = (Status.OK, Status.IMPROVED)
STATUS_STYLES = {
    Status.REGRESSED: "red",
    Status.UNCLEAR: "yellow",
    Status.MISSING: "yellow",
    Status.INCOMPARABLE: "yellow",
    Status.IMPROVED: "green",
    Status.OK: "green",
}
UNDECIDED_WORDS = {
    Status.UNCLEAR: "can't tell for",
    Status.INCOMPARABLE: "could not compare",
    Status.MISSING: "could not measure",
}


def described(finding: Finding) -> str:
    """A finding in one line of words."""
    change = finding.change
    before, now = finding.before, finding.now
    text = f"{finding.case} {finding.metric}: {finding.status.word}"
    if change and change.low:
        tolerance = percent(finding.tolerance)
        text += f", {change_text(change)} at a tolerance of {tolerance}"
    elif None not in (before, now) and before != now:
        text += f", {before:,.0f} then, {now:,.0f} now"
    if finding.reason:
        text += f" ({finding.reason})"
    return visible(text)


def workflow_commands(findings: Sequence[Finding]) -> str:
    """GitHub's workflow commands: an error for what fails, a warning for what can't be
    told.
    """
    lines = []
    for finding in findings:
        status = finding.status
        if status in (*FAILS, *WARNS):
            level = "error" if status in FAILS else "warning"
            text = described(finding).replace("%", "%25")
            lines.append(f"::{level} title=ffnbench {status.word}::{text}\n")
    return "".join(lines)


def junit(findings: Sequence[Finding]) -> str:
    """JUnit XML with a test case for each row; one that can't be told is skipped, with
    its reason.
    """
    failed = sum(f.status in FAILS for f in findings)
    unclear = sum(f.status in WARNS for f in findings)
    suite = xml.Element(
        "testsuite",
        name="ffnbench check",
        tests=str(len(findings)),
        failures=str(failed),
        skipped=str(unclear),
    )
    for finding in findings:
        name, text = visible(f"ffnbench.{finding.case}"), described(finding)
        case = xml.SubElement(suite, "testcase", classname=name, name=finding.metric)
        if finding.status in FAILS:
            xml.SubElement(case, "failure", type=finding.status, message=text)
        elif finding.status in WARNS:
            xml.SubElement(case, "skipped", message=text)
        else:
            xml.SubElement(case, "system-out").text = text
    xml.indent(suite)
    text = xml.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def finding_records(checked: Checked) -> list[Row]:
    """A flat record for each row, with numbers in full precision."""
    records = []
    for finding in checked.findings:
        change = finding.change
        row: Row = {
            "case": finding.case,
            "metric": finding.metric,
            "status": finding.status,
            "tolerance": finding.tolerance,
            "before": finding.before,
            "now": finding.now,
            "change": finding.ratio,
            "change_low": change and change.low,
            "change_high": change and change.high,
            "reason": finding.reason,
        }
        records.append(row)
    return records


def findings_table(checked: Checked) -> Table:
    """The table of all rows but the exact ones that are equal, which are counted below
    it.
    """
    now, rows = checked.now, finding_records(checked)
    shown = [row for row in rows if not _is_equal_exact(row)]
    equal = len(rows) - len(shown)
    order = [*Status]
    shown.sort(key=lambda row: order.index(row["status"]))
    reasons = {row["reason"] for row in rows}
    has_intervals = any(row["change_low"] is not None for row in rows)
    return Table(
        columns=_columns(checked, has_intervals=has_intervals),
        rows=shown,
        saved=rows,
        header=[_what_is_checked(checked)],
        summary=_summary_lines(checked, equal),
        details=[
            *([effort(now)] if now.samples else []),
            *side_lines(now.sides),
            *(text for text in notes_of_run(now) if text not in reasons),
        ],
    )


def _is_equal_exact(row: Row) -> bool:
    """Whether a row is about an exact metric or a spec that is as it was."""
    return (
        row["status"] == Status.OK
        and row["metric"] not in (LATENCY, OUTPUT)
        and row["change_low"] is None
    )


def _limit_text(row: Row) -> str:
    if row["metric"] == OUTPUT:
        return _error_text(row["tolerance"])
    if row["metric"] != LATENCY and not row["tolerance"]:
        return "equal"
    return f"+{percent(row['tolerance'])}"


def _error_text(error: float) -> str:
    return f"{error:.1e}" if error else "0"


def _value_text(row: Row, key: str, *, of_sides: bool) -> str:
    """The value before or now. A latency is shown as the ratio to the reference, or in
    seconds if there are two sides.
    """
    value, metric = row[key], row["metric"]
    if value is None:
        return UNKNOWN_CELL
    if metric == OUTPUT:
        return _error_text(value)
    if metric == LATENCY:
        return quantity(value, TIME) if of_sides else digits(value, 4)
    return f"{value:,.0f}"


def _style(row: Row) -> str:
    return STATUS_STYLES.get(row["status"], "")


def _columns(checked: Checked, *, has_intervals: bool) -> tuple[Column, ...]:
    of_sides = bool(checked.sides)
    before, now = (
        Column(key, word=partial(_value_text, key=key, of_sides=of_sides), priority=2)
        for key in ("before", "now")
    )
    return (
        Column("case", left=True),
        Column("metric", left=True),
        Column("status", left=True, read=lambda status: status.word, style=_style),
        Column(
            "change",
            unit=CERTAIN if has_intervals else "",
            interval=True,
            read=change_text,
        ),
        Column("tolerance", "limit", word=_limit_text, priority=1),
        before,
        now,
    )


def _what_is_checked(checked: Checked) -> str:
    """`A/B of swiglu: base ...; head ...`, or `check against b.json; latency: ...`."""
    plan = checked.now.plan
    if not checked.against:
        what = f"A/B of {plan.case(plan.reference).variant}"
        return ": ".join(filter(None, (what, "; ".join(checked.sides))))
    title = f"check against {checked.against}"
    if checked.now.samples:
        title += f"; latency: time vs {plan.name_of(plan.reference)}"
    return title


def check_command(checked: Checked, *words: str) -> str:
    """The command that checks against the same baseline, with these words added."""
    command = [
        "ffnbench check",
        shlex.quote(checked.against),
        *words,
        trust_flags(code_of(checked.before.plan)),
    ]
    return " ".join(word for word in command if word)


def _summary_lines(checked: Checked, equal: int) -> list[str]:
    """The lines below the table: what regressed; what could not be told, and why; what
    slowdown the run could have found; what else there is to say.
    """
    lines = (
        _regressed_line(checked.findings),
        _undecided_line(checked),
        "; ".join(_reach(checked, equal)),
        "; ".join(_remarks(checked)),
    )
    return [line for line in lines if line]


def _reach(checked: Checked, equal: int) -> list[str]:
    """How many exact rows are equal, and which slowdown the run could have found."""
    texts = []
    if equal:
        is_or_are = "is" if equal == 1 else "are"
        texts.append(f"{counted(equal, 'exact row')} {is_or_are} equal")
        if all(finding.metric != LATENCY for finding in checked.findings):
            texts.append("latency was not compared")
    if checked.smallest is not None:
        texts.append(
            f"a slowdown of {percent(checked.smallest)} would have shown in every row"
        )
    elif checked.excluded is not None:
        texts.append(f"OK excludes slowdowns above {percent(checked.excluded)}")
    return texts


def _remarks(checked: Checked) -> list[str]:
    """How a regression becomes the baseline, a hint that the reference has changed, the
    reasons of rows that passed, and what the run says of itself and its machine.
    """
    findings, now = checked.findings, checked.now
    remarks = []
    regressed = [each for each in findings if each.status is Status.REGRESSED]
    if checked.against and regressed:
        command = check_command(checked, "--update")
        remarks.append(f"a change that is meant becomes the baseline: {command}")
    statuses = [finding.status for finding in findings if finding.metric == LATENCY]
    if len(statuses) > 1 and set(statuses) == {Status.IMPROVED}:
        remarks.append("every row improved: has the reference become slower?")
    remarks += [
        f"{finding.case} {finding.metric}: {finding.reason}"
        for finding in findings
        if finding.status in PASSED and finding.reason
    ]
    reasons = {finding.reason for finding in findings}
    remarks += [line for line in general_line(now) if line not in reasons]
    if not any(note.kind is NoteKind.BUSY for note in now.notes("")):
        remarks += machine_line(now)
    return remarks


def _regressed_line(findings: Sequence[Finding]) -> str:
    """What became worse; rows that became worse in the same way share one text."""
    labels: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status is Status.REGRESSED:
            # begins with a space, to which the labels are put in front
            text = described(replace(finding, case=""))
            labels.setdefault(text, []).append(finding.case)
    return "; ".join(", ".join(of_text) + text for text, of_text in labels.items())


def _undecided_line(checked: Checked) -> str:
    """Which rows have no answer, and why."""
    texts = []
    for status, words in UNDECIDED_WORDS.items():
        rows = [finding for finding in checked.findings if finding.status is status]
        if not rows:
            continue
        names = ", ".join(dict.fromkeys(finding.case for finding in rows))
        reasons = list(
            dict.fromkeys(finding.reason for finding in rows if finding.reason)
        )
        if not reasons and status is Status.UNCLEAR:
            longer = "" if checked.saved else "; a longer --budget may tell"
            reasons.append(f"the interval crosses the limit{longer}")
        how_many = counted(len(rows), "row")
        texts.append(": ".join([f"{words} {how_many}", names, *reasons]))
    return f"WARNING: {'; '.join(texts)}" if texts else ""
