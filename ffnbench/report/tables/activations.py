"""The facts of activations and what their operations cost, as records and as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from ffnbench.activations.facts import Facts
from ffnbench.activations.table import Activation
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.metrics import LATENCY
from ffnbench.plan import Case
from ffnbench.planning.activations import ActivationGroup, groups_of
from ffnbench.report.columns import LATENCY_KEYS, RATIO_KEYS, case_records
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.tables.footnotes import Footnotes, judging_notes
from ffnbench.report.tables.summary import effort, of_the_run, verdicts_text
from ffnbench.report.tables.table import (
    EXTRA,
    UNKNOWN,
    Cell,
    Column,
    Field,
    TextTable,
    latency_cell,
    ratio_cell,
    table_of_fields,
)
from ffnbench.report.tables.words import CERTAIN, INTERVALS
from ffnbench.result import Report, Verdict
from ffnbench.units import TIME, counted, percent, scale

MOST_PLACES = 4  # of jumps and kinks, in the table
NOISE = 1e-300  # what is smaller is zero


def facts_view(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> View:
    """The answer of `activations`."""
    return view_of(facts_table(chosen, facts), lambda: facts_records(chosen, facts))


def facts_records(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> list[Record]:
    """One record an activation, numbers in full precision, None for what is not finite or not reached.

    Flat but for the places of jumps, kinks and bends, which are lists.
    """
    records = []
    for label, spec in chosen.items():
        row, found = spec.row, asdict(facts[label]) | {"smooth": facts[label].smooth}
        records.append(
            {"activation": label, "formula": row.formula or None, "derivative": row.derivative}
            | found
            | {"flops": row.flops, "flops_backward": row.flops_backward}
            | asdict(row.names)
            | {"aliases": ", ".join(row.aliases), "source": row.source or None}
            | {"torch_differs": row.torch_differs or None}
        )
    return records


def facts_table(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> TextTable:
    """One row an activation."""
    header = ("Facts of f, found in float64 by autograd; shares and moments are for x ~ N(0, 1)",)
    differs = [f"{label}: {spec.row.torch_differs}" for label, spec in chosen.items() if spec.row.torch_differs]
    rows = [(label, spec.row, facts[label]) for label, spec in chosen.items()]
    return table_of_fields(_FACTS, rows, header=header, footnotes=lambda: (*_FOOTNOTES, *differs))


def _fact(
    title: str, of: Callable[[Activation, Facts], str], priority: int, unit: str = "", *, left: bool = False,
    flexible: bool = False,
) -> Field:  # fmt: skip
    column = Column(title=title, unit=unit, priority=priority, left=left, flexible=flexible)
    return column, lambda row: Cell(text=of(row[1], row[2]))


def _named(title: str, of: Callable[[Activation], str | None]) -> Field:
    return _fact(title, lambda row, _: of(row) or UNKNOWN, EXTRA, left=True, flexible=True)


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
    _fact("formula", lambda row, _: row.formula or UNKNOWN, 1, left=True, flexible=True),
    _fact("minimum", lambda _, f: _minimum(f), 1),
    _fact("at x", lambda _, f: _place(f), 1),
    _fact("range", lambda _, f: _interval(f), 2, left=True),
    _fact("monotonic", lambda _, f: f.monotonic, 4, left=True),
    _fact("smooth", lambda _, f: _smoothness(f), 3, left=True),
    _fact("range of f'", lambda _, f: f"{_bound(f.slope_low, '-inf')} to {_bound(f.slope_high, 'inf')}", 5, left=True),
    _fact("f' = 0", lambda _, f: _share(f.zero_gradient), 5, "%"),
    _fact("|f'|<.01", lambda _, f: _share(f.saturated), 6, "%"),
    _fact("mean", lambda _, f: _plain(f.mean), 7, "f(x)"),
    _fact("2nd moment", lambda _, f: _plain(f.second_moment), 7, "f(x)²"),
    _fact("FLOPs", lambda row, _: _count(row.flops), 8, "fwd"),
    _fact("FLOPs", lambda row, _: _count(row.flops_backward), 8, "bwd"),
    _named("torch", lambda row: row.names.torch),
    _named("HF", lambda row: row.names.hf),
    _named("timm", lambda row: row.names.timm),
    _named("TE", lambda row: row.names.te),
    _named("source", lambda row: row.source),
]
_FOOTNOTES = (
    "range: a bound in a square bracket is reached, one in a round bracket is approached",
    "FLOPs per element: each + - * / comparison, and each exp log tanh erf, is 1",
    "kinks and jumps are looked for within [-40, 40]",
)
TIMED = ("mode", "dtype", *LATENCY_KEYS, *RATIO_KEYS, "verdict", "workers", "failure", "rounds")  # of the rows


def timing_records(report: Report) -> list[Record]:
    """One flat record for each activation, size, dtype and direction; seconds in full precision."""
    found = []
    for case, row in zip(report.plan.shown, case_records(report, TIMED), strict=True):
        assert isinstance(case.ffn, ActivationSpec)
        first = {"activation": case.variant, "mode": row.pop("mode"), "dtype": row.pop("dtype")}
        notes = "; ".join(_said(report, case)) or None
        found.append(first | {"elements": case.ffn.elements} | row | {"notes": notes})
    return found


def _said(report: Report, case: Case) -> list[str]:
    """What the reader of a number should know, beside why there is none."""
    comparison = report.comparison(case.label)
    reasons = [comparison.reason] if comparison and comparison.reason else []
    return reasons + judging_notes(report, case.label) + [note.text for note in report.notes(case.label)]


def timing_tables(report: Report) -> TextTable:
    """A table for each size and dtype, the last one with what holds for all of the run."""
    tables = [_timing_table(report, group) for group in groups_of(report.plan)]
    last = replace(tables[-1], summary=(*tables[-1].summary, *of_the_run(report)))
    return replace(last, above=tuple(tables[:-1]))


def _timing_table(report: Report, group: ActivationGroup) -> TextTable:
    """Seconds of the operation and the ratio to relu, forward and backward; where room is short, seconds go first."""
    notes = Footnotes()
    fields: list[Field] = [
        (
            Column(title="activation", left=True),
            lambda pair: Cell(text=pair[0].variant + notes.marks(_notes_of_both(report, *pair))),
        )
    ]
    for place, (title, cases) in enumerate((("forward", group.forward), ("backward", group.backward))):
        fields += _direction_fields(report, title, cases, place)
    work = group.forward[0].workload
    threads = f" ({counted(work.threads, 'thread')})" if work.device == "cpu" else ""
    subject = f"The operation itself: {counted(group.elements, 'element')}, {group.dtype}, {work.device}{threads}"
    return table_of_fields(
        fields,
        list(zip(group.forward, group.backward, strict=True)),
        header=(subject, f"{effort(report)}; {INTERVALS}"),
        footnotes=notes.lines,
        summary=(*_order(report, group), *_resolution(report, group)),
    )


def _direction_fields(report: Report, title: str, cases: Sequence[Case], place: int) -> list[Field]:
    estimates = [e.value for case in cases if (e := report.estimate(case.label, LATENCY))]
    name, size = scale(estimates, TIME)
    return [
        (
            Column(title=title, unit=name, priority=2 + place),
            lambda pair: latency_cell(report, pair[place].label, size),
        ),
        (
            Column(title=title, unit=f"vs relu {CERTAIN}", priority=place),
            lambda pair: ratio_cell(report.comparison(pair[place].label)),
        ),
    ]


def _notes_of_both(report: Report, forward: Case, backward: Case) -> list[str]:
    """One footnote for what holds in both directions; else the direction stands before it."""
    ahead, back = (
        ([failure.message] if (failure := report.failure(case.label)) else []) + _said(report, case)
        for case in (forward, backward)
    )
    return [text if text in back else f"forward: {text}" for text in ahead] + [
        f"backward: {text}" for text in back if text not in ahead
    ]


def _resolution(report: Report, group: ActivationGroup) -> tuple[str, ...]:
    """What each direction could have shown."""
    said = []
    for name, cases in (("forward", group.forward), ("backward", group.backward)):
        found = [c.resolution for case in cases if (c := report.comparison(case.label)) and c.resolution is not None]
        said += [f"{percent(max(found))} {name}"] if found else []
    return (f"this run resolves differences of {', '.join(said)}",) if said else ()


def _order(report: Report, group: ActivationGroup) -> tuple[str, ...]:
    """Who is slower and who is not, forward, in one sentence."""
    names: dict[Verdict, list[str]] = {}
    for case in group.forward:
        if comparison := report.comparison(case.label):
            names.setdefault(comparison.verdict, []).append(case.variant)
    said = verdicts_text(names)
    return (f"forward, against relu, {said}",) if said else ()
