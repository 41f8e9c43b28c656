"""The commands that count and measure variants: what is measured is only loaded where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ffnbench.api.preparing import NULL_SINK, Measure, Prepared, prepare
from ffnbench.errors import FfnbenchError
from ffnbench.plan import OWN
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.views import report_view
from ffnbench.request import AnyRequest, BlockRequest, CompareRequest, TimingRequest

if TYPE_CHECKING:
    from torch import nn

# what measures groups in place of this process: what was prepared, the sink of the command, how a group is measured
Elsewhere = Callable[[Prepared, Any, Measure], ShownReport]


def compare(request: CompareRequest, sink: NullSink = NULL_SINK, elsewhere: Elsewhere | None = None) -> ShownReport:
    """Measure variants side by side."""
    return _measured(request, sink, elsewhere)


def cost(request: CompareRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """Count parameters, FLOPs and bytes of variants without measuring."""
    return _counted(request, sink)


def block(request: BlockRequest, sink: NullSink = NULL_SINK, elsewhere: Elsewhere | None = None) -> ShownReport:
    """An FFN beside the attention of its block, by length of the sequence."""
    return _counted(request, sink) if request.cost_only else _measured(request, sink, elsewhere)


def time_activations(
    request: TimingRequest, sink: NullSink = NULL_SINK, elsewhere: Elsewhere | None = None
) -> ShownReport:
    """The operations of activations, forward and backward, each against relu's."""
    return _measured(request, sink, elsewhere)


def _measured(request: AnyRequest, sink: NullSink, elsewhere: Elsewhere | None) -> ShownReport:
    return measured(prepare(request, sink, elsewhere=elsewhere is not None), sink, elsewhere=elsewhere)


def measured(
    prepared: Prepared, sink: NullSink = NULL_SINK, own: Measure | None = None, elsewhere: Elsewhere | None = None
) -> ShownReport:
    """Measure what was prepared, and show what was found.

    `own` is how a feature does it, the whole of a plan or one cell. `elsewhere` has groups measured by other processes
    than this one, each of which does `own`.
    """
    from ffnbench.api import measuring

    if elsewhere is not None:
        return _shown(elsewhere(prepared, sink, own or measuring.measured_once), sink)
    return _shown((own or measuring.measure)(prepared, sink), sink)


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
