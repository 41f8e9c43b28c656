"""What a gate found, as a table and as records: the rows that matter first, exact rows that are equal in one line."""

from __future__ import annotations

from typing import Any

from ffnbench.plan import LATENCY
from ffnbench.report.exports import described
from ffnbench.report.footnotes import Footnotes
from ffnbench.report.summary import effort, ended_early
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.report.words import ratio_text, side_lines
from ffnbench.result import Report, Verdict
from ffnbench.stats.regression import OUTPUT, Finding, Status
from ffnbench.units import percent, signed_percent

Record = dict[str, Any]
STYLES = {
    Status.REGRESSED: "bold red", Status.MISSING: "bold red", Status.UNCLEAR: "bold yellow",
    Status.INCOMPARABLE: "bold yellow", Status.IMPROVED: "green", Status.OK: "green",
}  # fmt: skip
LOUD = {Status.UNCLEAR: "could not be decided", Status.INCOMPARABLE: "could not be compared"}


def finding_records(findings: tuple[Finding, ...]) -> list[Record]:
    """One flat record a row, numbers in full precision."""
    return [
        {
            "case": f.case, "metric": f.metric, "status": f.status.value, "tolerance": f.tolerance,
            "before": f.before, "now": f.now, "change": f.change and f.change.value,
            "change_low": f.change and f.change.low, "change_high": f.change and f.change.high, "reason": f.reason,
        }
        for f in findings
    ]  # fmt: skip


def findings_table(findings: tuple[Finding, ...], now: Report, smallest: float | None, title: str) -> Table:
    """Every row that is not an equal exact metric; those are counted below."""
    notes = Footnotes()
    quiet = [f for f in findings if f.status is Status.OK and f.metric not in (LATENCY, OUTPUT) and f.change is None]
    shown = sorted((f for f in findings if f not in quiet), key=lambda f: list(Status).index(f.status))
    columns = (
        Column(title="case", left=True),
        Column(title="metric", left=True),
        Column(title="status", left=True),
        Column(title="change", unit="[95%]"),
        Column(title="limit", priority=1),
        Column(title="before", priority=2),
        Column(title="now", priority=2),
    )
    rows = tuple(
        (
            Cell(text=f.case),
            Cell(text=f.metric),
            Cell(text=f.status.value + notes.marks([f.reason] if f.reason else []), style=STYLES.get(f.status, "")),
            Cell(text=_change(f)),
            Cell(text=f"+{percent(f.tolerance)}" if f.tolerance else "equal"),
            Cell(text=_value(f, f.before)),
            Cell(text=_value(f, f.now)),
        )
        for f in shown
    )
    sampled = any(sample.metric == LATENCY for sample in now.samples)
    several = sum(now.plan.is_reference(case.label) for case in now.plan.shown) > 1
    reference = "the reference beside it" if several else now.plan.reference
    timed = [f"{effort(now)}; latency is the ratio to {reference}"] if sampled else []
    return Table(
        columns=columns,
        rows=rows,
        header=(title, *timed),
        footnotes=notes.lines(),
        summary=tuple(_summary(findings, len(quiet), now, smallest)),
    )


def _summary(findings: tuple[Finding, ...], equal: int, now: Report, smallest: float | None) -> list[str]:
    lines = [f"{equal} exact rows are equal"] if equal else []
    if smallest is not None:
        wall = f", measured in {now.wall_s:.0f} s" if now.wall_s else ""
        lines.append(f"the smallest change that this run could have caught: {signed_percent(smallest)}{wall}")
    lines += side_lines(now.sides)
    lines += [note.text for note in now.warnings if not note.label]
    timed = [f for f in findings if f.metric == LATENCY]
    if len(timed) > 1 and all(f.status is Status.IMPROVED for f in timed):
        lines.append(f"WARNING: every row improved: has {now.plan.reference}, the reference, become slower?")
    if now.interrupted or now.stopped:
        lines += ended_early(now.samples)
    for status, words in LOUD.items():
        if rows := [f.case for f in findings if f.status is status]:
            lines.append(f"WARNING: {len(rows)} rows {words}: {', '.join(dict.fromkeys(rows))}")
    if regressed := [described(f) for f in findings if f.status is Status.REGRESSED]:
        lines += regressed
    return lines


def _change(finding: Finding) -> str:
    if finding.change is not None:
        return ratio_text(Verdict.SLOWER, finding.change)
    if finding.before and finding.now is not None:
        return "0%" if finding.now == finding.before else signed_percent(finding.now / finding.before - 1)
    return UNKNOWN


def _value(finding: Finding, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if finding.metric == OUTPUT:
        return f"{value:.1e}"
    return f"{value:.3f}" if finding.change is not None else f"{value:,.0f}"
