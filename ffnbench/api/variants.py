"""The commands that count and measure variants, and show saved runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ffnbench.api.measuring import measure, tell_seconds
from ffnbench.api.preparing import NULL_SINK, prepare
from ffnbench.errors import FfnbenchError
from ffnbench.plan import OWN
from ffnbench.planning.compare import plan_compare
from ffnbench.report.files.store import load as load_report
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute
from ffnbench.report.tables.side_by_side import side_by_side_view
from ffnbench.report.tables.whole_model import whole_model_view
from ffnbench.report.views import report_view
from ffnbench.request import BlockRequest, CompareRequest, SelftestRequest, TimingRequest
from ffnbench.run.lock import turn

if TYPE_CHECKING:
    from torch import nn


def compare(request: CompareRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """Measure variants side by side."""
    return _shown(measure(prepare(request, sink), sink), sink)


def cost(request: CompareRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """Count parameters, FLOPs and bytes of variants without measuring."""
    return _shown(prepare(request, sink, counts=True).priced(), sink)


def block(request: BlockRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """An FFN beside the attention of its block, by length of the sequence."""
    prepared = prepare(request, sink, counts=request.cost_only)
    return _shown(prepared.priced() if request.cost_only else measure(prepared, sink), sink)


def time_activations(request: TimingRequest, sink: NullSink = NULL_SINK) -> ShownReport:
    """The operations of activations, forward and backward, each against relu's."""
    return _shown(measure(prepare(request, sink), sink), sink)


def report(path: str, sink: NullSink = NULL_SINK) -> tuple[ShownReport, str]:
    """A saved run again, every figure computed anew; and what to say where the file's own figures are others."""
    stored = load(path)
    sink.known(stored)
    fresh = recompute(stored)
    sink.show(lambda: report_view(fresh).ending(0))  # whatever it ended with: it can be shown
    return fresh, difference(stored, fresh)


def reports(paths: Sequence[str], sink: NullSink = NULL_SINK) -> list[ShownReport]:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged."""
    found = [recompute(load(path)) for path in paths]
    view = side_by_side_view(paths, found)
    sink.show(lambda: view)
    return found


def whole_model(request: BlockRequest, sink: NullSink = NULL_SINK) -> None:
    """All layers of a model, and all its parameters, counted."""
    view = whole_model_view(request)
    sink.show(lambda: view)


def selftest(request: SelftestRequest, sink: NullSink = NULL_SINK) -> None:
    """How often ffnbench is wrong on this machine."""
    from ffnbench.report.tables.selftest import selftest_view
    from ffnbench.selftest.exam import exam, measure

    asked = exam(request)
    tell_seconds(sink, asked.wait, asked.plan.cases[0].workload.threads)
    with turn(sink.waits, sink.tell), sink.progress() as listener:
        told = measure(asked, listener)
    sink.show(lambda: selftest_view(told, asked.repeats))


def build(request: CompareRequest, device: Any = None) -> nn.Module:
    """The nn.Module of a request's one variant, in this process, on a device of torch's."""
    import torch

    from ffnbench.backends.building import build as build_module
    from ffnbench.worker.probe_jobs import InProcess

    plan = plan_compare(request, InProcess())
    if len(plan.cases) > 1:
        raise FfnbenchError(f"{request.variants!r} names {len(plan.cases)} variants", "build one at a time")
    case = plan.cases[0]
    if case.arm != OWN:
        raise FfnbenchError(f"{case.arm} is of another process", "a module is built in this one")
    own_device = None if case.workload.device == "auto" else case.workload.device
    return build_module(case.ffn, device=device or own_device, dtype=getattr(torch, case.workload.dtype))


def load(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none, or is of another schema."""
    return as_shown(load_report(path))


def _shown(found: ShownReport, sink: NullSink) -> ShownReport:
    sink.show(lambda: report_view(found))
    return found
