"""How bounds on machines that are not here read, never as if they were measured; and the list of these machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from ffnbench.common.units import IEC, SI, TIME, digits
from ffnbench.extras.estimate.bounds import Hardware, Near, is_held, path_of
from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan import Plan
from ffnbench.report.columns import column
from ffnbench.report.formats import View
from ffnbench.report.frame import Column, Frame, Row
from ffnbench.report.header import conditions_line, headings, swept_columns
from ffnbench.report.listing import records_view
from ffnbench.report.sentences import failure_line, general_line
from ffnbench.report.words import listed
from ffnbench.result import MEMORY, Bound, Report


def estimate_view(report: Report, machines: Sequence[Hardware], rows: list[Row], near: Near) -> View:
    """The bounds of every variant on every machine, group by group."""
    return View(frame=lambda: _frame(report, machines, rows, near), title="estimate")


def _frame(report: Report, machines: Sequence[Hardware], rows: list[Row], near: Near) -> Frame:
    plan, several = report.plan, len(machines)
    split = rows[0]["devices"] > 1

    def name(row: Row) -> str:
        label = plan.name_of(row["label"])
        return f"{label} on {row['hardware']}" if several > 1 else label

    ratio = f"vs {plan.name_of(plan.reference)}"
    return Frame(
        columns=(
            column("label", text=name),
            *(column(key) for key in swept_columns(plan) if key in rows[0] and key != "d_ff"),
            column("d_ff", 6),
            *(OF_PARTS if split else OF_ONE),
            BOUND_BY,
            replace(RATIO, unit=ratio),
        ),
        rows=rows,
        groups=tuple((several * place, text) for place, text in headings(plan)),
        header=[f"bounds on {listed(one.name for one in machines)}", conditions_line(plan, measured=False)],
        summary=[
            *_near_lines(plan, near),
            *_told(report, machines, rows),
            *failure_line(report),
            *general_line(report),
        ],
    )


def _amounts(per: str) -> tuple[Column, ...]:
    return (
        Column(key="device_flops", title="FLOPs", units=SI, unit=per, priority=5),
        Column(key="device_bytes", title="bytes", units=IEC, unit=per, priority=5),
        Column(key="flops_per_byte", title="FLOP/B", write=digits, priority=3),
        Column(key="ridge_flops_per_byte", title="ridge", write=digits, priority=3),
    )


def _seconds(key: str, title: str) -> Column:
    return Column(key=key, title=title, units=TIME, priority=1, scaled_with=SECONDS)


SECONDS = ("device_at_least_s", "all_reduce_at_least_s", "at_least_s")
OF_ONE = (*_amounts(""), _seconds("at_least_s", "at least"))
OF_PARTS = (
    Column(key="device_weight_bytes", title="weights", units=IEC, unit=" each", priority=4),
    *_amounts(" each"),
    _seconds("device_at_least_s", "each ≥"),
    _seconds("all_reduce_at_least_s", "all-reduce ≥"),
    _seconds("at_least_s", "sum ≥"),
)
BOUND_BY = Column(
    key="bound_by",
    title="bound by",
    left=True,
    priority=1,
    text=lambda row: f"no {row['unknown']}" if row["unknown"] else None,
)
RATIO = Column(
    key="ratio_of_bounds", title="bound ratio", write=lambda ratio: digits(float(f"{ratio:.3g}")), priority=2
)


def _near_lines(plan: Plan, near: Near) -> list[str]:
    """That these are bounds, and what measured times were of theirs, where both were known."""
    works = [case.workload for case in plan.shown]
    moved = ["weights", "input", "output", *["their gradients"] * any(work.train for work in works)]
    by = {key: f"{digits(of['median'], 2)}x [{digits(of['low'], 2)}, {digits(of['high'], 2)}]"
          for key in ("all", Bound.PRODUCTS, MEMORY) if (of := near.get(key))}  # fmt: skip
    shapes = f"{near['all']['shapes']} {near['mode']} shapes in {listed(near['dtypes'])}"
    told = f"on {near['machine']}, {near['measured']}, {shapes} took {by.pop('all')} their bound"
    others = listed(f"{path_of(work)} {work.mode}" for work in works if not is_held(near, work))
    return [
        f"bounds, not measurements: no call takes less, where {listed(moved)} pass memory once",
        *[told + f" ({', '.join(f'{key} {text}' for key, text in by.items())})" * bool(by)]
        * any(is_held(near, work) for work in works),
        *[f"{others}: not held against measured times"] * bool(others),
    ]


def _told(report: Report, machines: Sequence[Hardware], rows: list[Row]) -> list[str]:
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
