"""The answer of `train`: what each variant has learnt, beside what a step and a token take."""

from __future__ import annotations

from typing import Any

from ffnbench.metrics import LATENCY
from ffnbench.plan import Case
from ffnbench.planning.training import STEP, TOKEN
from ffnbench.report.records import Record
from ffnbench.report.tables.details import MATCHED
from ffnbench.report.tables.lines_below import general_line, machine_line
from ffnbench.report.tables.table import (
    EXTRA,
    OF_NUMBER,
    OF_RATIO,
    UNKNOWN,
    Cell,
    Column,
    Field,
    TextTable,
    count_field,
    known,
    latency_cell,
    ratio_cell,
    table_of_fields,
)
from ffnbench.report.tables.words import CERTAIN, INTERVALS, device_text, listed
from ffnbench.result import Estimate, Report
from ffnbench.stats.interval import CONFIDENCE, Mean
from ffnbench.stats.training import (
    CITED,
    SAME_NATS,
    Learns,
    Learnt,
    agreement,
    learnt,
    of_cell,
    pairs_of_losses,
    resolves,
    unbeaten,
)
from ffnbench.training.text import Training
from ffnbench.units import IEC, TIME, counted, digits, quantity, scale

MARK = "*"
NATS = "nats/byte"
WORDS = {Learns.BETTER: "better than", Learns.SAME: "as well as", Learns.WORSE: "worse than"}
STYLES = {Learns.BETTER: "green", Learns.WORSE: "red", Learns.UNCLEAR: "yellow"}


def training_of(report: Report) -> Training:
    """How all were trained, but for rates and seeds."""
    return next(case.training for case in report.plan.shown if case.training)


def training_records(report: Report) -> list[Record]:
    """One flat record a variant: losses and their differences in nats per byte, seconds in full precision."""
    found = learnt(report)
    steps, tokens, training = of_cell(report.plan, STEP), of_cell(report.plan, TOKEN), training_of(report)
    best = {of: unbeaten(report, found, of) for of in (STEP, TOKEN)}
    records = []
    for name, one in found.items():
        cost = report.cost(steps[name].label)
        record: Record = {
            "variant": name, "d_ff": steps[name].ffn.d_ff, "params": cost.params, "lr": one.rate,
            "seeds": len(one.losses), **_ends("loss", one.loss), **_ends("difference", one.difference),
            "verdict": one.verdict.value if one.loss else None,
        }  # fmt: skip
        for of, cases in ((STEP, steps), (TOKEN, tokens)):
            label = cases[name].label
            seconds, comparison = report.estimate(label, LATENCY), report.comparison(label)
            record |= {**_ends(f"{of}_s", seconds), **_ends(f"{of}_ratio", comparison.ratio if comparison else None)}
            record[f"{of}_verdict"] = comparison and comparison.verdict.value
            record[f"unbeaten_{of}"] = name in best[of] if one.loss and seconds else None
        work = steps[name].workload
        flops = None if cost.flops_forward is None or cost.flops_backward is None else (
            training.steps * work.tokens * (cost.flops_forward + cost.flops_backward))  # fmt: skip
        losses = " ".join(f"{seed}:{loss:.6f}" for seed, loss in sorted(one.losses.items()))
        records.append(record | {"training_flops": flops, "losses": losses or None,
                                 "failure": "; ".join(_failed(report, name, one)) or None})  # fmt: skip
    return records


def _ends(name: str, found: Mean | Estimate | None) -> Record:
    """A value and its interval, under three names."""
    unit = "_s" * name.endswith("_s")
    names = (name, *(f"{name.removesuffix(unit)}_{end}{unit}" for end in ("low", "high")))
    if isinstance(found, Mean):
        interval = found.interval(CONFIDENCE)
        values: tuple[Any, ...] = (found.mean, *(interval or (None, None)))
    else:
        values = (found.value, found.low, found.high) if found else (None, None, None)
    return dict(zip(names, values, strict=True))


def _failed(report: Report, name: str, one: Learnt) -> list[str]:
    """Why a variant has no loss, or no time."""
    labels = [cases[name].label for cases in (of_cell(report.plan, STEP), of_cell(report.plan, TOKEN))]
    timed = [failure.message for label in labels if (failure := report.failure(label))]
    return list(dict.fromkeys((*one.failed, *timed)))


def training_table(report: Report) -> TextTable:
    """One row a variant. A mark stands at what no other variant beats on both loss and the time of a step."""
    rows, found = training_records(report), learnt(report)
    steps, tokens = of_cell(report.plan, STEP), of_cell(report.plan, TOKEN)
    reference = report.plan.name_of(report.plan.reference)
    fields: list[Field] = [
        (Column(title="variant", left=True), lambda row: Cell(text=row["variant"], value=row["variant"])),
        count_field("d_ff", "d_ff", 5),
        count_field("params", "params", 4),
        (Column(title="loss", unit=NATS, key="loss", priority=1), lambda row: known(row["loss"], "{:.3f}".format)),
        (Column(title="loss", unit=CERTAIN, priority=EXTRA), lambda row: _nats(row, "loss")),
        (Column(title=f"loss - {reference}", unit=CERTAIN, key="difference"), lambda row: _nats(row, "difference")),
        (Column(title="learns", left=True, key="verdict"), lambda row: _verdict(row, found)),
        *_timed(report, rows, "step", 2, 1, steps),
        *_timed(report, rows, "token", 4, 3, tokens),
        (Column(title="best of both", left=True, priority=3, key="unbeaten_step"), _marked),
    ]
    if len({row["lr"] for row in rows if row["lr"]}) > 1:
        fields.insert(3, (Column(title="lr", priority=3, key="lr"), lambda row: known(row["lr"], "{:g}".format)))
    return table_of_fields(
        fields, rows, header=[_header(report)], summary=_summary(report, found), details=_details(report, found)
    )


