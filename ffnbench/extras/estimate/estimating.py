"""The commands about machines that are not here: bounds of variants on them, and which there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ffnbench.api.preparing import prepare
from ffnbench.errors import FfnbenchError
from ffnbench.extras.estimate.bounds import Hardware, bounds_of
from ffnbench.extras.estimate.hardware import hardware_in, how_near, published
from ffnbench.extras.estimate.request import EstimateRequest
from ffnbench.extras.estimate.table import estimate_view, hardware_view
from ffnbench.ffn.spec import require_positive
from ffnbench.planning.compare import as_compare
from ffnbench.report.formats import View
from ffnbench.run.world import World


def bounds(request: EstimateRequest, world: World, notes: Sequence[str] = ()) -> View:
    """The least time that variants could take on machines that need not be here; nothing is measured."""
    machines, devices = _hardware(request.hardware), require_positive("tensor_parallel", request.tensor_parallel)
    report = prepare(as_compare(request), world, notes=notes, counts=True).priced()
    found = [
        bounds_of(case, report.cost(case.label), machine, devices)
        for group in report.plan.groups
        for machine in machines
        for case in group.cases
    ]
    return estimate_view(report, machines, found, how_near())


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
