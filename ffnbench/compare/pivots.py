"""The table of a sweep with one row for each point: the variants are columns, with the
ratio and the verdict in one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ffnbench.plan.plan import Group, value_of
from ffnbench.record.result import Report, Verdict
from ffnbench.report.columns import column
from ffnbench.report.header import axis_column, heading_of
from ffnbench.report.table import (
    UNKNOWN_CELL,
    Column,
    Groups,
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
    names = {
        tuple(plan.name_of(case.label) for case in group.cases) for group in plan.groups
    }
    references = {plan.name_of(group.reference) for group in plan.groups}
    is_sweep = bool(table.groups) and bool(plan.groups[0].values)
    if not is_sweep or len(names) > 1 or len(references) > 1:
        return None
    [variants], [reference] = names, references
    by_label = {row["label"]: row for row in table.rows}
    axes, blocks = _axes_and_blocks(plan.groups)
    points = []
    for group in chain.from_iterable(blocks.values()):
        rows = {
            ("of", plan.name_of(case.label)): by_label[case.label]
            for case in group.cases
        }
        values = {key: value_of(plan.case(group.reference), key) for key in axes}
        points.append(by_label[group.reference] | values | rows)
    legend = "-v: all columns"
    if any(row["verdict"] == Verdict.UNCLEAR for row in table.rows):
        legend = f"{UNCLEAR}: can't tell; {legend}"
    headings: Groups = ()
    if "" not in blocks:
        headings = [(text, len(groups)) for text, groups in blocks.items()]
    words = {"word": _seconds_word, "style": _seconds_style}
    seconds = column("latency_s", 0, title=title, least_width=0, **words)
    ratios = [
        _ratio_column(name, reference, title) for name in variants if name != reference
    ]
    return Table(
        columns=(*map(axis_column, axes), seconds, *ratios),
        rows=points,
        groups=headings,
        header=[*table.header, legend],
        summary=table.summary,
    )


def _axes_and_blocks(
    groups: Sequence[Group],
) -> tuple[Sequence[str], dict[str, list[Group]]]:
    """The axes that are columns, and the points in blocks, by the heading of each.

    The axis with most values is a column, and the values of the others are the
    headings. Where few points would stand below each heading, all axes are columns, and
    all points are one block without a heading.
    """
    axes = list(groups[0].values)
    along = max(
        reversed(axes), key=lambda key: len({group.values[key] for group in groups})
    )
    blocks: dict[str, list[Group]] = {}
    for group in groups:
        others = {key: value for key, value in group.values.items() if key != along}
        blocks.setdefault(heading_of(others), []).append(group)
    if len(axes) == 1 or 2 * len(blocks) > len(groups):
        return axes, {"": list(groups)}
    return [along], blocks


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
