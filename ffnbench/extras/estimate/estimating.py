"""The commands about machines that are not here: bounds of variants on them, and which there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ffnbench.api.preparing import prepare
from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.estimate.bounds import Bounds, Hardware, Near, bounds_of, is_held
from ffnbench.extras.estimate.hardware import hardware_in, how_near, published
from ffnbench.extras.estimate.request import EstimateRequest
from ffnbench.extras.estimate.table import estimate_view, hardware_view
from ffnbench.ffn.spec import require_positive
from ffnbench.planning.compare import as_compare
from ffnbench.report.columns import case_records
from ffnbench.report.formats import View
from ffnbench.report.frame import Row
from ffnbench.result import Report
from ffnbench.run.world import World

KEYS = ("label", "variant", "d_model", "d_ff", "dtype", "mode", "batch", "seq_len")


def bounds(request: EstimateRequest, world: World, notes: Sequence[str] = ()) -> View:
    """The least time that variants could take on machines that need not be here; nothing is measured."""
    machines, devices = _hardware(request.hardware), require_positive("tensor_parallel", request.tensor_parallel)
    report = prepare(as_compare(request), world, notes=notes, counts=True).cost_report()
    found = [
        bounds_of(case, report.cost(case.label), machine, devices)
        for group in report.plan.groups
        for machine in machines
        for case in group.cases
    ]
    near = how_near()
    rows = rows_of(report, found, near)
    return estimate_view(report, machines, rows, near)


def rows_of(report: Report, found: Sequence[Bounds], near: Near) -> list[Row]:
    """A row for each case on each machine: its bounds, their ratio to the reference's, and what measured times were of
    such bounds elsewhere.
    """
    seconds = {(one.hardware, one.label): one.at_least_s for one in found}
    cases = {row["label"]: row for row in case_records(report, KEYS)}
    rows = []
    for one in found:
        reference = seconds[one.hardware, report.plan.reference_of(one.label)]
        usual = {}
        if one.at_least_s is not None and is_held(near, report.plan.case(one.label).workload):
            usual = near.get(one.bound_by or "") or near["all"]
        rows.append({
            "hardware": one.hardware, **cases[one.label],
            **{each.name: getattr(one, each.name) for each in fields(one)},
            "ratio_of_bounds": one.at_least_s / reference if one.at_least_s is not None and reference else None,
            "elsewhere_measured_over_bound": usual.get("median"),
            "elsewhere_low": usual.get("low"), "elsewhere_high": usual.get("high"),
            "elsewhere": near["machine"] if usual else None,
        })  # fmt: skip
    return rows


def _hardware(names: str) -> list[Hardware]:
    """By names of the table, and from files of rows; each once, and no two of one name."""
    found: dict[str, Hardware] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        for one in hardware_in(Path(name)) if name.endswith(".toml") else [published().get(name)]:
            shipped = published().get(one.name) if one.name in published() else one
            if {shipped, found.setdefault(one.name, one)} != {one}:
                raise FfnbenchError(f"{name}: another machine is named {one.name}", f"write [my-{one.name}] in {name}")
    if not found:
        raise FfnbenchError(f"--hardware {names} names no machine", "for example --hardware h100,a100")
    return list(found.values())


def list_hardware() -> View:
    """Every machine of the table, with its source."""
    return hardware_view(list(published()))
