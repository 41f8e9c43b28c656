"""The table of a sweep with one row for each point: the variants are columns, with the
ratio and the verdict in one cell.
"""

from __future__ import annotations

from ffnbench.record.result import Report, Verdict
from ffnbench.report.columns import column
from ffnbench.report.header import axis_columns
from ffnbench.report.table import (
    UNKNOWN_CELL,
    Column,
    Row,
    Table,
    estimate_in,
)
from ffnbench.report.words import (
    CERTAIN,
    VERDICTS,
    interval_text,
    verdict_style,
    verdict_word,
)

UNCLEAR = "?"  # can't tell
LONGEST_VERDICT = len(VERDICTS[Verdict.FASTER])  # of the verdicts behind a ratio


def pivot(report: Report, table: Table, title: str) -> Table | None:
    """The table of a timed sweep with one row for each point; None for a plan that is
    no sweep, and for one whose points have different variants. `title` is what the
    headings call the reference.
    """
    plan = report.plan
    variants = [plan.name_of(case.label) for case in plan.groups[0].cases]
    axes = list(plan.groups[0].values)
    if (
        not axes
        or len(variants) < 2
        or any(
            [plan.name_of(case.label) for case in group.cases] != variants
            for group in plan.groups
        )
    ):
        return None
    by_label = {row["label"]: row for row in table.rows}
    points = []
    for group in plan.groups:
        reference = by_label[group.reference]
        rows = {
            ("of", name): by_label[case.label]
            for name, case in zip(variants, group.cases, strict=True)
        }
        points.append(reference | dict(group.values) | rows)
    legend = "-v: all columns"
    if any(row["verdict"] == Verdict.UNCLEAR for row in table.rows):
        legend = f"{UNCLEAR}: can't tell; {legend}"
    words = {"word": _seconds_word, "style": _seconds_style}
    seconds = column("latency_s", 0, title=title, least_width=0, **words)
    ratios = [_ratio_column(name, variants[0], title) for name in variants[1:]]
    return Table(
        columns=(*axis_columns(plan), seconds, *ratios),
        rows=points,
        header=[*table.header, legend],
        summary=table.summary,
    )


def _seconds_word(row: Row) -> str | None:
    """The word that stands in the place of the reference's time; None where it has a
    time to be shown.
    """
    return verdict_word(row) if row["failure"] or row["latency_s"] is None else None


def _seconds_style(row: Row) -> str:
    return verdict_style(row) if _seconds_word(row) else ""


def _ratio_column(name: str, reference: str, reference_title: str) -> Column:
    """The column of a variant, with the ratio and the verdict in one cell; where there
    is no ratio, the word that says why.
    """

    def word(point: Row) -> str:
        row = point["of", name]
        word = verdict_word(row) or ""
        ratio = estimate_in(row, "ratio")
        if row["verdict"] == Verdict.UNCLEAR:
            word = UNCLEAR
        if ratio is None:
            return UNKNOWN_CELL if word in ("", UNCLEAR) else word
        return f"{interval_text(ratio)} {word:<{LONGEST_VERDICT}}"

    def style(point: Row) -> str:
        return verdict_style(point["of", name])

    title = name.removeprefix(reference) if name.startswith(f"{reference}@") else name
    unit = f"time vs {reference_title} {CERTAIN}"
    return Column(name, title, unit, word=word, style=style)
