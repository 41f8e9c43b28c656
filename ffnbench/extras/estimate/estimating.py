"""Bounds of variants on machines that need not be here: request -> view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ffnbench.api.preparing import prepare_plan
from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.estimate.bounds import (
    Hardware,
    bounds_of,
    hardware_in,
    how_near,
    published,
)
from ffnbench.extras.estimate.table import estimate_view
from ffnbench.ffn.spec import require_positive
from ffnbench.planning.compare import as_compare, plan_compare
from ffnbench.report.columns import case_records
from ffnbench.report.formats import View
from ffnbench.report.frame import Row
from ffnbench.request import CostRequest, Texts
from ffnbench.run.world import World

# of a case's record, what a row of an estimate has
CASE_KEYS = (
    "label",
    "variant",
    "d_model",
    "d_ff",
    "dtype",
    "mode",
    "batch",
    "seq_len",
)


@dataclass(frozen=True, kw_only=True)
class EstimateRequest(CostRequest):
    """`ffnbench estimate`."""

    hardware: Texts = "h100"
    tensor_parallel: int = 1


def estimate_answer(
    request: EstimateRequest, world: World, notes: Sequence[str] = ()
) -> View:
    """The least time that variants could take on machines; nothing is measured."""
    machines = _hardware(request.hardware)
    devices = require_positive("tensor_parallel", request.tensor_parallel)
    report = prepare_plan(
        as_compare(request), world, plan_compare, notes=notes, counts=True
    ).cost_report()
    records = {row["label"]: row for row in case_records(report, CASE_KEYS)}
    rows: list[Row] = []
    for group in report.plan.groups:
        for machine in machines:
            bounds_by_label = {
                case.label: bounds_of(case, report.cost(case.label), machine, devices)
                for case in group.cases
            }
            for label, bounds in bounds_by_label.items():
                reference = bounds_by_label[report.plan.reference_of(label)]
                ratio = None
                if bounds.at_least_s is not None and reference.at_least_s:
                    ratio = bounds.at_least_s / reference.at_least_s
                row: Row = {"hardware": machine.name, **records[label]}
                for field in fields(bounds):
                    row[field.name] = getattr(bounds, field.name)
                row["ratio_of_bounds"] = ratio
                rows.append(row)
    return estimate_view(report, machines, rows, how_near())


def _hardware(names: str) -> list[Hardware]:
    """The machines of a list of names and .toml files, each once; of two with one name
    that of a file is taken.
    """
    machines: dict[str, Hardware] = {}
    for name in names.split(","):
        name = name.strip()
        if name.endswith(".toml"):
            machines |= {machine.name: machine for machine in hardware_in(Path(name))}
        elif name:
            machine = published().get(name)
            machines.setdefault(machine.name, machine)
    if not machines:
        raise FfnbenchError(
            f"--hardware {names} names no machine", "for example --hardware h100,a100"
        )
    return list(machines.values())