def _timed(report: Report, rows: list[Record], of: str, first: int, second: int, cases: dict[str, Case]) -> list[Field]:
    """The time of a step or of a token, and its ratio to the reference's."""
    unit, size = scale([row[f"{of}_s"] for row in rows if row[f"{of}_s"]] or [1.0], TIME)

    def label(row: Record) -> str:
        return cases[row["variant"]].label

    return [
        (Column(title=of, unit=unit, priority=first, key=f"{of}_s", takes=OF_NUMBER),
         lambda row: latency_cell(report, label(row), size)),
        (Column(title=f"{of} time vs ref.", unit=CERTAIN, priority=second, key=f"{of}_ratio", takes=OF_RATIO),
         lambda row: ratio_cell(report, label(row))),
    ]  # fmt: skip


def _nats(row: Record, key: str) -> Cell:
    """`1.869 [1.862, 1.876]`, of a difference with its sign."""
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value is None:
        return Cell(text=UNKNOWN)
    sign = "+" if key == "difference" else ""
    text = f"{value:{sign}.3f}" + (f" [{low:{sign}.3f}, {high:{sign}.3f}]" if low is not None else "")
    return Cell(text=text, value=value)


def _verdict(row: Record, found: dict[str, Learnt]) -> Cell:
    if row["verdict"] is None:
        return Cell(text="failed" if row["failure"] else "-", style="red" if row["failure"] else "")
    return Cell(text=row["verdict"], value=row["verdict"], style=STYLES.get(found[row["variant"]].verdict, ""))


def _marked(row: Record) -> Cell:
    return Cell(text=MARK if row["unbeaten_step"] else "", value=row["unbeaten_step"])


def _header(report: Report) -> str:
    """What was trained, how long, on what."""
    training, [case, *_] = training_of(report), report.plan.shown
    work, text = case.workload, training.text
    name = text.path or "Python's standard library"
    seeds = {case.training.seed for case in report.plan.shown if case.training}
    shape = f"d_model {case.ffn.d_model}, {counted(getattr(case.ffn, 'layers', 1), 'layer')}, {work.dtype}"
    how = f"{training.steps:,} steps of {work.batch} x {work.seq_len} bytes of {name} ({quantity(text.bytes, IEC)})"
    equal = f"; equal {MATCHED.get(report.plan.match, report.plan.match)}" * (report.plan.match != "none")
    return f"{shape}, {device_text(work)}; {how}, {counted(len(seeds), 'seed')}{equal}"


def _summary(report: Report, found: dict[str, Learnt]) -> list[str]:
    """What it can tell, what it says, what failed, and how far it goes."""
    lines = []
    seeds = max(len(one.losses) for one in found.values())
    if (least := resolves(found)) is not None:
        lines.append(f"{counted(seeds, 'seed')} resolve about {digits(least, 2)} {NATS}")
    by = {verdict: [name for name, one in found.items() if one.verdict is verdict and one.loss] for verdict in Learns}
    reference = report.plan.name_of(report.plan.reference)
    told = [
        f"{listed(by[verdict])} learn{'s' * (len(by[verdict]) == 1)} {word} {reference}"
        for verdict, word in WORDS.items() if by[verdict]
    ]  # fmt: skip
    told += [f"can't tell for {listed(by[Learns.UNCLEAR])}"] * bool(by[Learns.UNCLEAR] and seeds > 1)
    pairs, known = pairs_of_losses(found), [name for name, one in found.items() if one.loss]
    first = [
        name for name in known if all(pairs.get((name, other)) is not Learns.WORSE for other in known if other != name)
    ]
    told += [f"none learns better than {listed(first)}"] * (len(known) > 2 and 0 < len(first) < len(known))
    best = unbeaten(report, found, STEP)
    told += [f"no other beats {listed(best)} on both loss and time of a step"] * (0 < len(best) < len(known))
    lines.append("; ".join(told))
    lost = [f"{name}: {'; '.join(why)}" for name, one in found.items() if (why := _failed(report, name, one))]
    return [*filter(None, lines), *lost, _scope(found), *general_line(report), *machine_line(report)]


def _scope(found: dict[str, Learnt]) -> str:
    """That it is a probe, and what others report of much larger models."""
    agrees = [f"{source} {value:+.1f} of {count} forms" for source, (value, count) in agreement(found).items()]
    with_others = f"; rank correlation with T5-base: {', '.join(agrees)}" if agrees else ""
    return f"a probe: a small model, trained for a short time{with_others}"


def _details(report: Report, found: dict[str, Learnt]) -> list[str]:
    text = training_of(report).text
    cited = [
        f"{source}, held-out loss of T5-base: {', '.join(f'{name} {loss:g}' for name, loss in losses.items())}"
        for source, losses in CITED.items()
    ]
    curves = {name: one.curve[-1][2] for name, one in found.items() if one.curve}
    return [
        f"[ ] of losses are {100 * CONFIDENCE:g}% intervals over seeds, paired; same: within {SAME_NATS} {NATS}",
        f"{INTERVALS}; step: forward and backward of the blocks; token: their forward with one token",
        f"text: {counted(text.files, 'file')}, {text.held_out_bytes:,} bytes held out, sha256 {text.sha256[:12]}",
        *([f"seconds of a run: {', '.join(f'{name} {s:.0f}' for name, s in curves.items())}"] if curves else []),
        *cited,
    ]
