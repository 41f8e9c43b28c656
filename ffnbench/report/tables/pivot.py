"""A sweep as one row a point: the reference's time, and of each other variant its ratio with the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from ffnbench.metrics import LATENCY
from ffnbench.plan import Group, Plan, typed_as
from ffnbench.report.records import Record
from ffnbench.report.tables.groups import PLAIN, heading
from ffnbench.report.tables.table import (
    STYLES,
    UNKNOWN,
    Cell,
    Column,
    Field,
    TextTable,
    count,
    latency_cell,
    ratio_cell,
    table_of_fields,
)
from ffnbench.report.tables.words import CERTAIN, VERDICTS, listed, verdict_text
from ffnbench.result import Report, Verdict
from ffnbench.units import TIME, scale

SIGNS = VERDICTS | {Verdict.UNCLEAR: "~"}
WIDEST = max(len(SIGNS[verdict]) for verdict in STYLES if verdict is not Verdict.BUSY)
Point = tuple[Group, dict[str, str]]  # of each variant by its name the label


def pivots(report: Report, table: TextTable, rows: Sequence[Record], title: str) -> tuple[TextTable, ...]:
    """The table of a timed sweep with one row a point, with the intervals of ratios and without them.

    None of what is no sweep, and of one whose points have other variants. `title` is what columns call the reference.
    """
    plan = report.plan
    points = [(group, {plan.name_of(case.label): case.label for case in group.cases}) for group in plan.groups]
    names = {(plan.name_of(group.reference), *labels) for group, labels in points}
    if not (table.headings and plan.groups[0].values) or len(names) > 1:
        return ()
    (reference, *variants), axes = names.pop(), list(plan.groups[0].values)
    shown, ordered, blocks = _along(points, axes)
    first = [*map(_axis, shown), _time(report, reference, title)]
    unclear = any(comparison.verdict is Verdict.UNCLEAR for comparison in report.comparisons)
    told = [*_what(variants, rows, plan), *["~: can't tell"] * unclear, "-v: all columns"]
    return tuple(
        replace(
            table,
            columns=made.columns, rows=made.rows, headings=blocks, header=(*table.header, "; ".join(told)),
        )
        for unit in (f"time vs {title} {CERTAIN}", f"vs {title}")
        if (made := table_of_fields([
            *first,
            *(_ratio(report, name, reference, unit) for name in variants if name != reference),
        ], ordered))
    )  # fmt: skip


def _along(
    points: Sequence[Point], axes: Sequence[str]
) -> tuple[Sequence[str], Sequence[Point], tuple[tuple[int, str], ...]]:
    """The axes that are columns, the points in order, and headings: one axis, that with most values, below the values
    of the others. All axes of a shard that has no such rows.
    """
    along = max(reversed(axes), key=lambda key: len({group.values[key] for group, _ in points}))
    blocks: dict[str, list[Point]] = {}
    for point in points:
        others = {key: value for key, value in point[0].values.items() if key != along}
        blocks.setdefault(heading(replace(point[0], values=others)), []).append(point)
    if len(axes) == 1 or 2 * len(blocks) > len(points):
        return axes, points, ()
    starts = accumulate(map(len, blocks.values()), initial=0)
    return [along], [point for of in blocks.values() for point in of], tuple(zip(starts, blocks, strict=False))


def _what(variants: Sequence[str], rows: Sequence[Record], plan: Plan) -> list[str]:
    """`d_ff 3,072 (relu and gelu), 2,048 (swiglu)`: what a variant is at every point."""
    told = []
    for key in ("d_ff", "params"):
        sizes: dict[str, set[int | None]] = {name: set() for name in variants}
        for row in rows:
            sizes[plan.name_of(row["label"])].add(row[key])
        by: dict[int, list[str]] = {}
        for name, (size, *others) in sizes.items():
            if size is not None and not others:
                by.setdefault(size, []).append(name)
        of = [f"{size:,}" + f" ({listed(names)})" * (len(names) < len(variants)) for size, names in by.items()]
        told += [f"{key} {', '.join(of)}"] if of else []
    return told


def _axis(key: str) -> Field:
    def cell(point: Point) -> Cell:
        value = point[0].values[key]
        return count(value) if type(value) is int else Cell(text=typed_as(value), value=value)

    return Column(title=key, left=key in PLAIN), cell


def _time(report: Report, name: str, title: str) -> Field:
    unit, size = scale([e.value for c in report.plan.shown if (e := report.estimate(c.label, LATENCY))], TIME)

    def cell(point: Point) -> Cell:
        failure, verdict = verdict_text(report, point[1][name])
        failed = failure and verdict is None
        return Cell(text=failure, style="red") if failed else latency_cell(report, point[1][name], size)

    return Column(title=title, unit=unit), cell


def _ratio(report: Report, name: str, reference: str, unit: str) -> Field:
    """The ratio and the verdict in one cell; of what has no ratio that holds the word that says why."""

    def cell(point: Point) -> Cell:
        label = point[1][name]
        (word, verdict), ratio = verdict_text(report, label), ratio_cell(report, label)
        style = "red" if word and verdict is None else STYLES.get(verdict, "")  # type: ignore[arg-type]
        if verdict is None or ratio.value is None:
            return Cell(text=(word if verdict is not Verdict.UNCLEAR else "") or UNKNOWN, style=style)
        number = ratio.text if CERTAIN in unit else ratio.text.partition(" ")[0]
        return Cell(text=f"{number} {SIGNS[verdict]:<{WIDEST}}", value=ratio.value, style=style)

    return Column(title="@" * name.startswith(f"{reference}@") + name.removeprefix(f"{reference}@"), unit=unit), cell
