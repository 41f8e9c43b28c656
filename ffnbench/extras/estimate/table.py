"""How bounds on machines that are not here read, never as if they were measured; and
the list of these machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from ffnbench.common.units import IEC, SI, TIME, digits
from ffnbench.extras.estimate.bounds import (
    Hardware,
    HowNear,
    path_of,
    published,
    was_measured,
)
from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan import Plan
from ffnbench.report.columns import column
from ffnbench.report.formats import View
from ffnbench.report.frame import Column, Frame, Row
from ffnbench.report.header import conditions_line, headings, swept_columns
from ffnbench.report.listing import records_view
from ffnbench.report.sentences import failure_line, general_line
from ffnbench.report.words import join_words
from ffnbench.result import MEMORY, Bound, Report


def _amounts(per: str) -> tuple[Column, ...]:
    """The columns of what is computed and moved."""
    return (
        Column(key="device_flops", title="FLOPs", units=SI, unit=per, priority=5),
        Column(key="device_bytes", title="bytes", units=IEC, unit=per, priority=5),
        Column(key="flops_per_byte", title="FLOP/B", write=digits, priority=3),
        Column(key="ridge_flops_per_byte", title="ridge", write=digits, priority=3),
    )


def _seconds(key: str, title: str) -> Column:
    """A column of least seconds, which all have one unit."""
    return Column(
        key=key, title=title, units=TIME, priority=1, scaled_with=SECONDS_COLUMNS
    )


SECONDS_COLUMNS = ("device_at_least_s", "all_reduce_at_least_s", "at_least_s")
ONE_DEVICE_COLUMNS = (*_amounts(""), _seconds("at_least_s", "at least"))
SPLIT_COLUMNS = (
    Column(
        key="device_weight_bytes", title="weights", units=IEC, unit=" each", priority=4
    ),
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
BOUND_RATIO = Column(
    key="ratio_of_bounds",
    title="bound ratio",
    write=lambda ratio: digits(float(f"{ratio:.3g}")),
    priority=2,
)


def estimate_view(
    report: Report, machines: Sequence[Hardware], rows: list[Row], near: HowNear
) -> View:
    """The bounds of every variant on every machine, group by group."""
    return View(frame=lambda: _frame(report, machines, rows, near), title="estimate")


def _frame(
    report: Report, machines: Sequence[Hardware], rows: list[Row], near: HowNear
) -> Frame:
    plan = report.plan

    def name(row: Row) -> str:
        label = plan.name_of(row["label"])
        if len(machines) > 1:
            return f"{label} on {row['hardware']}"
        return label

    swept = [
        column(key) for key in swept_columns(plan) if key in rows[0] and key != "d_ff"
    ]
    is_split = rows[0]["devices"] > 1
    return Frame(
        columns=(
            column("label", text=name),
            *swept,
            column("d_ff", 6),
            *(SPLIT_COLUMNS if is_split else ONE_DEVICE_COLUMNS),
            BOUND_BY,
            replace(BOUND_RATIO, unit=f"vs {plan.name_of(plan.reference)}"),
        ),
        rows=rows,
        groups=tuple((len(machines) * place, text) for place, text in headings(plan)),
        header=[
            f"bounds on {join_words(machine.name for machine in machines)}",
            conditions_line(plan, measured=False),
        ],
        summary=[
            *_what_bounds_are(plan, near),
            *_conditions(plan, machines, rows[0]["devices"]),
            *failure_line(report),
            *general_line(report),
        ],
    )


def _what_bounds_are(plan: Plan, near: HowNear) -> list[str]:
    """Say that these are no measurements, and how far above such bounds measured times
    were, where that is known.
    """
    works = [case.workload for case in plan.shown]
    moved = ["weights", "input", "output"]
    if any(work.train for work in works):
        moved.append("their gradients")
    lines = [
        f"bounds, not measurements: no call takes less, where {join_words(moved)} pass memory once"
    ]
    if any(was_measured(near, work) for work in works):
        shapes = f"{near['all']['shapes']} {near['mode']} shapes in {join_words(near['dtypes'])}"
        line = f"on {near['machine']}, {near['measured']}, {shapes} took {_times(near['all'])} their bound"
        parts = [
            f"{bound} {_times(near[bound])}"
            for bound in (Bound.PRODUCTS, MEMORY)
            if bound in near
        ]
        if parts:
            line += f" ({', '.join(parts)})"
        lines.append(line)
    others = join_words(
        f"{path_of(work)} {work.mode}" for work in works if not was_measured(near, work)
    )
    if others:
        lines.append(f"{others}: not held against measured times")
    return lines


def _times(ratios: dict[str, float]) -> str:
    """`2.4x [1.3, 6.2]`: the median of measured times over their bounds, and their 90 %
    range.
    """
    median, low, high = (digits(ratios[name], 2) for name in ("median", "low", "high"))
    return f"{median}x [{low}, {high}]"


def _conditions(plan: Plan, machines: Sequence[Hardware], devices: int) -> list[str]:
    """Say what else the bounds assume: no TF32, the links, an uneven split, the routing
    to experts.
    """
    lines = []
    with_tf32 = [machine.name for machine in machines if machine.tflops_tf32]
    if with_tf32 and any(path_of(case.workload) == "float32" for case in plan.shown):
        lines.append(
            f"float32 on {join_words(with_tf32)}: without TF32, which @matmul_precision=high allows"
        )
    forms = {
        plan.name_of(case.label): case.ffn
        for case in plan.shown
        if isinstance(case.ffn, FFNSpec)
    }
    if devices > 1:
        links = join_words(_link(machine) for machine in machines)
        lines.append(
            f"all-reduce: a ring of {devices}, not overlapped, over links: {links}"
        )
    uneven = [
        f"{name} {form.d_ff:,}" for name, form in forms.items() if form.d_ff % devices
    ]
    if uneven:
        lines.append(
            f"{devices} devices do not divide the d_ff of {join_words(uneven)}: bounds are of the largest part"
        )
    if any(form.moe for form in forms.values()):
        lines.append("experts: as many are read as uniform routing asks for on average")
    return lines


def _link(machine: Hardware) -> str:
    """`h100 450 GB/s a direction (NVLink 4)`."""
    if not machine.link_gb_per_s:
        return f"{machine.name} unknown"
    return f"{machine.name} {machine.link_gb_per_s:g} GB/s a direction ({machine.link})"


def list_hardware() -> View:
    """Every machine of published.toml, with the source of its figures."""
    names = [field.name for field in fields(Hardware)]
    records = []
    for machine in published():
        record = {}
        for name in names:
            value = getattr(machine, name)
            title = name.removeprefix("tflops_").replace("gb_per_s", "GB/s")
            record[title] = f"{value:g}" if isinstance(value, float) else value or "-"
        records.append(record)
    notes = (
        "TFLOP/s of dense products, float32 without TF32, at that clock; link: all of a device, in one direction",
        "rows of your own: `--hardware mine.toml` with [mine], tflops_float32 = 20, gb_per_s = 300",
        "addresses, links and notes: `ffnbench list hardware --json`",
    )
    return records_view(records, notes)


LISTINGS = {"hardware": list_hardware}
COMPLETIONS = {"hardware": lambda: published().names()}
