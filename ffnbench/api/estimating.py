"""The commands about machines that are not here: bounds of variants on them, and which there are."""

from __future__ import annotations

from pathlib import Path

from ffnbench.api.preparing import NULL_SINK, prepare
from ffnbench.api.saved import load
from ffnbench.device.published import how_near, machines_in, published
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive
from ffnbench.planning.compare import as_compare
from ffnbench.report.output import NullSink
from ffnbench.report.tables.estimates import estimate_view, hardware_view
from ffnbench.request import EstimateRequest
from ffnbench.stats.estimates import Hardware, all_least, machine_of


def estimate(request: EstimateRequest, sink: NullSink = NULL_SINK) -> None:
    """The least time that variants could take on machines that need not be here; nothing is measured."""
    machines, devices = _machines(request.hardware), require_positive("tensor_parallel", request.tensor_parallel)
    report = prepare(as_compare(request), sink, counts=True).priced()
    found = all_least(report.plan.shown, report.costs, machines, devices)
    sink.show(lambda: estimate_view(report, found, how_near()))


def _machines(names: str) -> list[Hardware]:
    """By their names in the table, from files of rows, and of saved runs; each once."""
    found: list[Hardware] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name.endswith(".toml"):
            found += machines_in(Path(name))
        else:
            found.append(machine_of(name, load(name)) if name.endswith(".json") else published().get(name))
    if not found:
        raise FfnbenchError("--hardware names no machine", "for example --hardware h100,a100")
    return list({machine.name: machine for machine in found}.values())


def list_hardware(sink: NullSink = NULL_SINK) -> None:
    """Every machine of the table, with its source."""
    sink.show(lambda: hardware_view(list(published())))
