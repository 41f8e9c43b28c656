"""The Python function `selftest`."""

from __future__ import annotations

from ffnbench.extras.selftest import measuring
from ffnbench.extras.selftest.measuring import SelftestRequest
from ffnbench.extras.selftest.table import selftest_view
from ffnbench.python.arguments import Float, Int, asked
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer


@public
def selftest(
    *,
    repeats: Int = 10,
    budget: Float = 15.0,
    d_model: Int = 256,
    threads: Int | None = None,
    seed: Int = 0,
    quiet: bool = False,
    wait: bool = False,
) -> Answer:
    """How often ffnbench is wrong on this machine, by runs whose true ratios are known.

    `ffnbench selftest --help-all` says what each argument means.

    >>> ffnbench.selftest(repeats=4)
    """
    request = asked(SelftestRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        rows = measuring.selftest(request, here.world, here.progress)
        return Answer(shown=selftest_view(rows, request.repeats), name="selftest")
