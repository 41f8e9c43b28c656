"""The facts of activations and what their operations cost, as tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ffnbench.activations.facts import Facts
from ffnbench.activations.plan import REFERENCE
from ffnbench.activations.rows import facts_records
from ffnbench.ffn.activations import Activation
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan import Group, typed_as
from ffnbench.report.formats import View, view_of
from ffnbench.report.tables.details import details
from ffnbench.report.tables.groups import placed
from ffnbench.report.tables.lines_below import answer
from ffnbench.report.tables.table import EXTRA, UNKNOWN, Cell, Column, Field, TextTable, table_of_fields, timed_fields
from ffnbench.report.tables.words import FLOPS_OF_ONE, device_text
from ffnbench.result import Report
from ffnbench.units import counted

MOST_PLACES = 4  # of jumps and kinks, in the table
ONLY_BUILT_IN = "facts are known of built-in names, each at its own beta; `plot-activations` draws all"
NOISE = 1e-300  # what is smaller is zero


def facts_view(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> View:
    """The answer of `activations`."""
    return view_of(facts_table(chosen, facts), lambda: facts_records(chosen, facts))


def facts_table(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> TextTable:
    """One row an activation."""
    header = ("Facts of f, found in float64 by autograd; shares and moments are for x ~ N(0, 1)",)
    differs = [f"{label}: {spec.row.torch_differs}" for label, spec in chosen.items() if spec.row.torch_differs]
    rows = [(label, spec.row, facts.get(label)) for label, spec in chosen.items()]
    unknown = ", ".join(label for label in chosen if label not in facts)
    summary = [f"{unknown}: {ONLY_BUILT_IN}"] if unknown else []
    return table_of_fields(_FACTS, rows, header=header, summary=summary, details=(*_DETAILS, *differs))


def _declared(
    title: str, of: Callable[[Activation], str], priority: int, unit: str = "", *, left: bool = False,
    flexible: bool = False,
) -> Field:  # fmt: skip
    """A column of what the table, or the user, says of an activation."""
    column = Column(title=title, unit=unit, priority=priority, left=left, flexible=flexible)
    return column, lambda row: Cell(text=of(row[1]))


def _fact(title: str, of: Callable[[Facts], str], priority: int, unit: str = "", *, left: bool = False) -> Field:
    """A column of what is known of an activation."""
    column = Column(title=title, unit=unit, priority=priority, left=left)
    return column, lambda row: Cell(text=UNKNOWN if row[2] is None else of(row[2]))


def _named(title: str, of: Callable[[Activation], str | None]) -> Field:
    return _declared(title, lambda row: of(row) or UNKNOWN, EXTRA, left=True, flexible=True)


def _minimum(f: Facts) -> str:
    if f.minimum is None:
        return UNKNOWN
    return _plain(f.minimum) if f.minimum == round(f.minimum) else _ten_digits(f.minimum)


def _ten_digits(value: float) -> str:
    return f"{value:.10f}" if value == 0 or 0.001 <= abs(value) < 1e6 else f"{value:.9e}"


def _place(f: Facts) -> str:
    if f.minimum is None:
        return UNKNOWN
    if not f.minimum_flat:
        return _ten_digits(f.minimum_at or 0.0)
    match f.minimum_at, f.minimum_until:
        case None, None:
            return "all x"
        case None, end:
            return f"x <= {end:g}"
        case start, None:
            return f"x >= {start:g}"
        case start, end:
            return f"[{start:g}, {end:g}]"


def _interval(f: Facts) -> str:
    low, high = "[" if f.low_reached else "(", "]" if f.high_reached else ")"
    return f"{low}{_bound(f.low, '-inf')}, {_bound(f.high, 'inf')}{high}"


def _bound(value: float | None, infinite: str) -> str:
    return infinite if value is None else _plain(value)


def _smoothness(f: Facts) -> str:
    said = [
        f"{what} at {_places(places)}"
        for what, places in (("f jumps", f.jumps), ("kink", f.kinks), ("f'' jumps", f.bends))
        if places
    ]
    return ", ".join(said) or "yes"


def _places(places: tuple[float, ...]) -> str:
    """The first few, from zero on where there are many."""
    shown = sorted(sorted(places, key=abs)[:MOST_PLACES])
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return ", ".join(f"{x:g}" for x in shown) + more


def _plain(value: float) -> str:
    """Four decimals, or four digits of what is smaller or larger than they show; whole numbers as they are."""
    if value == round(value) and abs(value) < 1e6:
        return f"{value + 0.0:.0f}"
    if abs(value) < NOISE:
        return "0"
    text = f"{value:.4f}" if 0.001 <= abs(value) < 1e6 else f"{value:.4g}"
    return text.removesuffix(".0000")


def _share(value: float) -> str:
    return "0" if value < 1e-12 else f"{100 * value:.2f}" if value >= 5e-5 else "<0.01"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


_FACTS: list[Field] = [
    (Column(title="activation", left=True), lambda row: Cell(text=row[0])),
    _declared("formula", lambda row: row.formula or UNKNOWN, 1, left=True, flexible=True),
    _fact("minimum", lambda f: _minimum(f), 1),
    _fact("at x", lambda f: _place(f), 1),
    _fact("range", lambda f: _interval(f), 2, left=True),
    _fact("monotonic", lambda f: f.monotonic, 4, left=True),
    _fact("smooth", lambda f: _smoothness(f), 3, left=True),
    _fact("range of f'", lambda f: f"{_bound(f.slope_low, '-inf')} to {_bound(f.slope_high, 'inf')}", 5, left=True),
    _fact("f' = 0", lambda f: _share(f.zero_gradient), 5, "%"),
    _fact("|f'|<.01", lambda f: _share(f.saturated), 6, "%"),
    _fact("mean", lambda f: _plain(f.mean), 7, "f(x)"),
    _fact("2nd moment", lambda f: _plain(f.second_moment), 7, "f(x)²"),
    _declared("FLOPs", lambda row: _count(row.flops), 8, "fwd"),
    _declared("FLOPs", lambda row: _count(row.flops_backward), 8, "bwd"),
    _named("torch", lambda row: row.names.torch),
    _named("HF", lambda row: row.names.hf),
    _named("timm", lambda row: row.names.timm),
    _named("TE", lambda row: row.names.te),
    _named("source", lambda row: row.source),
]
_DETAILS = (
    "range: [ ] includes the bound, ( ) does not",
    FLOPS_OF_ONE,
    "kinks and jumps are looked for within [-40, 40]",
)


def timing_table(report: Report) -> TextTable:
    """Seconds of each operation, the ratio to relu's and the verdict, group by group."""
    groups = report.plan.groups
    rows = [case for group in groups for case in group.cases]
    table = table_of_fields(
        [
            (Column(title="activation", left=True), lambda case: Cell(text=case.variant, value=case.label)),
            *timed_fields(report, lambda case: case.label, REFERENCE),
        ],
        rows,
        header=[f"the operation itself, {device_text(rows[0].workload)}"],
        summary=answer(report, groups[:1]),
        details=details(report),
    )
    return replace(table, headings=placed((_heading(group), len(group.cases)) for group in groups))


def _heading(group: Group) -> str:
    """`forward, 65,536 elements, float32`."""
    case = group.cases[0]
    assert isinstance(case.ffn, ActivationSpec)
    more = [f"{key} {typed_as(value)}" for key, value in case.point if key not in ("mode", "elements", "dtype")]
    return ", ".join((case.workload.mode, counted(case.ffn.elements, "element"), case.workload.dtype, *more))
