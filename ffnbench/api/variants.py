"""The commands that count and measure variants: what is measured is only loaded where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ffnbench.api.preparing import NULL_SINK, Prepared, prepare
from ffnbench.errors import FfnbenchError
from ffnbench.plan import OWN
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.views import report_view
from ffnbench.request import AnyRequest, BlockRequest, CompareRequest, TimingRequest, TrainRequest

if TYPE_CHECKING:
    from torch import nn

Measure = Callable[[Prepared, Any], ShownReport]  # of a feature's, in place of the core's; the sink is the command's


def compare(request: CompareRequest, sink: NullSink = NULL_SINK, measure: Measure | None = None) -> ShownReport:
    """Measure variants side by side."""
    return _measured(request, sink, measure)


def cost(request: CompareRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """Count parameters, FLOPs and bytes of variants without measuring."""
    return _counted(request, sink)


def block(request: BlockRequest, sink: NullSink = NULL_SINK, measure: Measure | None = None) -> ShownReport:
    """An FFN beside the attention of its block, by length of the sequence."""
    return _counted(request, sink) if request.cost_only else _measured(request, sink, measure)


def time_activations(request: TimingRequest, sink: NullSink = NULL_SINK, measure: Measure | None = None) -> ShownReport:
    """The operations of activations, forward and backward, each against relu's."""
    return _measured(request, sink, measure)


def train(request: TrainRequest, sink: NullSink = NULL_SINK, measure: Measure | None = None) -> ShownReport:
    """What a small model learns with each variant, beside what a step takes."""
    return _measured(request, sink, measure)


def _measured(request: AnyRequest, sink: NullSink, measure: Measure | None) -> ShownReport:
    if measure is None:
        from ffnbench.api import measuring

        return _shown(measuring.measure(prepare(request, sink), sink), sink)
    return _shown(measure(prepare(request, sink, elsewhere=True), sink), sink)


def _counted(request: AnyRequest, sink: NullSink) -> ShownReport:
    return _shown(prepare(request, sink, counts=True).priced(), sink)


def _shown(found: ShownReport, sink: NullSink) -> ShownReport:
    sink.show(lambda: report_view(found))
    return found


def build(request: CompareRequest, device: Any = None) -> nn.Module:
    """The nn.Module of a request's one variant, in this process, on a device of torch's."""
    import torch

    from ffnbench.backends.building import build as build_module
    from ffnbench.planning.compare import plan_compare
    from ffnbench.worker.probe_jobs import InProcess

    plan = plan_compare(request, InProcess())
    if len(plan.cases) > 1:
        raise FfnbenchError(f"{request.variants!r} names {len(plan.cases)} variants", "build one at a time")
    case = plan.cases[0]
    if case.arm != OWN:
        raise FfnbenchError(f"{case.arm} needs a process of its own", "leave out @python, @source and @env")
    own_device = None if case.workload.device == "auto" else case.workload.device
    return build_module(case.ffn, device=device or own_device, dtype=getattr(torch, case.workload.dtype))
