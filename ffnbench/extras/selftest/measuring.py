"""What the selftest does: it measures the same comparison again and again, and counts what it says."""

from __future__ import annotations

from ffnbench.api.measuring import tell_wait
from ffnbench.extras.selftest import exam
from ffnbench.extras.selftest.exam import SelftestRequest
from ffnbench.extras.selftest.table import selftest_view
from ffnbench.following import ProgressListener
from ffnbench.report.formats import View
from ffnbench.run.world import World


def selftest(request: SelftestRequest, world: World, progress: ProgressListener) -> View:
    """How often ffnbench is wrong on this machine."""
    plan, repeats = exam.exam(request), request.repeats
    tell_wait(plan, world, progress, repeats * (plan.protocol.budget_s or 0.0))
    with world.lock(progress.tell):
        rows = exam.measure(plan, repeats, world, progress)
    return selftest_view(rows, repeats)
