"""The columns of the core's answers: how each is headed and written, and what a case of
a report has of it.

CSV, JSON lists and data frames have those of a case in this order, in base units; what
is not known is None. A new column is one row at the end of OF_CASES, and its name in
the question that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from operator import attrgetter
from typing import Any

from ffnbench.common.units import (
    GIGA,
    IEC,
    SI,
    TIME,
    digits,
    percent,
)
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HOST_TIME,
    LARGEST_ERROR,
    LATENCY,
    PACK,
    PEAK,
    RATE,
    SAVED,
)
from ffnbench.plan import Case, needed_by
from ffnbench.report.frame import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    VERDICT_WIDTH,
    Column,
    Row,
    estimate_in,
    in_row,
    interval_keys,
)
from ffnbench.report.header import CONDITIONS, Condition
from ffnbench.report.words import (
    BUSY_WORD,
    CERTAIN,
    change_text,
    error_text,
    interval_text,
    seconds_text,
    share_text,
    sizing_text,
    verdict_style,
    verdict_word,
)
from ffnbench.result import Estimate, Report, Verdict

TOKEN = "/tok"
SHARE_WIDTH = 18  # letters, as NUMBER_WIDTH
FRONT = "*"  # marks the rows on the Pareto front
SMALL, LARGE = 0.001, 1e6  # between these a number has a fixed number of decimals
ZERO_VALUE, ZERO_SHARE = 1e-300, 1e-12  # what is smaller is zero but for rounding
SMALLEST_SHARE = 5e-5  # a smaller one is 0.00 in percent with two decimals


class Unknown:
    """Stands for an object that is not known: each of its attributes is None."""

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> None:
        return None


NOTHING_KNOWN: Any = Unknown()


class CaseFacts:
    """All that the columns of one case are read from, NOTHING_KNOWN where there is
    none; `waited` is the mean share of its time that it waited for a CPU.
    """

    def __init__(self, report: Report, case: Case, waited: float | None) -> None:
        label = case.label
        self.report, self.case, self.label, self.waited = report, case, label, waited
        self.work, self.ffn, self.cost = case.workload, case.ffn, report.cost(label)
        self.form = case.ffn if isinstance(case.ffn, FFNSpec) else NOTHING_KNOWN
        self.experts = self.form.moe or NOTHING_KNOWN
        self.counts = NOTHING_KNOWN if self.cost.failed else self.cost
        self.needed = needed_by(case, self.cost)
        self.latency = report.estimate(label, LATENCY) or NOTHING_KNOWN
        self.comparison = report.comparison(label) or NOTHING_KNOWN
        self.inputs = report.inputs_of(label) or NOTHING_KNOWN
        # how many are clean, and how many were made
        self.rounds: Any = report.figures.rounds.get(label, (None, None))


def _value(metric: str) -> Callable[[CaseFacts], float | None]:
    return lambda facts: facts.report.value(facts.label, metric)


def _count(metric: str) -> Callable[[CaseFacts], int | None]:
    def count(facts: CaseFacts) -> int | None:
        value = facts.report.value(facts.label, metric)
        return None if value is None else int(value)

    return count


def _estimate(metric: str) -> Callable[[CaseFacts], Estimate | None]:
    return lambda facts: facts.report.estimate(facts.label, metric)


def _d_ff(facts: CaseFacts) -> int | None:
    """The width; None where that of the module is not the one that was planned."""
    if facts.cost.width_note:
        return None
    return getattr(facts.ffn, "d_ff", None)


def _gated(facts: CaseFacts) -> bool | None:
    if facts.form is NOTHING_KNOWN:
        return None
    return facts.form.gate is not Gate.NONE


def _macs(facts: CaseFacts) -> int | None:
    flops = facts.cost.flops_forward
    return None if flops is None else flops // 2


def _flops_timed(facts: CaseFacts) -> int | None:
    """FLOPs for a token in the passes that the mode runs."""
    flops = facts.needed.flops
    return None if flops is None else flops // facts.work.tokens


def _per_second(amount: str) -> Callable[[CaseFacts], float | None]:
    amount_of = attrgetter(amount)

    def rate(facts: CaseFacts) -> float | None:
        done = amount_of(facts)
        return done / facts.latency.value if facts.latency and done else None

    return rate


def _on_front(facts: CaseFacts) -> bool | None:
    """Whether it is on the Pareto front of time and error in its group; None where the
    group has no front.
    """
    for trade_off in facts.report.figures.trade_offs:
        if trade_off.reference == facts.report.plan.reference_of(facts.label):
            return facts.label in trade_off.front
    return None


def _total_bytes(facts: CaseFacts) -> int | None:
    """The bytes of weights and the peak of activations together; in training the peak
    contains the gradients.
    """
    peak = _count(PEAK)(facts)
    if peak is None:
        return None
    return (_count(HELD)(facts) or facts.cost.weight_bytes) + peak


def _failure(facts: CaseFacts) -> str | None:
    failure = facts.report.failure(facts.label)
    return f"{failure.kind}: {failure.message}" if failure else None


def latency_text(row: Row) -> str | None:
    """The word for a busy row, which stands in place of its latency; else None."""
    return BUSY_WORD if verdict_word(row) == BUSY_WORD else None


def ratio_text(row: Row) -> str | None:
    """`1` for a reference, in place of its ratio; else None."""
    if row["verdict"] == Verdict.REFERENCE and row["ratio"] is not None:
        return "1"
    return None


def _spread_text(row: Row) -> str | None:
    latency = estimate_in(row, "latency_s")
    half = latency.half_width if latency else None
    return None if half is None else percent(half)


def in_percent(share: float) -> str:
    """`12.3`, in a column whose unit is percent."""
    return f"{100 * share:.1f}"


def with_percent_sign(share: float) -> str:
    """`12.3%`."""
    return f"{100 * share:.1f}%"


def in_giga(value: float) -> str:
    """A value as a number of 10^9, in a column whose unit has the prefix giga."""
    return digits(value / GIGA)


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


def exact_text(value: float) -> str:
    """A number with ten decimals; a whole number as it is."""
    if value == round(value):
        return rounded_text(value)
    return ten_digits(value)


def ten_digits(value: float) -> str:
    """`-0.2784645428`: ten decimals, or ten digits of what is too small or large."""
    if value == 0 or SMALL <= abs(value) < LARGE:
        return f"{value:.10f}"
    return f"{value:.9e}"


def _condition(condition: Condition) -> Callable[[CaseFacts], str | int | bool | None]:
    return lambda facts: condition.of(facts.work)


def of_case(
    key: str, value_of: str | Callable[[Any], Any], title: str = "", **how: Any
) -> Column:
    """A column of cases; `value_of` is a function of CaseFacts, or the name of one of
    its attributes.
    """
    if isinstance(value_of, str):
        value_of = attrgetter(value_of)
    return Column(key=key, value_of=value_of, title=title, **how)


# fmt: off
OF_CASES = (
    of_case("label", "label", "variant", left=True),
    of_case("variant", "case.variant"),
    of_case("d_model", "ffn.d_model", write=str, priority=2),
    of_case("d_ff", _d_ff, priority=2),
    of_case("activation", "form.activation", left=True, priority=EXTRA),
    of_case("gated", _gated),
    of_case("gate", "form.gate", left=True, priority=EXTRA),
    of_case("bias", "form.bias"),
    of_case("dtype", "work.dtype", priority=2),
    of_case("device", "work.device", priority=2),
    of_case("mode", "work.mode", priority=2),
    of_case("backend", "work.backend"),
    of_case("batch", "work.batch", write=str, priority=2),
    of_case("seq_len", "work.seq_len", write=str, priority=2),
    of_case("threads", "work.threads", write=str, priority=2),
    of_case("params", "counts.params", priority=1),
    of_case("params_active", "counts.params_active", "active", priority=1),
    of_case("flops_forward", "cost.flops_forward", "FLOPs fwd", units=SI, unit=TOKEN, priority=EXTRA),
    of_case("flops_backward", "cost.flops_backward", "FLOPs bwd", units=SI, unit=TOKEN, priority=EXTRA),
    of_case("flops_elementwise", "cost.flops_elementwise", "elem.-wise", units=SI, unit=TOKEN, priority=EXTRA),
    of_case("latency_s", "latency", "latency", units=TIME, interval=seconds_text, text=latency_text,
            style=lambda row: "yellow" if latency_text(row) else "", priority=1, least_width=NUMBER_WIDTH, aliases=("time",)),
    of_case("ratio", "comparison.ratio", unit=CERTAIN, interval=interval_text, text=ratio_text, least_width=RATIO_WIDTH),
    of_case("verdict", "comparison.verdict", left=True, text=verdict_word, style=verdict_style, least_width=VERDICT_WIDTH),
    of_case("tokens_per_s", _per_second("work.tokens"), "tokens", units=SI, unit="/s", priority=7, least_width=NUMBER_WIDTH),
    of_case(PEAK, _count(PEAK), "peak", units=IEC, priority=4, aliases=("act. peak",)),
    of_case(SAVED, _count(SAVED), "saved", units=IEC, priority=5, least_width=NUMBER_WIDTH),
    of_case("weight_bytes", "counts.weight_bytes", "weights", units=IEC, priority=EXTRA, aliases=("weights",)),
    of_case("workers", "latency.workers"),
    of_case("rounds", lambda facts: facts.report.rounds(facts.label) if facts.latency else None),
    of_case("failure", _failure, left=True, text=lambda row: verdict_word(row) or "", style=lambda row: "red"),
    of_case("flops_elementwise_backward", "cost.flops_elementwise_backward", "elem. bwd", units=SI, unit=TOKEN,
            priority=EXTRA),
    of_case("macs_forward", _macs, aliases=("macs",)),
    of_case("params_formula", "cost.params_formula", "closed form", left=True, priority=EXTRA),
    of_case("beta", "form.beta"),
    of_case("dropout", "form.dropout"),
    of_case("init", "form.init"),
    of_case("sizing", lambda facts: sizing_text(facts.case.sizing), "d_ff from", left=True, priority=EXTRA),
    of_case("residual", "case.residual"),
    of_case("counted", "cost.counted"),
    of_case("zero_share", _value("zero_share"), "zeros", unit="%", write=in_percent, priority=3),
    of_case("dead_share", _value("dead_share"), "dead", unit="%", write=in_percent, priority=3),
    of_case("slowdown", "work.slowdown"),
    of_case("limit", "form.limit"),
    of_case("up_offset", "form.up_offset"),
    of_case("experts", "experts.experts"),
    of_case("top_k", "experts.top_k"),
    of_case("shared_d_ff", "experts.shared_d_ff"),
    of_case("dispatch", "experts.dispatch"),
    of_case("routing", "work.routing"),
    of_case("expert_load_max", _value("expert_load_max")),
    of_case("experts_hit", _value("experts_hit")),
    of_case("weight_bytes_touched", "cost.weight_bytes_touched", "touched", units=IEC, priority=2),
    of_case(COMPILE, _estimate(COMPILE), "compile", unit="s", interval=seconds_text, priority=3,
            least_width=NUMBER_WIDTH),
    of_case("clean_rounds", lambda facts: facts.rounds[0]),
    of_case("made_rounds", lambda facts: facts.rounds[1]),
    of_case("waited_share", "waited"),
    of_case("flops_per_s", _per_second("needed.flops"), "GFLOP/s", write=in_giga, priority=6, least_width=NUMBER_WIDTH,
            aliases=("gflops",)),
    of_case("bytes_per_s", _per_second("needed.bytes"), "GB/s", write=in_giga, priority=7, least_width=NUMBER_WIDTH),
    of_case("compile_mode", lambda facts: facts.work.compile if facts.work.compiled else None),
    of_case("freeze", lambda facts: facts.work.freeze if facts.work.compiled else None),
    of_case(PACK, _estimate(PACK), "pack", unit="s", interval=seconds_text, priority=3, least_width=NUMBER_WIDTH),
    of_case(HELD, _count(HELD), "weights", units=IEC, priority=4, least_width=NUMBER_WIDTH),
    of_case(ERROR, _value(ERROR), write=error_text, priority=2),
    of_case(GRADIENT_ERROR, _value(GRADIENT_ERROR), "gradient error", write=error_text, priority=4),
    of_case("inputs", "inputs.count"),
    of_case("input_bytes", "inputs.bytes"),
    of_case("flops_timed", _flops_timed, "FLOPs", units=SI, unit=TOKEN, priority=5, aliases=("flops",)),
    of_case("total_bytes", _total_bytes, "total", units=IEC, priority=6, least_width=NUMBER_WIDTH, aliases=("memory",)),
    *(of_case(each.key, _condition(each), each.column, priority=2) for each in CONDITIONS),
    of_case(DEVICE_TIME, _estimate(DEVICE_TIME), "device", units=TIME, interval=seconds_text, priority=4,
            least_width=NUMBER_WIDTH),
    of_case(HOST_TIME, _estimate(HOST_TIME), "host", units=TIME, interval=seconds_text, priority=4, least_width=NUMBER_WIDTH),
    of_case("launch_bound", lambda facts: facts.report.figures.launch_bound.get(facts.label), "launch-bound"),
    of_case(LARGEST_ERROR, _value(LARGEST_ERROR), "largest error", write=error_text, priority=EXTRA),
    of_case("pareto_front", _on_front, "front", left=True, text=lambda row: FRONT if row["pareto_front"] else "",
            priority=2),
    of_case("error_low", lambda facts: (facts.report.estimate(facts.label, ERROR) or NOTHING_KNOWN).low),
    of_case("error_high", lambda facts: (facts.report.estimate(facts.label, ERROR) or NOTHING_KNOWN).high),
    of_case(RATE, lambda facts: facts.report.figures.rates.get(facts.label), unit=f"% {CERTAIN}", interval=share_text,
            priority=2, least_width=SHARE_WIDTH),
)
# fmt: on
def _of_part(part: str, title: str, priority: int) -> tuple[Column, ...]:
    """The columns of what was measured of a part of a block: latency, ratio, peak."""
    parts = ("ffn", "attention", "textbook")  # all have the same units

    def text(row: Row) -> str | None:
        return latency_text(
            {key: row[f"{part}_{key}"] for key in ("verdict", "failure")}
        )

    return (
        Column(
            key=f"{part}_latency_s",
            title=title,
            units=TIME,
            interval=seconds_text,
            text=text,
            priority=priority,
            style=lambda row: "yellow" if text(row) else "",
            least_width=NUMBER_WIDTH,
            scaled_with=tuple(f"{name}_latency_s" for name in parts),
        ),
        Column(
            key=f"{part}_ratio",
            title=title,
            unit=f"time vs FFN {CERTAIN}",
            interval=interval_text,
            priority=4,
            least_width=RATIO_WIDTH,
        ),
        Column(
            key=f"{part}_peak_bytes",
            title=f"{title} peak",
            units=IEC,
            priority=EXTRA,
            scaled_with=tuple(f"{name}_peak_bytes" for name in parts),
        ),
    )


def _flops(key: str, title: str, priority: int) -> Column:
    """FLOPs of a part of a block, in the same unit as those of FFN and attention."""
    return Column(
        key=key,
        title=title,
        units=SI,
        unit=TOKEN,
        priority=priority,
        scaled_with=("flops_ffn", "flops_attention"),
    )


# fmt: off
OF_BLOCKS = (
    Column(key="layers"),
    Column(key="sees", left=True),
    _flops("flops_ffn", "FFN", 1),
    _flops("flops_attention", "attention", 1),
    _flops("flops_projections", "projections", 4),
    _flops("flops_scores", "scores", 5),
    _flops("flops_values", "values", 6),
    _flops("flops_softmax", "softmax", EXTRA),
    Column(key="ffn_share_flops", title="FFN's share", unit="of FLOPs", write=with_percent_sign),
    Column(key="ffn_share_latency", title="FFN's share", unit=f"% of latency {CERTAIN}", interval=share_text,
           least_width=SHARE_WIDTH),
    Column(key="kv_bytes", title="KV", units=IEC, priority=3),
    Column(key="kv_bytes_per_token", title="KV", units=IEC, unit=TOKEN, priority=EXTRA),
    *_of_part("ffn", "FFN", 1),
    *_of_part("attention", "attention", 1),
    *_of_part("textbook", "textbook", 3),
)

# facts of activations; activations/table.py has the words for some of them
OF_FACTS = (
    Column(key="formula", priority=1, left=True, flexible=True),
    Column(key="minimum", priority=1, write=exact_text),
    Column(key="place", title="at x", priority=1),
    Column(key="range", priority=2, left=True),
    Column(key="monotonic", priority=4, left=True),
    Column(key="smooth", priority=3, left=True),
    Column(key="slopes", title="range of f'", priority=5, left=True),
    Column(key="zero_gradient", title="f' = 0", unit="%", priority=5, write=small_share_text),
    Column(key="saturated", title="|f'|<.01", unit="%", priority=6, write=small_share_text),
    Column(key="mean", unit="f(x)", priority=7, write=rounded_text),
    Column(key="second_moment", title="2nd moment", unit="f(x)²", priority=7, write=rounded_text),
    Column(key="flops", title="FLOPs", unit="fwd", priority=8, write=str),
    *(Column(key=key, title=title, priority=EXTRA, left=True, flexible=True)
      for key, title in {"torch": "", "hf": "HF", "timm": "", "te": "TE", "source": ""}.items()),
)
OF_CHECKS = (
    Column(key="case", left=True),
    Column(key="metric", left=True),
    Column(key="status", left=True),
    Column(key="change", interval=change_text),
    Column(key="tolerance", title="limit", priority=1),
    Column(key="before", priority=2),
    Column(key="now", priority=2),
)
# fmt: on
# of a case on a machine
OF_BOUNDS = (
    Column(key="hardware", left=True),
    Column(key="at_least_s", title="at least", units=TIME),
    Column(key="bound_by", title="bound by", left=True),
    Column(key="flops_per_byte", title="FLOP/B", write=digits, priority=1),
)
BOUND_KEYS = tuple(column.key for column in OF_BOUNDS)
OF_SPREAD = (Column(key="spread", title="±", text=_spread_text, priority=EXTRA),)
COLUMNS = {
    column.key: column
    for column in (*OF_SPREAD, *OF_FACTS, *OF_CHECKS, *OF_BLOCKS, *OF_CASES, *OF_BOUNDS)
}
# the seconds of packing stand in the CSV without their interval
PACK_INTERVAL_KEYS = interval_keys(PACK)[1:]
CASE_KEYS = tuple(
    key
    for column in OF_CASES
    for key in (interval_keys(column.key) if column.interval else (column.key,))
    if key not in PACK_INTERVAL_KEYS
)
LATENCY_KEYS, RATIO_KEYS = interval_keys("latency_s"), interval_keys("ratio")
CONDITION_KEYS = tuple(each.key for each in CONDITIONS)
DEVICE_KEYS = (*interval_keys(DEVICE_TIME), *interval_keys(HOST_TIME), "launch_bound")


def column(key: str, priority: int | None = None, /, **how: Any) -> Column:
    """The column of COLUMNS with this key; with another priority, or other fields,
    where these are given.
    """
    if priority is not None:
        how["priority"] = priority
    return replace(COLUMNS[key], **how)


def timed_columns(report: Report, reference: str) -> list[Column]:
    """Latency with its spread, and where rows are compared the ratio to the reference
    and the verdict.
    """
    shown = [column("latency_s"), column("spread")]
    references = {group.reference for group in report.plan.groups}
    # every row is a reference: nothing is compared
    if len(references) == len(report.plan.shown) and not report.failures:
        return shown
    return [*shown, column("ratio", title=f"time vs {reference}"), column("verdict")]


def case_rows(report: Report) -> list[Row]:
    """One flat row for each case that is shown, with all columns of OF_CASES."""
    waited = _waited_shares(report)
    rows = []
    for case in report.plan.shown:
        facts = CaseFacts(report, case, waited.get(case.label))
        row: Row = {}
        for each in OF_CASES:
            assert each.value_of is not None
            value = each.value_of(facts)
            if each.interval:
                row |= in_row(each.key, value)
            else:
                row[each.key] = value.value if isinstance(value, Enum) else value
        rows.append(row)
    return rows


def _waited_shares(report: Report) -> dict[str, float]:
    """By label, the mean share of its time that a case waited for a CPU."""
    shares: dict[str, list[float]] = {}
    for sample in report.samples:
        if sample.waited is not None:
            shares.setdefault(sample.case, []).append(sample.waited)
    return {label: sum(of_case) / len(of_case) for label, of_case in shares.items()}


def case_records(report: Report, keys: Iterable[str] = CASE_KEYS) -> list[Row]:
    """The rows as they are saved: the contract of the CSV. New columns come at the
    end.
    """
    return [{key: row[key] for key in keys} for row in case_rows(report)]
