"""The facts of activations, and what their operations cost: rows, columns,
sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from ffnbench.activations.facts import Facts
from ffnbench.activations.plan import REFERENCE
from ffnbench.common.units import counted
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan import Group, typed_as
from ffnbench.report.columns import (
    LATENCY_KEYS,
    RATIO_KEYS,
    case_rows,
    column,
    rounded_text,
    ten_digits,
    timed_columns,
)
from ffnbench.report.formats import View
from ffnbench.report.frame import Frame, Row
from ffnbench.report.header import headings_at_rows
from ffnbench.report.notes import case_notes, details
from ffnbench.report.sentences import answer_sentences
from ffnbench.report.words import FLOPS_OF_ONE, device_text
from ffnbench.result import Report

MOST_PLACES = 4  # of jumps and kinks, in the table
ONLY_BUILT_IN = "facts are known of built-in names, each at its own beta; `plot-activations` draws all"
FACT_KEYS = (*(field.name for field in fields(Facts) if field.name != "dead"), "smooth")
ACTIVATION = column("activation", 0)
# of one element
BACKWARD = column("flops_backward", 8, title="FLOPs", unit="bwd", units=None, write=str)
FACTS = (
    "formula",
    "minimum",
    "place",
    "range",
    "monotonic",
    "smooth",
    "slopes",
    "zero_gradient",
    "saturated",
    "mean",
    "second_moment",
    "flops",
)
NAME_COLUMNS = ("torch", "hf", "timm", "te", "source")
TIMING_COLUMNS = (
    "activation",
    "mode",
    "dtype",
    "elements",
    *LATENCY_KEYS,
    *RATIO_KEYS,
    "verdict",
    "workers",
    "failure",
    "rounds",
    "notes",
)
DETAILS = (
    "range: [ ] includes the bound, ( ) does not",
    FLOPS_OF_ONE,
    "kinks and jumps are looked for within [-40, 40]",
)


# Facts


def facts_records(
    chosen: dict[str, ActivationSpec], facts: dict[str, Facts]
) -> list[Row]:
    """One record an activation, numbers in full precision, None for what is not finite,
    not reached or not known.

    Flat but for the places of jumps, kinks and bends, which are lists.
    """
    records = []
    for label, spec in chosen.items():
        row, facts_of_row = spec.row, facts.get(label)
        record: Row = {
            "activation": label,
            "formula": row.formula or None,
            "derivative": row.derivative,
        }
        record |= {name: getattr(facts_of_row, name, None) for name in FACT_KEYS}
        record |= {
            "flops": row.flops,
            "flops_backward": row.flops_backward,
            **asdict(row.names),
        }
        record |= {"aliases": ", ".join(row.aliases), "source": row.source or None}
        records.append(record | {"torch_differs": row.torch_differs or None})
    return records


def facts_view(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> View:
    """The answer of `activations`."""
    return View(frame=lambda: facts_frame(chosen, facts), title="activations")


def facts_frame(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> Frame:
    """One row an activation."""
    rows = facts_records(chosen, facts)
    differs = [
        f"{row['activation']}: {row['torch_differs']}"
        for row in rows
        if row["torch_differs"]
    ]
    unknown = ", ".join(label for label in chosen if label not in facts)
    return Frame(
        columns=(ACTIVATION, *map(column, FACTS), BACKWARD, *map(column, NAME_COLUMNS)),
        rows=[_in_words(row) for row in rows],
        saved=rows,
        header=[
            "Facts of f, found in float64 by autograd; shares and moments are for x ~ N(0, 1)"
        ],
        summary=[f"{unknown}: {ONLY_BUILT_IN}"] if unknown else [],
        details=[*DETAILS, *differs],
    )


def _in_words(row: Row) -> Row:
    """What a table says of a row in words; nothing of an activation whose facts are not
    known.
    """
    row = row | {name: row[name] or None for name in NAME_COLUMNS}
    if row["monotonic"] is None:
        return row
    low = "[" if row["low_reached"] else "("
    high = "]" if row["high_reached"] else ")"
    words = {"jumps": "f jumps", "kinks": "kink", "bends": "f'' jumps"}
    breaks = [
        f"{word} at {_places(row[key])}" for key, word in words.items() if row[key]
    ]
    lowest, highest = _bound(row["low"], "-inf"), _bound(row["high"], "inf")
    flattest = _bound(row["slope_low"], "-inf")
    steepest = _bound(row["slope_high"], "inf")
    return row | {
        "place": _place(row),
        "range": f"{low}{lowest}, {highest}{high}",
        "slopes": f"{flattest} to {steepest}",
        "smooth": ", ".join(breaks) or "yes",
    }


def _place(row: Row) -> str | None:
    """Where the minimum is: at a point, or on an interval."""
    if row["minimum"] is None:
        return None
    start, end = row["minimum_at"], row["minimum_until"]
    if not row["minimum_flat"]:
        return ten_digits(start or 0.0)
    if start is None:
        return "all x" if end is None else f"x <= {end:g}"
    return f"x >= {start:g}" if end is None else f"[{start:g}, {end:g}]"


def _places(places: Sequence[float]) -> str:
    """The first few, from zero on where there are many."""
    shown = sorted(sorted(places, key=abs)[:MOST_PLACES])
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return ", ".join(f"{x:g}" for x in shown) + more


def _bound(value: float | None, infinite: str) -> str:
    return infinite if value is None else rounded_text(value)


# Operations


def timing_rows(report: Report) -> list[Row]:
    """One row for each activation, size, dtype and direction."""
    rows = []
    for case, row in zip(report.plan.shown, case_rows(report), strict=True):
        assert isinstance(case.ffn, ActivationSpec)
        notes = "; ".join(case_notes(report, case.label)) or None
        rows.append(
            row
            | {
                "activation": case.variant,
                "elements": case.ffn.elements,
                "notes": notes,
            }
        )
    return rows


def timing_frame(report: Report) -> Frame:
    """Seconds of each operation, the ratio to relu's and the verdict, group by
    group.
    """
    groups = report.plan.groups
    by_label = {row["label"]: row for row in timing_rows(report)}
    return Frame(
        columns=(ACTIVATION, *timed_columns(report, REFERENCE)),
        rows=[by_label[case.label] for group in groups for case in group.cases],
        saved=list(by_label.values()),
        header=[f"the operation itself, {device_text(groups[0].cases[0].workload)}"],
        summary=answer_sentences(report, groups[:1]),
        details=details(report),
        groups=headings_at_rows(
            (_heading(group), len(group.cases)) for group in groups
        ),
        exported=TIMING_COLUMNS,
    )


def _heading(group: Group) -> str:
    """`forward, 65,536 elements, float32`."""
    case = group.cases[0]
    assert isinstance(case.ffn, ActivationSpec)
    more = [
        f"{key} {typed_as(value)}"
        for key, value in case.point
        if key not in ("mode", "elements", "dtype")
    ]
    return ", ".join(
        (
            case.workload.mode,
            counted(case.ffn.elements, "element"),
            case.workload.dtype,
            *more,
        )
    )
