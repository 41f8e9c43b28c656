"""The answer of `train`: what each variant has learnt, beside what a step and a token take."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.units import IEC, SI, TIME, counted, digits, quantity
from ffnbench.extras.train.losses import (
    CITED,
    SAME_NATS,
    Learnt,
    at_an_end_of_rates,
    front_of,
    learnt,
    pairs_of_losses,
    resolves,
    runs_of,
)
from ffnbench.extras.train.plan import OF, STEP, TOKEN, Training, trained_by
from ffnbench.metrics import LATENCY
from ffnbench.plan import group_suffix
from ffnbench.report.frame import EXTRA, OF_NUMBER, OF_RATIO, UNKNOWN, Column, Frame, Row, estimate_in, in_row
from ffnbench.report.header import MATCHED
from ffnbench.report.sentences import general_line, machine_line
from ffnbench.report.words import BUSY, CERTAIN, INTERVALS, VERDICTS, device_text, interval_text, listed, seconds_text
from ffnbench.result import CONFIDENCE, Estimate, Report, Verdict
from ffnbench.stats.interval import Mean

MARK = "*"
NATS = "nats/byte"
SCOPE = "a probe: a small model, trained for a short time"
ENDS = "", "_low", "_high"  # of a name in a record: the value, and the interval of it
OF_DIFFERENCE = 23  # what `-0.064 [-0.079, -0.050]` takes
LEARNS = VERDICTS | {Verdict.FASTER: "better", Verdict.SLOWER: "worse"}
WORDS = {Verdict.FASTER: "better", Verdict.SAME: "as good", Verdict.SLOWER: "worse", Verdict.UNCLEAR: "can't tell"}
STYLES = {"better": "green", "worse": "red", "can't tell": "yellow"}


def training_of(report: Report) -> Training:
    """How all were trained, but for rates and seeds."""
    return next(filter(None, map(trained_by, report.plan.shown)))


def training_records(report: Report) -> list[Row]:
    """One flat record a variant: losses and their differences in nats per byte, seconds in full precision. Seconds of a
    run are its steps by the reference's step and the paired ratio, with the interval of that.
    """
    found, runs, training = learnt(report), runs_of(report.plan), training_of(report)
    fronts = {of: front_of(report, found, of) for of in (STEP, TOKEN)}
    reference = report.estimate(timed_label(report.plan.name_of(report.plan.reference), STEP), LATENCY)
    seconds_of_run = training.steps * reference.value if reference else 0.0
    records = []
    for name, one in found.items():
        case = runs[name][0]
        cost = report.cost(case.label)
        record: Row = {
            "variant": name, "d_ff": case.ffn.d_ff, "params": cost.params, "lr": one.rate,
            "seeds": len(one.losses), **in_row("loss", estimate_of(one.loss)),
            **in_row("difference", estimate_of(one.difference)),
            "verdict": LEARNS[one.verdict] if one.loss else None,
        }  # fmt: skip
        for of in (STEP, TOKEN):
            label = timed_label(name, of)
            seconds, comparison = report.estimate(label, LATENCY), report.comparison(label)
            ratio = comparison.ratio if comparison and comparison.verdict is not Verdict.BUSY else None
            record |= in_row(f"{of}_s", seconds) | in_row(f"{of}_ratio", ratio)
            record[f"{of}_verdict"] = comparison and comparison.verdict
            record[f"pareto_front_{of}"] = name in fronts[of] if one.loss and seconds else None
        for end in ENDS:
            ratio = record[f"step_ratio{end}"]
            record[f"training{end}_s"] = ratio and seconds_of_run * ratio
        tokens = training.steps * case.workload.tokens
        record["tokens_per_s"] = record["training_s"] and tokens / record["training_s"]
        flops = None if cost.flops_forward is None or cost.flops_backward is None else (
            tokens * (cost.flops_forward + cost.flops_backward))  # fmt: skip
        losses = " ".join(f"{seed}:{loss:.6f}" for seed, loss in sorted(one.losses.items()))
        records.append(record | {"training_flops": flops, "losses": losses or None,
                                 "failure": "; ".join(_failed(report, name, one)) or None})  # fmt: skip
    return records


def timed_label(name: str, of: str) -> str:
    """The label of a variant in a timed cell."""
    return name + group_suffix({OF: of})


def estimate_of(mean: Mean | None) -> Estimate | None:
    """A mean over seeds with its interval."""
    if mean is None:
        return None
    low, high = mean.interval(CONFIDENCE) or (None, None)
    return Estimate(value=mean.mean, low=low, high=high)


def _failed(report: Report, name: str, one: Learnt) -> list[str]:
    """Why a variant has no loss, or no time."""
    timed = [failure.message for of in (STEP, TOKEN) if (failure := report.failure(timed_label(name, of)))]
    return list(dict.fromkeys((*one.failed, *timed)))


def training_frame(report: Report) -> Frame:
    """One row a variant. A mark stands at the Pareto front of loss and the time of a step."""
    rows, found = training_records(report), learnt(report)
    difference = replace(COLUMNS["difference"], title=f"loss - {report.plan.name_of(report.plan.reference)}")
    columns = COLUMNS | {"difference": difference}
    return Frame(
        columns=tuple(columns[key] for key in SHOWN),
        rows=rows,
        header=[_header(report)],
        summary=_summary(report, rows, found),
        details=_details(report, rows),
    )


def _rate(rate: float) -> str:
    """`.003`, which leaves room for more columns than 0.003 does."""
    return f"{rate:g}".removeprefix("0")


def difference_text(difference: Estimate) -> str:
    """`-0.064 [-0.079, -0.050]`."""
    return _nats(difference, "+")


def _loss_text(row: Row) -> str | None:
    loss = estimate_in(row, "loss")
    return _nats(loss, "") if loss else None


def _nats(estimate: Estimate, sign: str) -> str:
    value, low, high = (end is not None and f"{end:{sign}.3f}" for end in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]" if low else str(value)


def _timed(of: str, first: int, second: int) -> tuple[Column, Column]:
    """The time of a step or of a token, and its ratio to the reference's."""

    def text(row: Row) -> str | None:
        return BUSY if row[f"{of}_verdict"] == Verdict.BUSY else None

    def ratio(row: Row) -> str | None:
        reference = row[f"{of}_verdict"] == Verdict.REFERENCE and row[f"{of}_ratio"] is not None
        return "1" if reference else None

    seconds = Column(
        key=f"{of}_s", title=of, units=TIME, interval=seconds_text, text=text, priority=first, takes=OF_NUMBER,
        style=lambda row: "yellow" if text(row) else "",
    )  # fmt: skip
    title = f"{of} time vs ref."
    return seconds, Column(
        key=f"{of}_ratio", title=title, unit=CERTAIN, interval=interval_text, text=ratio, priority=second,
        takes=OF_RATIO,
    )  # fmt: skip


