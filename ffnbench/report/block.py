"""The answer of `block`: parameters matrix by matrix, FLOPs and bytes by length, and what was measured beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ffnbench.blockplan import Length, lengths_of
from ffnbench.ffn.attention_cost import overtakes_at
from ffnbench.plan import LATENCY, PEAK, Case
from ffnbench.report.blockparts import integer, parts_table
from ffnbench.report.blockrecords import ffn_share, ratio_of, records, spec_of
from ffnbench.report.estimates import ratio_text, seconds_text
from ffnbench.report.footnotes import Footnotes, case_notes
from ffnbench.report.listing import Record
from ffnbench.report.summary import INTERVALS, effort, ended_early
from ffnbench.report.table import EXTRA, STYLES, UNKNOWN, Cell, Column, Table
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.units import IEC, SI, TIME, digits, scale

PASSES = {"forward": "forward", "train": "forward and backward", "backward": "backward"}  # in words, by mode


def block_tables(report: Report) -> Table:
    """What was measured, or else counted by length; above it what can be counted without measuring."""
    lengths = list(lengths_of(report.plan))
    tables = [parts_table(report, lengths[0]), counted_table(report, lengths)]
    if report.environment is not None:
        tables.append(measured_table(report, lengths))
    notes = (note.text for note in report.plan.notes if not note.label)
    last = replace(tables[-1], footnotes=(*tables[-1].footnotes, *notes))
    return replace(last, above=tuple(tables[:-1]))


def counted_table(report: Report, lengths: Sequence[Length]) -> Table:
    """FLOPs of a token and bytes of keys and values, one row a length; where attention overtakes."""
    rows = records(report)

    flops = scale([row[key] for row in rows for key in ("flops_ffn", "flops_attention") if row[key]], SI)
    total, of_token = (scale([row[key] for row in rows], IEC) for key in ("kv_bytes", "kv_bytes_per_token"))

    def number(
        key: str, title: str, priority: int, unit: tuple[str, float], per: str = ""
    ) -> tuple[Column, Callable[[Record], Cell]]:
        name, size = unit

        def cell(row: Record) -> Cell:
            return Cell(text=UNKNOWN if row[key] is None else digits(row[key] / size), value=row[key])

        return Column(title=title, unit=name + per, priority=priority), cell

    fields: list[tuple[Column, Callable[[Record], Cell]]] = [
        (Column(title="seq_len"), lambda row: integer(row["seq_len"])),
        number("flops_ffn", "FFN", 1, flops, "/tok"),
        number("flops_attention", "attention", 1, flops, "/tok"),
        number("flops_projections", "projections", 4, flops, "/tok"),
        number("flops_scores", "scores", 5, flops, "/tok"),
        number("flops_values", "values", 6, flops, "/tok"),
        (Column(title="FFN's share", unit="of FLOPs"), lambda row: _percent(row["ffn_share_flops"])),
        number("kv_bytes", "KV", 3, total),
        number("flops_softmax", "softmax", EXTRA, flops, "/tok"),
        number("kv_bytes_per_token", "KV", EXTRA, of_token, "/tok"),
    ]
    share = rows[0]["ffn_share_params"]
    return Table(
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(row) for _, cell in fields) for row in rows),
        header=(f"FLOPs of a token, {PASSES[rows[0]['mode']]}; KV: keys and values of {_sequences(rows[0]['batch'])}",),
        summary=(f"the FFN has {100 * share:.1f}% of the parameters", crossover(report, lengths[0])),
    )


def _sequences(batch: int) -> str:
    return f"{batch} sequences" if batch > 1 else "one sequence"


def _percent(value: float | None) -> Cell:
    return Cell(text=UNKNOWN if value is None else f"{100 * value:.1f}%", value=value)


def crossover(report: Report, length: Length) -> str:
    """Where attention's FLOPs overtake the FFN's, by the closed forms."""
    spec = spec_of(length)
    at = overtakes_at(spec, report.cost(length.ffn.label).flops_forward)
    counts = "a causal token counts what it sees" if spec.causal else "every token sees all others"
    if at is None:
        return "the FFN's FLOPs are not known, so neither is where attention overtakes"
    if at == 1:
        return f"attention needs more FLOPs than the FFN at every length ({counts})"
    return f"in FLOPs attention overtakes the FFN at {at:,} tokens ({counts})"


def measured_table(report: Report, lengths: Sequence[Length]) -> Table:
    """Latencies, their ratios to the FFN's and the FFN's share, one row a length."""
    notes = Footnotes()
    with_textbook = any(length.textbook for length in lengths)
    fields = [
        field for field in _measured_fields(report, notes) if with_textbook or not field[0].title.startswith("textb")
    ]
    rows = tuple(tuple(cell(length) for _, cell in fields) for length in lengths)
    general = tuple(note.text for note in report.warnings if not note.label)
    early = ended_early(report.samples) if report.interrupted or report.stopped else ()
    return Table(
        columns=tuple(column for column, _ in fields),
        rows=rows,
        header=(f"measured: {effort(report)}; {INTERVALS}",),
        footnotes=notes.lines(),
        summary=(*overtaken(report, lengths), *general, *early),
    )


def _measured_fields(report: Report, notes: Footnotes) -> list[tuple[Column, Callable[[Length], Cell]]]:
    cases = report.plan.shown
    time, second = scale([e.value for c in cases if (e := report.estimate(c.label, LATENCY))], TIME)
    unit, byte = scale([e.value for c in cases if (e := report.estimate(c.label, PEAK))], IEC)

    def latency(case: Case | None) -> Cell:
        return _latency(report, case, second, notes)

    def peak(case: Case | None) -> Cell:
        estimate = report.estimate(case.label, PEAK) if case else None
        return Cell(text=UNKNOWN if estimate is None else digits(estimate.value / byte))

    return [
        (Column(title="seq_len"), lambda length: integer(length.seq_len)),
        (Column(title="FFN", unit=time, priority=1), lambda length: latency(length.ffn)),
        (Column(title="attention", unit=time, priority=1), lambda length: latency(length.attention)),
        (Column(title="attention", unit="vs FFN [95%]", priority=4), lambda length: _ratio(report, length.attention)),
        (
            Column(title="FFN's share", unit="of latency"),
            lambda length: _share(ffn_share(ratio_of(report, length.attention.label))),
        ),
        (Column(title="textbook", unit=time, priority=3), lambda length: latency(length.textbook)),
        (Column(title="textbook", unit="vs FFN [95%]", priority=6), lambda length: _ratio(report, length.textbook)),
        (Column(title="FFN peak", unit=unit, priority=7), lambda length: peak(length.ffn)),
        (Column(title="attn. peak", unit=unit, priority=7), lambda length: peak(length.attention)),
        (Column(title="textb. peak", unit=unit, priority=7), lambda length: peak(length.textbook)),
    ]


def _latency(report: Report, case: Case | None, size: float, notes: Footnotes) -> Cell:
    if case is None:
        return Cell(text=UNKNOWN)
    mark = notes.marks(case_notes(report, case.label))
    failure, estimate = report.failure(case.label), report.estimate(case.label, LATENCY)
    if failure:
        return Cell(text=failure.kind.value + mark, style="red")
    if estimate is None:
        return Cell(text=UNKNOWN + mark)
    return Cell(text=seconds_text(estimate, size) + mark, value=estimate.value)


def _ratio(report: Report, case: Case | None) -> Cell:
    comparison = report.comparison(case.label) if case else None
    if comparison is None:
        return Cell(text=UNKNOWN)
    value, style = comparison.ratio and comparison.ratio.value, STYLES.get(comparison.verdict.value, "")
    return Cell(text=ratio_text(comparison.verdict, comparison.ratio), value=value, style=style)


def _share(share: Estimate | None) -> Cell:
    """`80.1% [79.8, 80.4]`, with one decimal at most."""
    if share is None or share.low is None or share.high is None:
        return Cell(text=UNKNOWN)
    places = 1 if share.high - share.low < 0.02 else 0
    value, low, high = (f"{100 * number:.{places}f}" for number in (share.value, share.low, share.high))
    return Cell(text=f"{value}% [{low}, {high}]", value=share.value)


def overtaken(report: Report, lengths: Sequence[Length]) -> tuple[str, ...]:
    """Between which lengths attention becomes the slower one, as far as the intervals tell."""
    found = {length.seq_len: report.comparison(length.attention.label) for length in lengths}
    faster = [tokens for tokens, c in found.items() if c and c.verdict is Verdict.FASTER]
    slower = [tokens for tokens, c in found.items() if c and c.verdict is Verdict.SLOWER]
    if slower and faster and max(faster) < min(slower):
        return (f"measured, attention overtakes the FFN between {max(faster):,} and {min(slower):,} tokens",)
    if faster and not slower:
        return (f"measured, attention takes less time than the FFN up to {max(faster):,} tokens",)
    if slower and not faster:
        return (f"measured, attention takes more time than the FFN from {min(slower):,} tokens on",)
    return ()
