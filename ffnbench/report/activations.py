"""The facts of activations and what their operations cost, as records and as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ffnbench.activations.facts import Facts
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.planning.activations import Block
from ffnbench.report.footnotes import Footnotes
from ffnbench.report.table import EXTRA, UNKNOWN, Cell, Column, Table
from ffnbench.report.words import ratio_text, seconds_text
from ffnbench.result import Comparison, Estimate, Failure, Verdict
from ffnbench.units import TIME, percent, scale

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
    "kinks and jumps are looked for within [-40, 40]",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was found of a block, by label of the run."""

    block: Block
    estimates: dict[str, Estimate]
    comparisons: dict[str, Comparison]
    rounds: dict[str, int]
    failures: dict[str, Failure]
    notes: dict[str, list[str]]

    def said(self, label: str) -> list[str]:
        """Everything that a reader of this number should know."""
        failure = self.failures.get(label)
        return ([failure.message] if failure else []) + self.notes.get(label, [])


def timing_records(answers: list[Answer]) -> list[Record]:
    """One flat record for each activation, size, dtype and direction; seconds in full precision."""
    records = []
    for answer in answers:
        block = answer.block
        for label, name in zip(block.labels, block.names, strict=True):
            estimate, comparison = answer.estimates.get(label), answer.comparisons.get(label)
            failure, ratio = answer.failures.get(label), comparison.ratio if comparison else None
            records.append(
                {
                    "activation": name, "mode": block.mode, "dtype": block.dtype, "elements": block.elements,
                    "latency_s": estimate and estimate.value, "latency_low_s": estimate and estimate.low,
                    "latency_high_s": estimate and estimate.high, "ratio": ratio and ratio.value,
                    "ratio_low": ratio and ratio.low, "ratio_high": ratio and ratio.high,
                    "verdict": comparison.verdict.value if comparison else None,
                    "workers": estimate and estimate.workers,
                    "failure": f"{failure.kind.value}: {failure.message}" if failure else None,
                    "rounds": estimate and answer.rounds.get(label),
                    "notes": "; ".join(answer.notes.get(label, [])) or None,
                }
            )  # fmt: skip
    return records


def timing_table(forward: Answer, backward: Answer, header: tuple[str, ...], closing: tuple[str, ...] = ()) -> Table:
    """One size and dtype: seconds of the operation and the ratio to relu, forward and backward."""
    notes = Footnotes()
    marks = [notes.marks(_both(forward.said(f), backward.said(b))) for f, b in _pairs(forward, backward)]
    columns = [Column(title="activation", left=True)]
    cells = [[Cell(text=name + mark)] for name, mark in zip(forward.block.names, marks, strict=True)]
    for title, priority, answer in (("forward", 0, forward), ("backward", 1, backward)):
        name, size = scale([e.value for e in answer.estimates.values()], TIME)
        columns += [
            Column(title=title, unit=name, priority=priority),
            Column(title="vs relu", unit="ratio [95%]", priority=priority),
        ]
        for row, label in zip(cells, answer.block.labels, strict=True):
            row.append(Cell(text=_seconds(answer, label, size)))
            row.append(Cell(text=_ratio(answer.comparisons.get(label))))
    return Table(
        columns=tuple(columns),
        rows=tuple(map(tuple, cells)),
        header=header,
        footnotes=notes.lines(),
        summary=(*_order(forward), *_resolution(forward, backward), *closing),
    )


def _pairs(forward: Answer, backward: Answer) -> list[tuple[str, str]]:
    return list(zip(forward.block.labels, backward.block.labels, strict=True))


def _both(forward: list[str], backward: list[str]) -> list[str]:
    """One footnote for what holds in both directions; else the direction stands before it."""
    return [text if text in backward else f"forward: {text}" for text in forward] + [
        f"backward: {text}" for text in backward if text not in forward
    ]


def _seconds(answer: Answer, label: str, size: float) -> str:
    estimate = answer.estimates.get(label)
    if estimate is None:
        return "failed" if label in answer.failures else UNKNOWN
    return seconds_text(estimate, size)


def _ratio(comparison: Comparison | None) -> str:
    return UNKNOWN if comparison is None else ratio_text(comparison.verdict, comparison.ratio)


def _resolution(forward: Answer, backward: Answer) -> tuple[str, ...]:
    """What each direction could have shown."""
    said = []
    for name, answer in (("forward", forward), ("backward", backward)):
        told = [c.resolution for c in answer.comparisons.values() if c.resolution is not None]
        if told:
            said.append(f"{percent(max(told))} {name}")
    return (f"this run resolves differences of {', '.join(said)}",) if said else ()


def _order(forward: Answer) -> tuple[str, ...]:
    """Who is slower and who is not, forward, in one sentence."""
    names = dict(zip(forward.block.labels, forward.block.names, strict=True))
    by: dict[Verdict, list[str]] = {}
    for label, comparison in forward.comparisons.items():
        by.setdefault(comparison.verdict, []).append(names[label])
    words = {Verdict.SLOWER: "slower than relu", Verdict.FASTER: "faster", Verdict.SAME: "the same within 2%"}
    said = [f"{word}: {', '.join(by[v])}" for v, word in words.items() if v in by]
    if Verdict.UNCLEAR in by:
        said.append(f"can't tell (~): {', '.join(by[Verdict.UNCLEAR])}")
    return ("forward, " + "; ".join(said),) if said else ()
