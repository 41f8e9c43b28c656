"""The findings of a check as a table and as records, for GitHub and as JUnit XML. The
table has the rows that matter first, and one line for all exact rows that are equal.
"""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ffnbench.common.streams import visible
from ffnbench.common.units import (
    TIME,
    counted,
    digits,
    percent,
    quantity,
    signed_percent,
)
from ffnbench.gate.decision import OUTPUT, Finding, Status
from ffnbench.gate.trust import code_of, trust_flags
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import NoteKind
from ffnbench.record.result import Estimate, Side
from ffnbench.report.sentences import effort, ending, general_notes, notes_of_run
from ffnbench.report.table import UNKNOWN_CELL, Column, Row, Table
from ffnbench.report.words import CERTAIN, SEEN, TENFOLD, WIDEST_INTERVAL, interval_text

if TYPE_CHECKING:
    from ffnbench.gate.shown_check import ShownCheck

LONGEST_FACTS = 100  # letters of a fact of all sides that is written in full
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


def change_text(ratio: Estimate) -> str:
    """A ratio as a change in percent, `+10% [+9.8%, +11%]`; as a factor where it is
    large, or its interval wide.
    """
    if ratio.low is None or ratio.high is None:
        return signed_percent(ratio.value - 1)
    if ratio.high > TENFOLD or (ratio.half_width or 0) > WIDEST_INTERVAL:
        return f"x {interval_text(ratio)}"
    value, low, high = (
        signed_percent(end - 1) for end in (ratio.value, ratio.low, ratio.high)
    )
    return f"{value} [{low}, {high}]"


def side_lines(sides: Sequence[Side]) -> list[str]:
    """`torch: 2.12.0+cpu (base), 2.13.0+cpu (head)` for each fact that is not the same
    on all sides; where a value is too long for a line, only that the fact differs.
    """
    lines = []
    facts = [dict(side.differing) for side in sides]
    for fact in facts[0] if facts else ():
        texts = [
            f"{values[fact]} ({side.name})"
            for side, values in zip(sides, facts, strict=True)
        ]
        text = ", ".join(texts)
        lines.append(f"{fact}: {text if len(text) < LONGEST_FACTS else 'not the same'}")
    return lines


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


def finding_records(findings: Sequence[Finding]) -> list[Row]:
    """A flat record for each row, with numbers in full precision."""
    return [
        {
            "case": finding.case,
            "metric": finding.metric,
            "status": finding.status,
            "tolerance": finding.tolerance,
            "before": finding.before,
            "now": finding.now,
            "change": finding.ratio,
            "change_low": finding.change and finding.change.low,
            "change_high": finding.change and finding.change.high,
            "reason": finding.reason,
        }
        for finding in findings
    ]


def findings_table(checked: ShownCheck) -> Table:
    """The table of all rows but the exact ones that are equal, which are counted below
    it.
    """
    now, rows, order = checked.now, finding_records(checked.findings), [*Status]
    shown = [row for row in rows if not _is_equal(row)]
    shown.sort(key=lambda row: order.index(row["status"]))
    reasons = {row["reason"] for row in rows}
    return Table(
        columns=_columns(rows, of_sides=bool(checked.sides)),
        rows=shown,
        saved=rows,
        header=[_what_is_checked(checked)],
        summary=_summary_lines(checked, len(rows) - len(shown)),
        details=[
            *([effort(now)] if now.samples else []),
            *side_lines(now.sides),
            *(text for text in notes_of_run(now) if text not in reasons),
        ],
    )


def _is_equal(row: Row) -> bool:
    """Whether a row is about an exact metric or a spec that is as it was."""
    return row["status"] == Status.OK and row["metric"] not in (LATENCY, OUTPUT)


def _limit_text(row: Row) -> str:
    if row["metric"] == OUTPUT:
        return _error_text(row["tolerance"])
    if row["metric"] != LATENCY and not row["tolerance"]:
        return "equal"
    return f"+{percent(row['tolerance'])}"


def _seen_text(row: Row) -> str | None:
    """The change of a busy row, `~+5%`; None of any other row."""
    is_seen = row["metric"] == LATENCY and row["change_low"] is None
    if is_seen and row["change"] is not None:
        return f"{SEEN}{signed_percent(row['change'] - 1)}"
    return None


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


