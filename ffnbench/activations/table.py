"""The facts of activations: rows, columns, sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from ffnbench.activations.facts import Facts
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.table import EXTRA, Column, Row, Table

MOST_PLACES = 4  # of jumps or kinks, in a cell of the table
ONLY_BUILT_IN = "facts are known of built-in names at their default beta; `plot-activations` draws all"
FACT_KEYS = (*(field.name for field in fields(Facts) if field.name != "dead"), "smooth")
SMALL, LARGE = 0.001, 1e6  # between these a number has a fixed number of decimals
ZERO_VALUE, ZERO_SHARE = 1e-300, 1e-12  # what is smaller is zero but for rounding
SMALLEST_SHARE = 5e-5  # a smaller one is 0.00 in percent with two decimals
NAMES = {"torch": "torch", "hf": "HF", "timm": "timm", "te": "TE", "source": "source"}
FLOPS_OF_ONE = (
    "FLOPs per element: each + - * / comparison, and each exp log tanh erf, is 1"
)
DETAILS = (
    "range: [ ] includes the bound, ( ) does not",
    FLOPS_OF_ONE,
    "kinks and jumps are looked for within [-40, 40]",
)


# How they read


def small_share_text(share: float) -> str:
    """`12.34`, in a column whose unit is percent; `<0.01` for smaller shares, and `0`
    for one that is zero but for rounding.
    """
    if share < ZERO_SHARE:
        return "0"
    return f"{100 * share:.2f}" if share >= SMALLEST_SHARE else "<0.01"


def rounded_text(value: float) -> str:
    """A number with four decimals, or with four digits where it is too small or large
    for these; a whole number as it is.
    """
    if value == round(value) and abs(value) < LARGE:
        return f"{value + 0.0:.0f}"
    if abs(value) < ZERO_VALUE:
        return "0"
    text = f"{value:.4f}" if SMALL <= abs(value) < LARGE else f"{value:.4g}"
    return text.removesuffix(".0000")


FACT_COLUMNS = (
    Column("activation", left=True),
    Column("formula", priority=1, left=True, prose=True),
    Column("minimum", priority=1, read=rounded_text),
    Column("place", "at x", priority=1),
    Column("range", priority=2, left=True),
    Column("monotonic", priority=4, left=True),
    Column("smooth", priority=3, left=True),
    Column("slopes", "range of f'", priority=5, left=True),
    Column("zero_gradient", "f' = 0", "%", priority=5, read=small_share_text),
    Column("saturated", "|f'|<.01", "%", priority=6, read=small_share_text),
    Column("mean", "mean", "f(x)", priority=7, read=rounded_text),
    Column("second_moment", "2nd moment", "f(x)²", priority=7, read=rounded_text),
    Column("flops", "FLOPs", "fwd", priority=8, read=str),
    Column("flops_backward", "FLOPs", "bwd", priority=8, read=str),
    *(
        Column(key, title, priority=EXTRA, left=True, prose=True)
        for key, title in NAMES.items()
    ),
)

# Facts


def facts_records(
    chosen: dict[str, ActivationSpec], facts: dict[str, Facts]
) -> list[Row]:
    """One record for each activation, numbers in full precision; None for what is not
    finite, not reached or not known. Jumps, kinks and bends are lists of places.
    """
    records = []
    for label, spec in chosen.items():
        row, facts_of_row = spec.row, facts.get(label)
        record: Row = {
            "activation": label,
            "formula": row.formula or None,
            "derivative": row.derivative,
            **{name: getattr(facts_of_row, name, None) for name in FACT_KEYS},
            "flops": spec.flops,
            "flops_backward": spec.flops_backward,
            **asdict(row.names),
            "aliases": ", ".join(row.aliases),
            "source": row.source or None,
            "torch_differs": row.torch_differs or None,
        }
        records.append(record)
    return records


def facts_table(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> Table:
    """One row for each activation; below them which have no facts."""
    rows = facts_records(chosen, facts)
    differs = [
        f"{row['activation']}: {row['torch_differs']}"
        for row in rows
        if row["torch_differs"]
    ]
    unknown = ", ".join(label for label in chosen if label not in facts)
    return Table(
        columns=FACT_COLUMNS,
        rows=[_in_words(row) for row in rows],
        saved=rows,
        header=[
            "Facts of f, found in float64 by autograd; shares and moments are for x ~ N(0, 1)"
        ],
        summary=[f"{unknown}: {ONLY_BUILT_IN}"] if unknown else [],
        details=[*DETAILS, *differs],
    )


def _in_words(row: Row) -> Row:
    """A record with the cells that a table has in words; without them where no facts
    are known.
    """
    row = row | {name: row[name] or None for name in NAMES}
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
    """Where the minimum is, at a point or on an interval; None where there is none."""
    if row["minimum"] is None:
        return None
    start, end = row["minimum_at"], row["minimum_until"]
    if not row["minimum_flat"]:
        return rounded_text(start or 0.0)
    match start, end:
        case None, None:
            return "all x"
        case None, _:
            return f"x <= {end:g}"
        case _, None:
            return f"x >= {start:g}"
    return f"[{start:g}, {end:g}]"


def _places(places: Sequence[float]) -> str:
    """The places in ascending order; of more than MOST_PLACES those nearest to zero."""
    shown = sorted(sorted(places, key=abs)[:MOST_PLACES])
    text = ", ".join(f"{x:g}" for x in shown)
    more = len(places) - len(shown)
    if more:
        text += f" and {more} more"
    return text


def _bound(value: float | None, infinite: str) -> str:
    """A bound in digits; `infinite` where there is none."""
    return infinite if value is None else rounded_text(value)