def _verdict(row: Row) -> str:
    return row["verdict"] or ("failed" if row["failure"] else UNKNOWN)


def _style(row: Row) -> str:
    if row["verdict"] is None:
        return "red" if row["failure"] else ""
    return STYLES.get(row["verdict"], "")


SHOWN = (
    "variant", "d_ff", "params", "lr", "loss", "loss_interval", "difference", "verdict", "step_s", "step_ratio",
    "tokens_per_s", "token_s", "token_ratio", "pareto_front_step",
)  # fmt: skip
COLUMNS = {
    column.key: column
    for column in (
        Column(key="variant", left=True),
        Column(key="d_ff", priority=8),
        Column(key="params", priority=5),
        Column(key="lr", priority=2, write=_rate),
        Column(key="loss", unit="nats", priority=1, write="{:.3f}".format),
        Column(key="loss_interval", title="loss", unit=CERTAIN, priority=EXTRA,
               text=_loss_text),
        Column(key="difference", unit=CERTAIN, interval=difference_text, takes=OF_DIFFERENCE),
        Column(key="verdict", title="learns", left=True, text=_verdict, style=_style),
        *_timed(STEP, 3, 1),
        Column(key="tokens_per_s", title="tokens/s", units=SI, priority=5, takes=OF_NUMBER),
        *_timed(TOKEN, 7, 6),
        Column(key="pareto_front_step", title="Pareto front", left=True, priority=4,
               text=lambda row: MARK if row["pareto_front_step"] else ""),
    )
}  # fmt: skip


