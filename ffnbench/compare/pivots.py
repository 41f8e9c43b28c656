"""A sweep as one row a point: the variants are columns, with the ratio and the verdict
in one cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from ffnbench.plan import Group, Plan, value_of
from ffnbench.report.columns import column
from ffnbench.report.frame import UNKNOWN_CELL, Column, Frame, Groups, Row, estimate_in
from ffnbench.report.header import (
    axis_column,
    heading_of,
    headings_at_rows,
)
from ffnbench.report.words import (
    CERTAIN,
    VERDICTS,
    interval_text,
    join_words,
    verdict_style,
    verdict_word,
)
from ffnbench.result import Report, Verdict

UNCLEAR = "~"  # can't tell
LONGEST_VERDICT = len(VERDICTS[Verdict.FASTER])  # of the verdicts behind a ratio


def pivots(report: Report, frame: Frame, title: str) -> tuple[Frame, ...]:
    """The frame of a timed sweep with one row a point, with the intervals of ratios and
    without them.

    None of what is no sweep, and of one whose points have other variants. `title` is
    what columns call the reference.
    """
    plan = report.plan
    names = {
        tuple(plan.name_of(case.label) for case in group.cases) for group in plan.groups
    }
    references = {plan.name_of(group.reference) for group in plan.groups}
    is_sweep = bool(frame.groups) and bool(plan.groups[0].values)
    if not is_sweep or len(names) > 1 or len(references) > 1:
        return ()
    [variants], [reference] = names, references
    by_label = {row["label"]: row for row in frame.rows}
    axes, blocks = _axes_and_blocks(plan.groups)
    points = []
    for group in (group for groups in blocks.values() for group in groups):
        point = dict(by_label[group.reference])
        point |= {key: value_of(plan.case(group.reference), key) for key in axes}
        point |= {
            ("of", plan.name_of(case.label)): by_label[case.label]
            for case in group.cases
        }
        points.append(point)
    above = _same_everywhere(variants, frame.rows, plan)
    if any(row["verdict"] == Verdict.UNCLEAR for row in frame.rows):
        above.append(f"{UNCLEAR}: can't tell")
    above.append("-v: all columns")
    headings: Groups = ()
    if "" not in blocks:
        headings = headings_at_rows(
            (text, len(groups)) for text, groups in blocks.items()
        )
    seconds = column(
        "latency_s",
        0,
        title=title,
        least_width=0,
        text=_seconds_text,
        style=_seconds_style,
    )
    frames = []
    for unit in (f"time vs {title} {CERTAIN}", f"vs {title}"):
        ratios = [
            _ratio_column(name, reference, unit)
            for name in variants
            if name != reference
        ]
        frames.append(
            Frame(
                columns=(*map(axis_column, axes), seconds, *ratios),
                rows=points,
                groups=headings,
                header=[*frame.header, "; ".join(above)],
                summary=frame.summary,
            )
        )
    return tuple(frames)


def _axes_and_blocks(
    groups: Sequence[Group],
) -> tuple[Sequence[str], dict[str, list[Group]]]:
    """The axes that are columns, and points by the values of the others: the axis with
    most values is a column. All axes are where few points would stand below each
    heading, as in a shard.
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


def _same_everywhere(
    variants: Sequence[str], rows: Sequence[Row], plan: Plan
) -> list[str]:
    """`d_ff 3,072 (relu and gelu), 2,048 (swiglu)`: what a variant is at every
    point.
    """
    texts = []
    for key in ("d_ff", "params"):
        names_of: dict[int, list[str]] = {}
        for name in variants:
            sizes = {row[key] for row in rows if plan.name_of(row["label"]) == name}
            if len(sizes) == 1 and None not in sizes:
                names_of.setdefault(sizes.pop(), []).append(name)
        parts = []
        for size, names in names_of.items():
            part = f"{size:,}"
            if len(names) < len(variants):
                part += f" ({join_words(names)})"
            parts.append(part)
        if parts:
            texts.append(f"{key} {', '.join(parts)}")
    return texts


def _seconds_text(row: Row) -> str | None:
    if row["failure"] or row["verdict"] == Verdict.BUSY:
        return verdict_word(row)
    return None


def _seconds_style(row: Row) -> str:
    return verdict_style(row) if _seconds_text(row) else ""


def _ratio_column(name: str, reference: str, unit: str) -> Column:
    """The ratio and the verdict in one cell; of what has no ratio that holds the word
    that says why.
    """

    def text(point: Row) -> str:
        row = point["of", name]
        word = verdict_word(row) or ""
        ratio = estimate_in(row, "ratio")
        if row["verdict"] == Verdict.UNCLEAR:
            word = UNCLEAR
        if ratio is None:
            return UNKNOWN_CELL if word in ("", UNCLEAR) else word
        number = interval_text(ratio)
        if CERTAIN not in unit:
            number = number.partition(" ")[0]
        return f"{number} {word:<{LONGEST_VERDICT}}"

    def style(point: Row) -> str:
        return verdict_style(point["of", name])

    title = name.removeprefix(reference) if name.startswith(f"{reference}@") else name
    return column(
        "ratio", key=name, title=title, unit=unit, text=text, style=style, least_width=0
    )