def _columns(rows: Sequence[Row], *, of_sides: bool) -> tuple[Column, ...]:
    has_intervals = any(row["change_low"] is not None for row in rows)
    before, now = (
        Column(key, word=partial(_value_text, key=key, of_sides=of_sides), priority=2)
        for key in ("before", "now")
    )
    return (
        Column("case", left=True),
        Column("metric", left=True),
        Column(
            "status",
            left=True,
            read=lambda status: status.word,
            style=lambda row: STATUS_STYLES.get(row["status"], ""),
        ),
        Column(
            "change",
            unit=CERTAIN if has_intervals else "",
            interval=True,
            read=change_text,
            word=_seen_text,
            style=lambda row: "dim" if _seen_text(row) else "",
        ),
        Column("tolerance", "limit", word=_limit_text, priority=1),
        before,
        now,
    )


def _what_is_checked(checked: ShownCheck) -> str:
    """`A/B of swiglu: base ...; head ...`, or `check against b.json; latency: ...`."""
    plan = checked.now.plan
    if not checked.against:
        what = f"A/B of {plan.case(plan.reference).variant}"
        return ": ".join(filter(None, (what, "; ".join(checked.sides))))
    title = f"check against {checked.against}"
    if checked.now.samples:
        title += f"; latency: time vs {plan.name_of(plan.reference)}"
    return title


def _summary_lines(checked: ShownCheck, equal: int) -> list[str]:
    """The lines below the table: the reasons; what slowdown the run could have found;
    what else there is to say.
    """
    lines = (
        "; ".join(_reasons(checked)),
        "; ".join(_reach(checked.findings, equal)),
        "; ".join(_remarks(checked)),
    )
    return [line for line in lines if line]


def _reasons(checked: ShownCheck) -> list[str]:
    """What regressed, and why rows have their status: `MISSING: relu latency, gelu
    latency: not measured`. Rows with one reason share a text.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    order = [*Status]
    for finding in sorted(checked.findings, key=lambda each: order.index(each.status)):
        status, reason = finding.status, finding.reason
        if status is Status.UNCLEAR and not reason:
            longer = "" if checked.saved else "; a longer --budget may tell"
            reason = f"the interval crosses the limit{longer}"
        if reason or status is Status.REGRESSED:
            of_reason = rows.setdefault((status.word, reason), [])
            of_reason.append(f"{finding.case} {finding.metric}")
    return [
        ": ".join(filter(None, (word, ", ".join(names), reason)))
        for (word, reason), names in rows.items()
    ]


def _reach(findings: Sequence[Finding], equal: int) -> list[str]:
    """How many exact rows are equal, and which slowdown would have been found in every
    latency row that is UNCLEAR and has an interval, or is excluded by all others.
    """
    latencies = [finding for finding in findings if finding.metric == LATENCY]
    texts = []
    if equal:
        is_or_are = "is" if equal == 1 else "are"
        texts.append(f"{counted(equal, 'exact row')} {is_or_are} equal")
        if not latencies:
            texts.append("latency was not compared")
    found = [
        (1 + finding.change.half_width) * (1 + finding.tolerance) - 1
        for finding in latencies
        if finding.change and finding.change.half_width is not None
    ]
    passed = [each.tolerance for each in latencies if each.status in PASSED]
    if found and Status.UNCLEAR in [each.status for each in latencies]:
        slowdown = percent(max(found))
        texts.append(f"a slowdown of {slowdown} would have shown in every interval")
    elif passed:
        texts.append(f"OK excludes slowdowns above {percent(max(passed))}")
    return texts


def _remarks(checked: ShownCheck) -> list[str]:
    """How a regression becomes the baseline, a hint that the reference has changed, and
    what the run says of itself and its machine.
    """
    findings, now = checked.findings, checked.now
    remarks = []
    regressed = [each for each in findings if each.status is Status.REGRESSED]
    if checked.against and regressed and not checked.updates:
        trusted = trust_flags(code_of(checked.before.plan))
        command = f"ffnbench check {shlex.quote(checked.against)} --update {trusted}"
        remarks.append(
            f"a change that is meant becomes the baseline: {command.strip()}"
        )
    statuses = [finding.status for finding in findings if finding.metric == LATENCY]
    if len(statuses) > 1 and set(statuses) == {Status.IMPROVED}:
        remarks.append("every row improved: has the reference become slower?")
    reasons = {finding.reason for finding in findings}
    remarks += [line for line in general_notes(now) if line not in reasons]
    if not any(note.kind is NoteKind.BUSY for note in now.notes("")):
        remarks += filter(None, [ending(now)])
    return remarks
