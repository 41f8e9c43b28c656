"""How bounds on machines that are not here read, never as if they were measured; and the list of these machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from ffnbench.extras.estimate.bounds import Bounds, Hardware, path_of
from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan import Plan, Workload
from ffnbench.report.csv_columns import case_records
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.tables import table as t
from ffnbench.report.tables.details import conditions_line
from ffnbench.report.tables.groups import headings, swept_columns
from ffnbench.report.tables.lines_below import failure_line, general_line
from ffnbench.report.tables.listing import records_view
from ffnbench.report.tables.words import listed
from ffnbench.result import MEMORY, Bound, Report
from ffnbench.units import IEC, SI, TIME, digits

PLAIN = (("", 1.0),)  # no prefixes
Near = dict[str, Any]  # quotients of measured times and bounds, elsewhere: by what binds, their median and 90 % range


def estimate_view(report: Report, machines: Sequence[Hardware], found: Sequence[Bounds], near: Near) -> View:
    """The bounds of every variant on every machine, group by group."""
    seconds = {(one.hardware, one.label): one.at_least_s for one in found}
    keys = ("label", "variant", "d_model", "d_ff", "dtype", "mode", "batch", "seq_len")
    cases, rows = {row["label"]: row for row in case_records(report, keys)}, []
    for one in found:
        reference = seconds[one.hardware, report.plan.reference_of(one.label)]
        held = one.at_least_s is not None and _held(near, report.plan.case(one.label).workload)
        usual = (near.get(one.bound_by or "") or near["all"]) if held else {}
        rows.append({
            "hardware": one.hardware, **cases[one.label],
            **{each.name: getattr(one, each.name) for each in fields(one)},
            "ratio_of_bounds": one.at_least_s / reference if one.at_least_s is not None and reference else None,
            "elsewhere_measured_over_bound": usual.get("median"),
            "elsewhere_low": usual.get("low"), "elsewhere_high": usual.get("high"),
            "elsewhere": near["machine"] if usual else None,
        })  # fmt: skip
    return view_of(_table(report, machines, rows, near), lambda: rows, every=False)


def _table(report: Report, machines: Sequence[Hardware], rows: list[Record], near: Near) -> t.TextTable:
    plan, split, times = report.plan, rows[0]["devices"] > 1, len(machines)
    swept = [key for key in swept_columns(plan) if key in rows[0] and key != "d_ff"]
    timed = ("device_at_least_s", "all_reduce_at_least_s", "at_least_s")
    named: list[t.Field] = [
        (
            t.Column(title="variant", left=True, key="label"),
            lambda row: t.Cell(text=plan.name_of(row["label"]) + (f" on {row['hardware']}" if times > 1 else "")),
        ),
        *(t.text_field(key, key, 2) for key in swept),
        t.count_field("d_ff", "d_ff", 6),
    ]
    numbers = (
        *([("device_weight_bytes", "weights", IEC, 4, " each")] if split else []),
        ("device_flops", "FLOPs", SI, 5, " each" * split), ("device_bytes", "bytes", IEC, 5, " each" * split),
        ("flops_per_byte", "FLOP/B", PLAIN, 3, ""), ("ridge_flops_per_byte", "ridge", PLAIN, 3, ""),
    )  # fmt: skip
    titles = ("each ≥", "all-reduce ≥", "sum ≥") if split else ("", "", "at least")
    shown: list[t.Field] = [
        *(t.number_field(rows, key, title, units, priority, per) for key, title, units, priority, per in numbers),
        *(t.number_field(rows, key, title, TIME, 1, scaled_as=timed)
          for key, title in zip(timed, titles, strict=True) if title),
        (t.Column(title="bound by", left=True, priority=1),
         lambda row: t.Cell(text=f"no {row['unknown']}" if row["unknown"] else row["bound_by"])),
        (t.Column(title="bound ratio", unit=f"vs {plan.name_of(plan.reference)}", priority=2),
         lambda row: t.Cell(text=digits(float(f"{ratio:.3g}")) if (ratio := row["ratio_of_bounds"]) else t.UNKNOWN)),
    ]  # fmt: skip
    table = t.table_of_fields(
        [*named, *shown],
        rows,
        header=[f"bounds on {listed(one.name for one in machines)}", conditions_line(plan, ("dtype", "mode"))],
        summary=[
            *_near_lines(plan, near), *_told(report, machines, rows), *failure_line(report), *general_line(report)
        ],
    )  # fmt: skip
    return replace(table, headings=tuple((times * place, text) for place, text in headings(plan)))


def _held(near: Near, work: Workload) -> bool:
    """Whether such bounds were held against measured times."""
    return work.mode == near["mode"] and path_of(work) in near["dtypes"]


def _near_lines(plan: Plan, near: Near) -> list[str]:
    """That these are bounds, and what measured times were of theirs, where both were known."""
    works = [case.workload for case in plan.shown]
    moved = ["weights", "input", "output", *["their gradients"] * any(work.train for work in works)]
    by = {key: f"{digits(of['median'], 2)}x [{digits(of['low'], 2)}, {digits(of['high'], 2)}]"
          for key in ("all", Bound.PRODUCTS.value, MEMORY) if (of := near.get(key))}  # fmt: skip
    shapes = f"{near['all']['shapes']} {near['mode']} shapes in {listed(near['dtypes'])}"
    told = f"on {near['machine']}, {near['measured']}, {shapes} took {by.pop('all')} their bound"
    others = listed(f"{path_of(work)} {work.mode}" for work in works if not _held(near, work))
    return [
        f"bounds, not measurements: no call takes less, where {listed(moved)} pass memory once",
        *[told + f" ({', '.join(f'{key} {text}' for key, text in by.items())})" * bool(by)]
        * any(_held(near, work) for work in works),
        *[f"{others}: not held against measured times"] * bool(others),
    ]


def _told(report: Report, machines: Sequence[Hardware], rows: list[Record]) -> list[str]:
    """What else a reader has to know: of links, of parts that are not equal, of experts."""
    devices, told, plan = rows[0]["devices"], [], report.plan
    links = (f"{m.name} {m.link_gb_per_s:g} GB/s a direction ({m.link})" if m.link_gb_per_s else f"{m.name} unknown"
             for m in machines)  # fmt: skip
    forms = {plan.name_of(case.label): case.ffn for case in plan.shown if isinstance(case.ffn, FFNSpec)}
    exact = [machine.name for machine in machines if machine.tflops_tf32]
    if exact and any(path_of(case.workload) == "float32" for case in plan.shown):
        told.append(f"float32 on {listed(exact)}: without TF32, which @matmul_precision=high allows")
    if devices > 1:
        told.append(f"all-reduce: a ring of {devices}, not overlapped, over links: {listed(links)}")
    if odd := [f"{name} {spec.d_ff:,}" for name, spec in forms.items() if spec.d_ff % devices]:
        told.append(f"{devices} devices do not divide the d_ff of {listed(odd)}: bounds are of the largest part")
    if any(spec.moe for spec in forms.values()):
        told.append("experts: as many are read as uniform routing asks for on average")
    return told


def hardware_view(machines: Sequence[Hardware]) -> View:
    """Every machine of the table, with where its figures stand."""
    titles = {one.name: one.name.removeprefix("tflops_").replace("gb_per_s", "GB/s") for one in fields(Hardware)}
    records = [
        {title: f"{value:g}" if isinstance(value := getattr(one, name), float) else value or "-"
         for name, title in titles.items()}
        for one in machines
    ]  # fmt: skip
    told = "TFLOP/s of dense products, float32 without TF32, at that clock; link: all of a device, in one direction"
    own = "rows of your own: `--hardware mine.toml` with [mine], tflops_float32 = 20, gb_per_s = 300"
    return records_view(records, (told, own, "addresses, links and notes: `ffnbench list hardware --json`"))
