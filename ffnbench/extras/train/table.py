"""The answer of `train`: the loss of each variant, and the time of its step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ffnbench.common.units import IEC, SI, TIME, counted, digits, quantity
from ffnbench.extras.train.losses import (
    SAME_NATS,
    VariantLosses,
    at_an_end_of_rates,
    front_of,
    learnt,
    pairs_of_losses,
    resolvable_difference,
    runs_of,
    timed_label,
)
from ffnbench.extras.train.plan import TrainCase, Training, trained_by
from ffnbench.ffn.cost import Cost
from ffnbench.metrics import LATENCY
from ffnbench.report.frame import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    UNKNOWN_CELL,
    Column,
    Frame,
    Row,
    estimate_in,
    in_row,
)
from ffnbench.report.header import MATCHED
from ffnbench.report.sentences import general_line, machine_line
from ffnbench.report.words import (
    BUSY_WORD,
    CERTAIN,
    INTERVALS,
    VERDICTS,
    device_text,
    interval_text,
    join_words,
    seconds_text,
)
from ffnbench.result import CONFIDENCE, Estimate, Report, Verdict
from ffnbench.stats.interval import Mean

FRONT_MARK = "*"
NATS = "nats/byte"
SCOPE = "a probe: a small model, trained for a short time"
# of names in a record: for an estimate's value, and for the two ends of its interval
ESTIMATE_SUFFIXES = "", "_low", "_high"
DIFFERENCE_WIDTH = 23  # characters of `-0.064 [-0.079, -0.050]`
# a verdict on a loss as the table has it, and as the summary does
TABLE_WORDS = VERDICTS | {Verdict.FASTER: "better", Verdict.SLOWER: "worse"}
SUMMARY_WORDS = {
    Verdict.FASTER: "better",
    Verdict.SAME: "as good",
    Verdict.SLOWER: "worse",
    Verdict.UNCLEAR: "can't tell",
}
LOSS_STYLES = {"better": "green", "worse": "red", "can't tell": "yellow"}
COLUMN_ORDER = (
    "variant",
    "d_ff",
    "params",
    "lr",
    "loss",
    "loss_interval",
    "difference",
    "verdict",
    "step_s",
    "step_ratio",
    "tokens_per_s",
    "pareto_front_step",
)


def training_frame(report: Report) -> Frame:
    """A row for each variant; a mark shows which are on the Pareto front of loss and
    the time of a step.
    """
    variants = learnt(report)
    rows = training_records(report)
    reference = report.plan.name_of(report.plan.reference)
    columns = TRAINING_COLUMNS | {
        "difference": replace(
            TRAINING_COLUMNS["difference"], title=f"loss - {reference}"
        )
    }
    return Frame(
        columns=tuple(columns[key] for key in COLUMN_ORDER),
        rows=rows,
        header=[_header_line(report)],
        summary=_summary_lines(report, rows, variants),
        details=_details(report),
    )


# Rows


def training_of(report: Report) -> Training:
    """How the models were trained: the training of any case, which all share but for
    rate and seed.
    """
    for case in report.plan.shown:
        training = trained_by(case)
        if training is not None:
            return training
    raise ValueError("no case of this plan is trained")


def training_records(report: Report) -> list[Row]:
    """A flat record for each variant, losses in nats per byte.

    The seconds of a run are its steps times the seconds of the reference's step times
    the paired ratio, and have the interval of the ratio.
    """
    variants, runs = learnt(report), runs_of(report.plan)
    front = front_of(report, variants)
    steps = training_of(report).steps
    reference_step = report.estimate(
        timed_label(report.plan.name_of(report.plan.reference)), LATENCY
    )
    records = []
    for name, variant in variants.items():
        run = runs[name][0]
        cost = report.cost(run.label)
        record = _record_of_losses(variant, run, cost)
        record |= _record_of_time(report, variant, on_front=name in front)
        for suffix in ESTIMATE_SUFFIXES:
            ratio = record[f"step_ratio{suffix}"]
            record[f"training{suffix}_s"] = None
            if ratio and reference_step:
                record[f"training{suffix}_s"] = ratio * steps * reference_step.value
        tokens = steps * run.workload.tokens
        record["tokens_per_s"] = None
        if record["training_s"]:
            record["tokens_per_s"] = tokens / record["training_s"]
        record["training_flops"] = None
        if cost.flops_forward is not None and cost.flops_backward is not None:
            flops_of_token = cost.flops_forward + cost.flops_backward
            record["training_flops"] = tokens * flops_of_token
        by_seed = [
            f"{seed}:{loss:.6f}" for seed, loss in sorted(variant.losses.items())
        ]
        record["losses"] = " ".join(by_seed) or None
        record["failure"] = "; ".join(_failures(report, variant)) or None
        records.append(record)
    return records


def _record_of_losses(variant: VariantLosses, run: TrainCase, cost: Cost) -> Row:
    return {
        "variant": variant.name,
        "d_ff": run.ffn.d_ff,
        "params": cost.params,
        "lr": variant.rate,
        "seeds": len(variant.losses),
        **in_row("loss", estimate_of(variant.loss)),
        **in_row("difference", estimate_of(variant.difference)),
        "verdict": TABLE_WORDS[variant.verdict] if variant.loss else None,
    }


def _record_of_time(report: Report, variant: VariantLosses, *, on_front: bool) -> Row:
    """The time of a step, its ratio to that of the reference, and whether the variant
    is on the Pareto front.
    """
    label = timed_label(variant.name)
    seconds, comparison = report.estimate(label, LATENCY), report.comparison(label)
    ratio = verdict = None
    if comparison:
        verdict = comparison.verdict
        ratio = None if verdict is Verdict.BUSY else comparison.ratio
    return {
        **in_row("step_s", seconds),
        **in_row("step_ratio", ratio),
        "step_verdict": verdict,
        "pareto_front_step": on_front if variant.loss and seconds else None,
    }


def estimate_of(mean: Mean | None) -> Estimate | None:
    """A mean over seeds with its interval."""
    if mean is None:
        return None
    low, high = mean.interval(CONFIDENCE) or (None, None)
    return Estimate(value=mean.mean, low=low, high=high)


def _failures(report: Report, variant: VariantLosses) -> list[str]:
    """Why a variant has no loss, or no time."""
    failure = report.failure(timed_label(variant.name))
    messages = (*variant.failed, failure.message) if failure else variant.failed
    return list(dict.fromkeys(messages))


# Columns


def _rate_text(rate: float) -> str:
    """`.003`: a shorter number leaves room for another column."""
    return f"{rate:g}".removeprefix("0")


def difference_text(difference: Estimate) -> str:
    """`-0.064 [-0.079, -0.050]`."""
    return _nats_text(difference, "+")


def _loss_text(row: Row) -> str | None:
    loss = estimate_in(row, "loss")
    return _nats_text(loss, "") if loss else None


def _nats_text(estimate: Estimate, sign: str) -> str:
    text = f"{estimate.value:{sign}.3f}"
    if estimate.low is None:
        return text
    return f"{text} [{estimate.low:{sign}.3f}, {estimate.high:{sign}.3f}]"


def _busy_text(row: Row) -> str | None:
    return BUSY_WORD if row["step_verdict"] == Verdict.BUSY else None


def _ratio_of_reference(row: Row) -> str | None:
    """`1` for the reference, whose ratio is exact and has no interval."""
    if row["step_verdict"] == Verdict.REFERENCE and row["step_ratio"] is not None:
        return "1"
    return None


def _verdict_text(row: Row) -> str:
    if row["verdict"]:
        return str(row["verdict"])
    return "failed" if row["failure"] else UNKNOWN_CELL


def _verdict_style(row: Row) -> str:
    if row["verdict"]:
        return LOSS_STYLES.get(row["verdict"], "")
    return "red" if row["failure"] else ""


TRAINING_COLUMNS = {
    column.key: column
    for column in (
        Column(key="variant", left=True),
        Column(key="d_ff", priority=8),
        Column(key="params", priority=5),
        Column(key="lr", priority=2, write=_rate_text),
        Column(key="loss", unit="nats", priority=1, write="{:.3f}".format),
        Column(
            key="loss_interval",
            title="loss",
            unit=CERTAIN,
            priority=EXTRA,
            text=_loss_text,
        ),
        Column(
            key="difference",
            unit=CERTAIN,
            interval=difference_text,
            least_width=DIFFERENCE_WIDTH,
        ),
        Column(
            key="verdict",
            title="learns",
            left=True,
            text=_verdict_text,
            style=_verdict_style,
        ),
        Column(
            key="step_s",
            title="step",
            units=TIME,
            interval=seconds_text,
            text=_busy_text,
            priority=3,
            least_width=NUMBER_WIDTH,
            style=lambda row: "yellow" if _busy_text(row) else "",
        ),
        Column(
            key="step_ratio",
            title="step time vs ref.",
            unit=CERTAIN,
            interval=interval_text,
            text=_ratio_of_reference,
            priority=1,
            least_width=RATIO_WIDTH,
        ),
        Column(
            key="tokens_per_s",
            title="tokens/s",
            units=SI,
            priority=5,
            least_width=NUMBER_WIDTH,
        ),
        Column(
            key="pareto_front_step",
            title="Pareto front",
            left=True,
            priority=4,
            text=lambda row: FRONT_MARK if row["pareto_front_step"] else "",
        ),
    )
}


# Sentences


def _header_line(report: Report) -> str:
    """The model, the device, the steps, the text and the seeds."""
    plan, training = report.plan, training_of(report)
    case = plan.shown[0]
    work, text = case.workload, training.text
    name = text.path or "Python's standard library"
    seeds = {run.recipe.seed for runs in runs_of(plan).values() for run in runs}
    shape = f"d_model {case.ffn.d_model}, {counted(getattr(case.ffn, 'layers', 1), 'layer')}, {work.dtype}"
    steps = f"{training.steps:,} steps of {work.batch} x {work.seq_len} bytes"
    header = (
        f"{shape}, {device_text(work)}; {steps} of {name} ({quantity(text.bytes, IEC)})"
    )
    header += f", {counted(len(seeds), 'seed')}"
    if plan.match != "none":
        header += f"; equal {MATCHED.get(plan.match, plan.match)}"
    return header


def _summary_lines(
    report: Report, rows: list[Row], variants: dict[str, VariantLosses]
) -> list[str]:
    """Say which variants learn best and by how much, which are on the Pareto front,
    whether to try other rates, and what failed.
    """
    lines = [_answer_line(report, rows, variants)]
    front = [row["variant"] for row in rows if row["pareto_front_step"]]
    if front:
        lines.append(f"Pareto front of loss and time of a step: {join_words(front)}")
    names, rates = at_an_end_of_rates(report, variants)
    if names:
        longer = ",".join(f"{rate:.2g}" for rate in rates)
        lines.append(
            f"warning: the best rate is at an end of the list for {join_words(names)}: --lr {longer}"
        )
    for variant in variants.values():
        failures = _failures(report, variant)
        if failures:
            lines.append(f"{variant.name}: {'; '.join(failures)}")
    lines += [SCOPE, *general_line(report), *machine_line(report)]
    return [line for line in lines if line]


def _answer_line(
    report: Report, rows: list[Row], variants: dict[str, VariantLosses]
) -> str:
    """Say which variants learn best and by how much, how the others learn, and which
    difference so many seeds can show.

    The best are those of the better ones that learn worse than no other variant.
    """
    by_verdict: dict[Verdict, list[str]] = defaultdict(list)
    for row in rows:
        if row["verdict"]:
            by_verdict[variants[row["variant"]].verdict].append(row["variant"])
    worse_than_some = {
        name
        for (name, _), pair in pairs_of_losses(variants).items()
        if pair.verdict is Verdict.SLOWER
    }
    better = by_verdict[Verdict.FASTER]
    best = [name for name in better if name not in worse_than_some]
    parts = []
    if best:
        by_verdict[Verdict.FASTER] = [name for name in better if name not in best]
        reference = report.plan.name_of(report.plan.reference)
        texts = []
        for name in best:
            difference = estimate_of(variants[name].difference)
            if difference:
                texts.append(f"{name} {difference_text(difference)}")
        parts.append(f"best ({NATS} from {reference}): {join_words(texts)}")
    for verdict, word in SUMMARY_WORDS.items():
        if by_verdict[verdict]:
            parts.append(f"{word}: {join_words(by_verdict[verdict])}")
    smallest = resolvable_difference(variants)
    if smallest is not None:
        seeds = max(row["seeds"] for row in rows)
        parts.append(
            f"{counted(seeds, 'seed')} resolve about {digits(smallest, 2)} {NATS}"
        )
    return "; ".join(parts)


def _details(report: Report) -> list[str]:
    text = training_of(report).text
    return [
        f"[ ] of losses are {100 * CONFIDENCE:g}% intervals over seeds, paired; same: within {SAME_NATS} {NATS}",
        f"{INTERVALS}; step: forward and backward of the blocks",
        f"text: {counted(text.files, 'file')}, {text.held_out_bytes:,} bytes held out, sha256 {text.sha256[:12]}",
    ]