def _header(report: Report) -> str:
    """What was trained, how long, on what."""
    training, [case, *_] = training_of(report), report.plan.shown
    work, text = case.workload, training.text
    name = text.path or "Python's standard library"
    seeds = {found.seed for case in report.plan.shown if (found := trained_by(case))}
    shape = f"d_model {case.ffn.d_model}, {counted(getattr(case.ffn, 'layers', 1), 'layer')}, {work.dtype}"
    how = f"{training.steps:,} steps of {work.batch} x {work.seq_len} bytes of {name} ({quantity(text.bytes, IEC)})"
    equal = f"; equal {MATCHED.get(report.plan.match, report.plan.match)}" * (report.plan.match != "none")
    return f"{shape}, {device_text(work)}; {how}, {counted(len(seeds), 'seed')}{equal}"


def _summary(report: Report, rows: list[Row], found: dict[str, Learnt]) -> list[str]:
    """Who learns best and by how much, the Pareto front, whether to try other rates, what failed."""
    lines = [_answer(report, rows, found)]
    if front := [row["variant"] for row in rows if row["pareto_front_step"]]:
        lines.append(f"Pareto front of loss and time of a step: {listed(front)}")
    lost = [f"{name}: {'; '.join(why)}" for name, one in found.items() if (why := _failed(report, name, one))]
    lines += [*_edge(report, found), *lost, SCOPE, *general_line(report), *machine_line(report)]
    return list(filter(None, lines))


def _answer(report: Report, rows: list[Row], found: dict[str, Learnt]) -> str:
    """Who learns best and by how much, how the others learn, and what so many seeds can show."""
    reference = report.plan.name_of(report.plan.reference)
    known = {row["variant"]: row for row in rows if row["verdict"]}
    by = {verdict: [name for name in known if found[name].verdict is verdict] for verdict in Verdict}
    pairs = pairs_of_losses(found)
    worse = {name for (name, _), pair in pairs.items() if pair.verdict is Verdict.SLOWER}
    best = [name for name in by[Verdict.FASTER] if name not in worse]
    told = []
    if best:
        by[Verdict.FASTER] = [name for name in by[Verdict.FASTER] if name not in best]
        differences = {name: estimate_in(known[name], "difference") for name in best}
        texts = [f"{name} {difference_text(difference)}" for name, difference in differences.items() if difference]
        told.append(f"best ({NATS} from {reference}): {listed(texts)}")
    told += [f"{word}: {listed(by[verdict])}" for verdict, word in WORDS.items() if by[verdict]]
    if (least := resolves(found)) is not None:
        seeds = max(row["seeds"] for row in rows)
        told.append(f"{counted(seeds, 'seed')} resolve about {digits(least, 2)} {NATS}")
    return "; ".join(told)


def _edge(report: Report, found: dict[str, Learnt]) -> list[str]:
    """A warning of who learns best at an end of the list of rates, and the longer list to try."""
    names, rates = at_an_end_of_rates(report, found)
    if not names:
        return []
    longer = ",".join(f"{rate:.2g}" for rate in rates)
    return [f"warning: the best rate is at an end of the list for {listed(names)}: --lr {longer}"]


def _details(report: Report, rows: list[Row]) -> list[str]:
    text = training_of(report).text
    cited = [
        f"{source}, held-out loss of T5-base: {', '.join(f'{name} {loss:g}' for name, loss in losses.items())}"
        for source, losses in CITED.items()
    ]
    seconds = [
        "{} {} [{}, {}]".format(row["variant"], *(digits(row[f"training{end}_s"]) for end in ENDS))
        for row in rows
        if row["training_low_s"]
    ]
    return [
        f"[ ] of losses are {100 * CONFIDENCE:g}% intervals over seeds, paired; same: within {SAME_NATS} {NATS}",
        f"{INTERVALS}; step: forward and backward of the blocks; token: their forward with one token",
        f"text: {counted(text.files, 'file')}, {text.held_out_bytes:,} bytes held out, sha256 {text.sha256[:12]}",
        *([f"seconds of a run, steps x step time, {CERTAIN} of its ratio: {', '.join(seconds)}"] if seconds else []),
        *cited,
    ]
