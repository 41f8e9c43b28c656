"""How bounds on machines that are not here read, never as if they were measured; and the list of these machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ffnbench.ffn.spec import FFNSpec
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.tables.details import conditions_line
from ffnbench.report.tables.groups import heading, swept_columns
from ffnbench.report.tables.lines_below import failure_line, general_line
from ffnbench.report.tables.listing import records_view
from ffnbench.report.tables.table import (
    EXTRA,
    UNKNOWN,
    Cell,
    Column,
    Field,
    TextTable,
    count_field,
    number_field,
    table_of_fields,
    text_field,
)
from ffnbench.report.tables.words import listed
from ffnbench.result import Bound, Report
from ffnbench.stats.ceilings import MEMORY
from ffnbench.stats.estimates import Hardware, HowNear, Least, Spread
from ffnbench.units import IEC, SI, TIME, digits

PLAIN = (("", 1.0),)  # no prefixes
WORDS = {Bound.PRODUCTS: Bound.PRODUCTS.value, Bound.BYTES: MEMORY}
ARE_BOUNDS = "bounds, not measurements: no call takes less, where weights, input and output come from memory once"


def estimate_view(report: Report, found: Sequence[Least], near: HowNear | None) -> View:
    """The bounds of every variant on every machine, those of a machine together."""
    seconds = {(one.machine.name, one.case.label): one.seconds for one in found}
    rows = [_record(report, one, seconds, near) for one in found]
    return view_of(_table(report, found, rows, near), lambda: rows, every=False)


def _record(report: Report, one: Least, seconds: dict[tuple[str, str], float | None], near: HowNear | None) -> Record:
    case, work, machine, needed = one.case, one.case.workload, one.machine, one.needed
    reference = seconds[machine.name, report.plan.reference_of(case.label)]
    usual = near.of(one.bound) if near and one.seconds is not None else None
    return {
        "hardware": machine.name,
        "label": case.label,
        **{key: getattr(case.ffn, key) for key in ("d_model", "d_ff")},
        **{key: getattr(work, key) for key in ("dtype", "mode", "batch", "seq_len")},
        "devices": one.devices,
        "device_weight_bytes": one.weights,
        "device_flops": needed and needed.flops,
        "device_bytes": needed and needed.bytes,
        "flops_per_byte": one.intensity,
        "ridge_flops_per_byte": one.ridge,
        "products_at_least_s": one.products_s,
        "memory_at_least_s": one.bytes_s,
        "device_at_least_s": one.device_s,
        "all_reduce_at_least_s": one.all_reduce_s,
        "at_least_s": one.seconds,
        "bound_by": WORDS[one.bound] if one.bound else None,
        "unknown": _unknown(report, one),
        "ratio_of_bounds": one.seconds / reference if one.seconds is not None and reference else None,
        "elsewhere_measured_over_bound": usual and usual.median,
        "elsewhere_low": usual and usual.low,
        "elsewhere_high": usual and usual.high,
        "elsewhere": near.machine if usual and near else None,
        "source": machine.source,
    }


def _unknown(report: Report, one: Least) -> str | None:
    """What is missing for one of the bounds, or for all."""
    if one.needed is None:
        return report.cost(one.case.label).failed or "unknown how your own code is split"
    if one.needed.flops is None:
        return "FLOPs not known"
    if one.products_s is None:
        return f"no peak of {one.path}"
    if one.bytes_s is None:
        return "no memory bandwidth"
    return "no link bandwidth" if one.all_reduce_s is None else None


def _table(report: Report, found: Sequence[Least], rows: list[Record], near: HowNear | None) -> TextTable:
    plan, several = report.plan, len({row["hardware"] for row in rows}) > 1
    split, headed = found[0].devices > 1, len(plan.shown) > len(plan.groups)

    def variant(row: Record) -> Cell:
        return Cell(text=plan.name_of(row["label"]), value=row["label"])

    def bound_by(row: Record) -> Cell:
        return Cell(text=row["bound_by"] or row["unknown"] or UNKNOWN, value=row["bound_by"])

    def ratio(row: Record) -> Cell:
        value = row["ratio_of_bounds"]
        return Cell(text=UNKNOWN if value is None else digits(float(f"{value:.3g}")), value=value)

    swept = [] if headed else [key for key in swept_columns(plan) if key in rows[0]]
    timed = ("device_at_least_s", "all_reduce_at_least_s", "at_least_s")
    fields: list[Field] = [
        (Column(title="variant", left=True, key="label"), variant),
        *([text_field("hardware", "hardware", 0, left=True)] if several and not headed else []),
        *(text_field(key, key, 2) for key in swept if key != "d_ff"),
        count_field("d_ff", "d_ff", 6),
        *([number_field(rows, "device_weight_bytes", "weights", IEC, 4, " each")] if split else []),
        number_field(rows, "device_flops", "FLOPs", SI, 5, " each" * split),
        number_field(rows, "device_bytes", "bytes", IEC, 5, " each" * split),
        number_field(rows, "flops_per_byte", "FLOP/B", PLAIN, 3),
        number_field(rows, "ridge_flops_per_byte", "ridge", PLAIN, 3),
        *(number_field(rows, key, title, TIME, EXTRA, scaled_as=timed) for key, title in (
            ("products_at_least_s", "products"), ("memory_at_least_s", "memory"))),
        *(number_field(rows, key, title, TIME, 1, scaled_as=timed) for key, title in (
            ("device_at_least_s", "each ≥"), ("all_reduce_at_least_s", "all-reduce ≥")) if split),
        number_field(rows, "at_least_s", "sum ≥" if split else "at least", TIME, 0, scaled_as=timed),
        (Column(title="bound by", left=True, priority=1, key="bound_by"), bound_by),
        (Column(title="bound ratio", unit=f"vs {plan.name_of(plan.reference)}", priority=2, key="ratio_of_bounds"),
         ratio),
    ]  # fmt: skip
    table = table_of_fields(
        fields,
        rows,
        header=[_on(found) + conditions_line(plan, ("dtype", "mode"), backends=False)],
        summary=[ARE_BOUNDS, *_near_line(near), *_told(report, found), *failure_line(report), *general_line(report)],
        details=[_figures(machine, {one.path for one in found}) for machine in _machines(found)],
    )
    return replace(table, headings=_headings(report, found) if headed else ())


def _machines(found: Iterable[Least]) -> list[Hardware]:
    return list({one.machine.name: one.machine for one in found}.values())


def _on(found: Sequence[Least]) -> str:
    names, devices = [machine.name for machine in _machines(found)], found[0].devices
    return f"bounds on {f'{devices} of ' * (devices > 1)}{names[0]}: " if len(names) == 1 else "bounds: "


def _headings(report: Report, found: Sequence[Least]) -> tuple[tuple[int, str], ...]:
    """The machine, and what its groups differ in."""
    starts, place = [], 0
    machines = _machines(found)
    for machine in machines:
        for group in report.plan.groups:
            names = [f"{found[0].devices} x {machine.name}" if found[0].devices > 1 else machine.name]
            starts.append((place, ", ".join(filter(None, (*names * (len(machines) > 1), heading(group))))))
            place += len(group.cases)
    return tuple(starts) if len(starts) > 1 else ()


def _near_line(near: HowNear | None) -> list[str]:
    """What measured times have been of such bounds, where both were known."""
    if near is None:
        return []
    by = [f"{name} {_times(spread)}" for name, spread in ((WORDS[b], near.of(b)) for b in WORDS) if spread != near.all]
    told = f"on {near.machine} {near.all.shapes} measured shapes took {_times(near.all)} the bound by its own ceilings"
    return [told + f"; {', '.join(by)}" * bool(by)]


def _times(spread: Spread) -> str:
    return f"{digits(spread.median, 2)}x [{digits(spread.low, 2)}, {digits(spread.high, 2)}]"


def _told(report: Report, found: Sequence[Least]) -> list[str]:
    """What else a reader has to know of these bounds: of links, of parts that are not equal, of what does not fit."""
    devices, told = found[0].devices, []
    if devices > 1:
        links = (
            f"{m.name} {m.link_gb_per_s:g} GB/s a direction ({m.link})" for m in _machines(found) if m.link_gb_per_s
        )
        told.append(f"all-reduce: a ring of {devices}, not overlapped: {listed(links) or 'no link bandwidth is known'}")
    odd = {f"{report.plan.name_of(one.case.label)} {one.case.ffn.d_ff:,}" for one in found
           if isinstance(one.case.ffn, FFNSpec) and one.case.ffn.d_ff % devices}  # fmt: skip
    if odd:
        told.append(
            f"{devices} devices do not divide the d_ff of {listed(sorted(odd))}: bounds are of the largest part"
        )
    large = {f"{report.plan.name_of(one.case.label)} on {one.machine.name}" for one in found
             if one.weights and one.machine.memory_gb and one.weights > one.machine.memory_gb * 1e9}  # fmt: skip
    if large:
        told.append(f"weights are larger than the memory: {listed(sorted(large))}")
    if any(isinstance(one.case.ffn, FFNSpec) and one.case.ffn.moe for one in found):
        told.append("experts: as many are read as uniform routing asks for on average")
    return told


def _figures(machine: Hardware, paths: set[str]) -> str:
    """What was known of a machine, and from where."""
    peaks = [f"{peak / 1e12:g} TFLOP/s {path}" for path in sorted(paths) if (peak := machine.peak(path))]
    memory = [f"{machine.gb_per_s:g} GB/s"] if machine.gb_per_s else []
    at = f"dense, {machine.clock} clock" if machine.clock else ""
    whence = " ".join(filter(None, (machine.source, machine.address)))
    return f"{machine.name}: {', '.join(filter(None, (*peaks, at, *memory, machine.note)))}; {whence}".rstrip("; ")


def hardware_view(machines: Sequence[Hardware]) -> View:
    """Every machine of the table, with where its figures stand."""
    dtypes = ("float32", "tf32", "bfloat16", "float16", "float64")
    records: list[Record] = [
        {
            "name": machine.name,
            **{key: _plain(getattr(machine, f"tflops_{key}")) for key in dtypes[:3]},
            "GB/s": _plain(machine.gb_per_s), "source": machine.source, "clock": machine.clock,
            **{key: _plain(getattr(machine, f"tflops_{key}")) for key in dtypes[3:]},
            "GB": _plain(machine.memory_gb), "link GB/s": _plain(machine.link_gb_per_s), "link": machine.link,
            "what": machine.maker, "note": machine.note, "address": machine.address, "checked": machine.checked,
        }
        for machine in machines
    ]  # fmt: skip
    return records_view(
        records,
        (
            "TFLOP/s of dense products, no sparsity, at that clock; link: all of a device, in one direction",
            "rows of your own: `--hardware mine.toml` with [mine], tflops_float32 = 20, gb_per_s = 300",
            "addresses, links and notes: `ffnbench list hardware --json`",
        ),
    )


def _plain(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"
