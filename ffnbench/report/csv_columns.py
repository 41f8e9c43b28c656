"""What is known of a case, column by column: the one schema of a row.

CSV, JSON lists and data frames have these columns in this order; tables, pictures, exports and the rows of `block` and
of `activations --time` take theirs from it. Everything is in base units; what is not known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from ffnbench.ffn.cost import Cost
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.metrics import COMPILE, DEVICE_TIME, ERROR, GRADIENT_ERROR, HELD, HOST_TIME, LATENCY, PACK, PEAK, SAVED
from ffnbench.plan import Case, Workload
from ffnbench.report.records import Record
from ffnbench.report.tables.conditions import CONDITIONS
from ffnbench.report.tables.words import sizing_text
from ffnbench.result import Bound, Comparison, Estimate, Report, Roof, Share
from ffnbench.stats.ceilings import Needed, needed_by
from ffnbench.stats.rounds import Row as Rounds
from ffnbench.stats.rounds import Table, table_of
from ffnbench.stats.verdict import launch_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """A case of a report, and what its columns are read from."""

    report: Report
    case: Case
    table: Table

    @property
    def work(self) -> Workload:
        return self.case.workload

    @property
    def form(self) -> FFNSpec | None:
        """The network where it is one of our own forms."""
        return self.case.ffn if isinstance(self.case.ffn, FFNSpec) else None

    @property
    def experts(self) -> MoESpec | None:
        return self.form.moe if self.form else None

    @property
    def cost(self) -> Cost:
        return self.report.cost(self.case.label)

    @property
    def counts(self) -> Cost | None:
        """The cost, where it could be counted."""
        return None if self.cost.failed else self.cost

    @property
    def needed(self) -> Needed:
        return needed_by(self.case, self.cost)

    @property
    def rounds(self) -> Rounds | None:
        """Those of its ratio, or of its seconds; None where none was made."""
        found = self.table.row(self.case.label)
        return found if found.rounds else None

    @property
    def comparison(self) -> Comparison | None:
        return self.report.comparison(self.case.label)

    @property
    def share(self) -> Share | None:
        return self.report.share(self.case.label)

    def estimate(self, metric: str) -> Estimate | None:
        return self.report.estimate(self.case.label, metric)

    def value(self, metric: str) -> float | None:
        return self.report.value(self.case.label, metric)

    def whole(self, metric: str) -> int | None:
        """The value of a metric that is a count."""
        found = self.value(metric)
        return None if found is None else int(found)


class _Part(NamedTuple):
    """A column that is an attribute of something."""

    of: Callable[[CaseRow], object]
    name: str


Columns = dict[str, Callable[[CaseRow], Any] | _Part]


def _parts(of: Callable[[CaseRow], object], *names: str, prefix: str = "") -> Columns:
    """Columns that are attributes of something; an enum is its value, and where there is nothing they are empty."""
    return {prefix + name: _Part(of, name) for name in names}


def _interval(of: Callable[[CaseRow], Estimate | None], name: str, unit: str = "") -> Columns:
    """`latency_s`, `latency_low_s`, `latency_high_s`: a value and its interval."""
    ends = {"": "value", "_low": "low", "_high": "high"}
    return {f"{name}{end}{unit}": _Part(of, part) for end, part in ends.items()}


def _seconds(metric: str) -> Columns:
    return _interval(lambda row: row.estimate(metric), metric.removesuffix("_s"), "_s")


def _gated(row: CaseRow) -> bool | None:
    return row.form.gate is not Gate.NONE if row.form else None


def _failure(row: CaseRow) -> str | None:
    failure = row.report.failure(row.case.label)
    return f"{failure.kind.value}: {failure.message}" if failure else None


def _per_second(row: CaseRow, amount: float | None) -> float | None:
    latency = row.estimate(LATENCY)
    return amount / latency.value if latency and amount else None


def _flops_timed(row: CaseRow) -> int | None:
    """FLOPs of a token in the passes that the mode has."""
    flops = row.needed.flops
    return None if flops is None else flops // row.work.tokens


def _total_bytes(row: CaseRow) -> int | None:
    """The weights that a call computes with beside all that it holds at its peak: in training gradients are in that."""
    peak = row.whole(PEAK)
    return None if peak is None else (row.whole(HELD) or row.cost.weight_bytes) + peak


def _waited(row: CaseRow) -> float | None:
    """The mean share of its time that threads waited for a CPU."""
    shares = [s.waited for s in row.report.samples if s.case == row.case.label and s.waited is not None]
    return sum(shares) / len(shares) if shares else None


def roof_of(report: Report, share: Share | None) -> Roof | None:
    """The roof that a share is of."""
    return next((roof for roof in report.roofs if share and roof.name == share.roof), None)


def _bound_by(row: CaseRow) -> str | None:
    """`products`, `call`, or where the bytes are read from: `L3`, `memory`."""
    roof = roof_of(row.report, row.share)
    return ((roof.level if roof.bound is Bound.BYTES else "") or roof.bound.value) if roof else None


CASE, WORK, FORM, EXPERTS, COST, COUNTS, ROUNDS = map(
    attrgetter, ("case", "work", "form", "experts", "cost", "counts", "rounds")
)
COLUMNS: Columns = {
    **_parts(CASE, "label", "variant"),
    **_parts(lambda row: row.case.ffn, "d_model"),
    "d_ff": lambda row: None if row.cost.width_note else getattr(row.case.ffn, "d_ff", None),  # its own is another
    "activation": lambda row: row.form.activation if row.form else None,
    "gated": _gated,
    **_parts(FORM, "gate", "bias"),
    **_parts(WORK, "dtype", "device", "mode", "backend", "batch", "seq_len", "threads"),
    **_parts(COUNTS, "params", "params_active"),
    **_parts(COST, "flops_forward", "flops_backward", "flops_elementwise"),
    **_interval(lambda row: row.estimate(LATENCY), "latency", "_s"),
    **_interval(lambda row: getattr(row.comparison, "ratio", None), "ratio"),
    **_parts(lambda row: row.comparison, "verdict"),
    "tokens_per_s": lambda row: _per_second(row, row.work.tokens),
    PEAK: lambda row: row.whole(PEAK),
    SAVED: lambda row: row.whole(SAVED),
    **_parts(COUNTS, "weight_bytes"),
    **_parts(lambda row: row.estimate(LATENCY), "workers"),
    "rounds": lambda row: row.report.rounds(row.case.label) if row.estimate(LATENCY) else None,
    "failure": _failure,
    **_parts(COST, "flops_elementwise_backward"),
    "macs_forward": lambda row: None if row.cost.flops_forward is None else row.cost.flops_forward // 2,
    **_parts(COST, "params_formula"),
    **_parts(FORM, "beta", "dropout", "init"),
    "sizing": lambda row: sizing_text(row.case.sizing),
    **_parts(CASE, "residual"),
    **_parts(COST, "counted"),
    "zero_share": lambda row: row.value("zero_share"),
    "dead_share": lambda row: row.value("dead_share"),
    **_parts(lambda row: row.comparison, "resolution"),
    **_parts(WORK, "slowdown"),
    **_parts(FORM, "limit", "up_offset"),
    **_parts(EXPERTS, "experts", "top_k", "shared_d_ff", "dispatch"),
    **_parts(WORK, "routing"),
    "expert_load_max": lambda row: row.value("expert_load_max"),
    "experts_hit": lambda row: row.value("experts_hit"),
    **_parts(COST, "weight_bytes_touched"),
    **_seconds(COMPILE),
    "clean_rounds": _Part(ROUNDS, "clean_rounds"),
    "made_rounds": _Part(ROUNDS, "rounds"),
    "waited_share": _waited,
    "flops_per_s": lambda row: _per_second(row, row.needed.flops),
    "bytes_per_s": lambda row: _per_second(row, row.needed.bytes),
    **_interval(lambda row: getattr(row.share, "share", None), "ceiling_share"),
    "bound_by": _bound_by,
    "ceiling_path": lambda row: getattr(roof_of(row.report, row.share), "path", None),
    "compile_mode": lambda row: row.work.compile if row.work.compiled else None,
    "freeze": lambda row: row.work.freeze if row.work.compiled else None,
    PACK: lambda row: row.value(PACK),
    HELD: lambda row: row.whole(HELD),
    ERROR: lambda row: row.value(ERROR),
    GRADIENT_ERROR: lambda row: row.value(GRADIENT_ERROR),
    "inputs": lambda row: getattr(row.report.inputs_of(row.case.label), "count", None),
    "input_bytes": lambda row: getattr(row.report.inputs_of(row.case.label), "bytes", None),
    "flops_timed": _flops_timed,
    "total_bytes": _total_bytes,
    **{one.key: lambda row, one=one: one.of(row.work) for one in CONDITIONS},  # type: ignore[misc]
    **_seconds(DEVICE_TIME),
    **_seconds(HOST_TIME),
    "launch_bound": lambda row: launch_bound(row.report, row.case.label),
}
CONDITION_KEYS = tuple(one.key for one in CONDITIONS)
LATENCY_KEYS = ("latency_s", "latency_low_s", "latency_high_s")
RATIO_KEYS = ("ratio", "ratio_low", "ratio_high")
RECORDS = "case_records"  # what a report keeps them as
OF_SAMPLES = {  # what is not known of cases that are only counted
    *LATENCY_KEYS, *RATIO_KEYS, *_seconds(DEVICE_TIME), *_seconds(HOST_TIME), *_seconds(COMPILE), "verdict", "workers",
    "tokens_per_s", "rounds", "zero_share", "dead_share", "resolution", "expert_load_max", "experts_hit",
    "clean_rounds", "made_rounds", "waited_share", "flops_per_s", "bytes_per_s", "ceiling_share", "ceiling_share_low",
    "ceiling_share_high", "bound_by", "ceiling_path", PACK, HELD, ERROR, GRADIENT_ERROR, "inputs", "input_bytes",
    "launch_bound",
}  # fmt: skip
DEVICE_KEYS = (*_seconds(DEVICE_TIME), *_seconds(HOST_TIME), "launch_bound")


def case_records(report: Report, keys: Iterable[str] = COLUMNS) -> list[Record]:
    """One flat record a case that is shown, with these columns: the contract of the CSV. New ones come at the end."""
    if keys is COLUMNS and (known := vars(report).get(RECORDS)) is not None:  # of the table, and then of a file
        return list(known)
    table, blank = table_of(report), dict.fromkeys(keys)
    rows = (CaseRow(report=report, case=case, table=table) for case in report.plan.shown)
    counted = report.environment is None and not report.samples
    wanted = {key: COLUMNS[key] for key in blank if not (counted and key in OF_SAMPLES)}
    single = [(key, column) for key, column in wanted.items() if not isinstance(column, _Part)]
    parts: dict[Callable[[CaseRow], object], list[tuple[str, str]]] = {}  # what several columns are of, found once
    for key, column in wanted.items():
        if isinstance(column, _Part):
            parts.setdefault(column.of, []).append((key, column.name))
    found = []
    for row in rows:
        record: Record = blank.copy()
        for key, of_row in single:
            record[key] = of_row(row)
        for whole, named in parts.items():
            if (one := whole(row)) is not None:
                for key, name in named:
                    value = getattr(one, name, None)
                    record[key] = value.value if isinstance(value, Enum) else value
        found.append(record)
    if keys is COLUMNS:
        vars(report)[RECORDS] = tuple(found)
    return found
