"""The facts of activations and what their operations cost, as records and as tables."""

from __future__ import annotations

from typing import Any

from ffnbench.ffn.facts import Facts
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.estimates import ratio_text, seconds_text
from ffnbench.report.footnotes import Footnotes
from ffnbench.report.table import EXTRA, UNKNOWN, Cell, Column, Table
from ffnbench.result import Comparison, Estimate, Failure, Verdict
from ffnbench.selection import Block
from ffnbench.units import TIME, scale

Record = dict[str, Any]
MOST_PLACES = 4  # of jumps and kinks, in the table
NOISE = 1e-300  # what is smaller is zero


def facts_records(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> list[Record]:
    """One record an activation, numbers in full precision, None for what is not finite or not reached.

    Flat but for the places of jumps, kinks and bends, which are lists.
    """
    from dataclasses import asdict

    records = []
    for label, spec in chosen.items():
        row, found = spec.row, asdict(facts[label]) | {"smooth": facts[label].smooth}
        records.append(
            {"activation": label, "formula": row.formula or None, "derivative": row.derivative}
            | found
            | {"flops": row.flops, "flops_backward": row.flops_backward}
            | asdict(row.names)
            | {"aliases": ", ".join(row.aliases), "source": row.source or None}
        )
    return records


def facts_table(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> Table:
    """The same for people."""
    columns = (
        Column(title="activation", left=True),
        Column(title="formula", left=True, flexible=True, priority=1),
        Column(title="minimum", priority=1),
        Column(title="at x", priority=1),
        Column(title="range", left=True, priority=2),
        Column(title="monotonic", left=True, priority=4),
        Column(title="smooth", left=True, priority=3),
        Column(title="range of f'", left=True, priority=5),
        Column(title="f' = 0", unit="%", priority=5),
        Column(title="|f'|<.01", unit="%", priority=6),
        Column(title="mean", unit="f(x)", priority=7),
        Column(title="2nd moment", unit="f(x)²", priority=7),
        Column(title="FLOPs", unit="fwd", priority=8),
        Column(title="FLOPs", unit="bwd", priority=8),
        *(Column(title=title, left=True, flexible=True, priority=EXTRA) for title in ("torch", "HF", "timm", "TE")),
        Column(title="source", left=True, flexible=True, priority=EXTRA),
    )
    rows = tuple(
        tuple(Cell(text=text) for text in _facts_row(label, spec, facts[label])) for label, spec in chosen.items()
    )
    header = ("Facts of f, found in float64 by autograd; shares and moments are for x ~ N(0, 1)",)
    return Table(columns=columns, rows=rows, header=header, footnotes=_FOOTNOTES)


_FOOTNOTES = (
    "range: a bound in a square bracket is reached, one in a round bracket is approached",
    "FLOPs per element: each + - * / comparison, and each exp log tanh erf, is 1",
)


def _facts_row(label: str, spec: ActivationSpec, f: Facts) -> tuple[str, ...]:
    row = spec.row
    return (
        label,
        row.formula or UNKNOWN,
        _minimum(f),
        _place(f),
        _interval(f),
        f.monotonic,
        _smoothness(f),
        f"{_bound(f.slope_low, '-inf')} to {_bound(f.slope_high, 'inf')}",
        _share(f.zero_gradient),
        _share(f.saturated),
        _plain(f.mean),
        _plain(f.second_moment),
        _count(row.flops),
        _count(row.flops_backward),
        *(name or UNKNOWN for name in (row.names.torch, row.names.hf, row.names.timm, row.names.te)),
        row.source or UNKNOWN,
    )


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


Answer = tuple[dict[str, Estimate], dict[str, Comparison]]  # by label of the run


def timing_records(blocks: tuple[Block, ...], answers: list[Answer], failures: tuple[Failure, ...]) -> list[Record]:
    """One flat record for each activation, size, dtype and direction; seconds in full precision."""
    failed = {failure.case: f"{failure.kind.value}: {failure.message}" for failure in failures}
    records = []
    for block, (estimates, comparisons) in zip(blocks, answers, strict=True):
        for label, name in zip(block.labels, block.names, strict=True):
            estimate, comparison = estimates.get(label), comparisons.get(label)
            ratio = comparison.ratio if comparison else None
            records.append(
                {
                    "activation": name, "mode": block.mode, "dtype": block.dtype, "elements": block.elements,
                    "latency_s": estimate and estimate.value, "latency_low_s": estimate and estimate.low,
                    "latency_high_s": estimate and estimate.high, "ratio": ratio and ratio.value,
                    "ratio_low": ratio and ratio.low, "ratio_high": ratio and ratio.high,
                    "verdict": comparison.verdict.value if comparison else None,
                    "workers": estimate and estimate.workers, "failure": failed.get(label),
                }
            )  # fmt: skip
    return records


def timing_table(
    forward: tuple[Block, Answer],
    backward: tuple[Block, Answer],
    failures: tuple[Failure, ...],
    header: tuple[str, ...],
) -> Table:
    """One size and dtype: seconds of the operation and the ratio to relu, forward and backward."""
    failed = {failure.case: failure.message for failure in failures}
    notes = Footnotes()
    marks = [
        notes.marks([failed[label] for label in labels if label in failed])
        for labels in zip(forward[0].labels, backward[0].labels, strict=True)
    ]
    columns = [Column(title="activation", left=True)]
    cells = [[Cell(text=name + mark)] for name, mark in zip(forward[0].names, marks, strict=True)]
    for title, priority, (block, (estimates, comparisons)) in (("forward", 0, forward), ("backward", 1, backward)):
        name, size = scale([e.value for e in estimates.values()], TIME)
        columns += [
            Column(title=title, unit=name, priority=priority),
            Column(title="vs relu", unit="ratio [95%]", priority=priority),
        ]
        for row, label in zip(cells, block.labels, strict=True):
            row.append(Cell(text=_seconds(estimates.get(label), size)))
            row.append(Cell(text=_ratio(comparisons.get(label))))
    return Table(
        columns=tuple(columns),
        rows=tuple(map(tuple, cells)),
        header=header,
        footnotes=notes.lines(),
        summary=_order(forward),
    )


def _seconds(estimate: Estimate | None, size: float) -> str:
    if estimate is None:
        return "failed"
    return seconds_text(estimate, size)


def _ratio(comparison: Comparison | None) -> str:
    return UNKNOWN if comparison is None else ratio_text(comparison.verdict, comparison.ratio)


def _order(forward: tuple[Block, Answer]) -> tuple[str, ...]:
    """Who is slower and who is not, forward, in one sentence."""
    names = dict(zip(forward[0].labels, forward[0].names, strict=True))
    by: dict[Verdict, list[str]] = {}
    for label, comparison in forward[1][1].items():
        by.setdefault(comparison.verdict, []).append(names[label])
    words = {Verdict.SLOWER: "slower than relu", Verdict.FASTER: "faster", Verdict.SAME: "the same within 2%"}
    said = [f"{word}: {', '.join(by[v])}" for v, word in words.items() if v in by]
    if Verdict.UNCLEAR in by:
        said.append(f"can't tell (~): {', '.join(by[Verdict.UNCLEAR])}")
    return ("forward, " + "; ".join(said),) if said else ()
