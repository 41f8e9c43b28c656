"""A sweep as one row a point: the reference's time, and of each other variant its ratio with the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ffnbench.metrics import LATENCY
from ffnbench.plan import Group, Plan
from ffnbench.report.records import Record
from ffnbench.report.tables.groups import axis_field, heading, placed
from ffnbench.report.tables.table import (
    STYLES,
    UNKNOWN,
    Cell,
    Column,
    Field,
    TextTable,
    latency_cell,
    ratio_cell,
    table_of_fields,
)
from ffnbench.report.tables.words import CERTAIN, VERDICTS, listed, verdict_text
from ffnbench.result import Report, Verdict
from ffnbench.units import TIME, scale

UNCLEAR = "~"  # can't tell
LONGEST = len(VERDICTS[Verdict.FASTER])  # of the verdicts behind a ratio


def pivots(report: Report, table: TextTable, rows: Sequence[Record], title: str) -> tuple[TextTable, ...]:
    """The table of a timed sweep with one row a point, with the intervals of ratios and without them.

    None of what is no sweep, and of one whose points have other variants. `title` is what columns call the reference.
    """
    plan = report.plan
    of_point = {g.reference: {plan.name_of(case.label): case.label for case in g.cases} for g in plan.groups}
    names = {(plan.name_of(reference), *labels) for reference, labels in of_point.items()}
    if not (table.headings and plan.groups[0].values) or len(names) > 1:
        return ()
    (reference, *variants) = names.pop()
    axes, points, headings = _along(plan.groups)
    first = [*(axis_field(plan, key) for key in axes), _time_field(report, title)]
    unclear = any(comparison.verdict is Verdict.UNCLEAR for comparison in report.comparisons)
    told = [*_what(variants, rows, plan), *[f"{UNCLEAR}: can't tell"] * unclear, "-v: all columns"]
    made = []
    for unit in (f"time vs {title} {CERTAIN}", f"vs {title}"):
        beside = [_ratio_field(report, name, reference, unit, of_point) for name in variants if name != reference]
        made.append(table_of_fields([*first, *beside], points, header=(*table.header, "; ".join(told))))
    return tuple(replace(one, summary=table.summary, headings=headings) for one in made)


def _along(groups: Sequence[Group]) -> tuple[Sequence[str], list[Record], tuple[tuple[int, str], ...]]:
    """The axes that are columns, the references in order, and headings: the axis with most values is a column, below
    the values of the others. All axes are where few points would stand below each, as in a shard.
    """
    axes = list(groups[0].values)
    along = max(reversed(axes), key=lambda key: len({group.values[key] for group in groups}))
    blocks: dict[str, list[Record]] = {}
    for group in groups:
        others = {key: value for key, value in group.values.items() if key != along}
        blocks.setdefault(heading(replace(group, values=others)), []).append({"label": group.reference})
    if len(axes) == 1 or 2 * len(blocks) > len(groups):
        return axes, [{"label": group.reference} for group in groups], ()
    headings = placed((text, len(of)) for text, of in blocks.items())
    return [along], [row for of in blocks.values() for row in of], headings


def _what(variants: Sequence[str], rows: Sequence[Record], plan: Plan) -> list[str]:
    """`d_ff 3,072 (relu and gelu), 2,048 (swiglu)`: what a variant is at every point."""
    told = []
    for key in ("d_ff", "params"):
        by: dict[int, list[str]] = {}
        for name in variants:
            sizes = {row[key] for row in rows if plan.name_of(row["label"]) == name}
            if len(sizes) == 1 and None not in sizes:
                by.setdefault(sizes.pop(), []).append(name)
        of = [f"{size:,}" + f" ({listed(names)})" * (len(names) < len(variants)) for size, names in by.items()]
        told += [f"{key} {', '.join(of)}"] if of else []
    return told


def _time_field(report: Report, title: str) -> Field:
    unit, size = scale([e.value for c in report.plan.shown if (e := report.estimate(c.label, LATENCY))], TIME)

    def cell(point: Record) -> Cell:
        word, verdict = verdict_text(report, point["label"])
        failed = word and verdict is None
        return Cell(text=word, style="red") if failed else latency_cell(report, point["label"], size)

    return Column(title=title, unit=unit), cell


def _ratio_field(
    report: Report, name: str, reference: str, unit: str, labels: Mapping[str, Mapping[str, str]]
) -> Field:
    """The ratio and the verdict in one cell; of what has no ratio that holds the word that says why."""

    def cell(point: Record) -> Cell:
        label = labels[point["label"]][name]
        (word, verdict), ratio = verdict_text(report, label), ratio_cell(report, label)
        style = STYLES.get(verdict, "") if verdict else "red" * bool(word)
        short = UNCLEAR if verdict is Verdict.UNCLEAR else word
        if ratio.value is None:
            return Cell(text=UNKNOWN if short in ("", UNCLEAR) else word, style=style)
        number = ratio.text if CERTAIN in unit else ratio.text.partition(" ")[0]
        return Cell(text=f"{number} {short:<{LONGEST}}", value=ratio.value, style=style)

    own = name.removeprefix(reference) if name.startswith(f"{reference}@") else name
    return Column(title=own, unit=unit), cell
