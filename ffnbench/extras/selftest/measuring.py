"""What the selftest does: it measures the same comparison again and again, and counts what it says."""

from __future__ import annotations

from ffnbench.api.measuring import tell_wait
from ffnbench.api.preparing import NULL_SINK
from ffnbench.extras.selftest import exam
from ffnbench.extras.selftest.request import SelftestRequest
from ffnbench.extras.selftest.table import selftest_view
from ffnbench.report.output import NullSink
from ffnbench.run.neighbours import machine_lock


def selftest(request: SelftestRequest, sink: NullSink = NULL_SINK) -> None:
    """How often ffnbench is wrong on this machine."""
    plan, repeats = exam.exam(request), request.repeats
    tell_wait(sink, plan, budget=repeats * (plan.protocol.budget_s or 0.0))
    with machine_lock(sink.waits, sink.tell), sink.progress() as listener:
        told = exam.measure(plan, repeats, listener)
    sink.show(lambda: selftest_view(told, repeats))
