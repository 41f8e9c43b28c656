"""The commands of a gate: has it got slower, or larger?"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ffnbench import options
from ffnbench.app import app, leave, refuse_idle
from ffnbench.errors import EXIT_INTERRUPTED
from ffnbench.protocol import LONG_BUDGET_S

BASELINE = typer.Argument(metavar="BASELINE", help="A .json that `ffnbench compare ... -o baseline.json` made.")


CURRENT = typer.Argument(metavar="[CURRENT]", help="A saved run to hold against it, in place of measuring now.")
TIMING_FLAGS = ("budget", "absolute", "across_machines")


@app.command(epilog="Example: ffnbench check results/ci/baseline.json --tolerance latency=5% --format github")
def check(
    context: typer.Context,
    baseline: Annotated[str, BASELINE],
    current: Annotated[str | None, CURRENT] = None,
    tolerance: options.Tolerances = None,
    exact_only: options.ExactOnly = False,
    budget: options.GateBudget = LONG_BUDGET_S,
    across_machines: options.AcrossMachines = False,
    absolute: options.Absolute = False,
    on_unclear: options.OnUnclear = "pass",
    update: options.Update = False,
    format_: options.GateFormat = "table",
    export: options.Exports = None,
    out: options.GateOut = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a baseline's own plan again and say what has regressed: exit 1, and nothing else exits 1."""
    from ffnbench import gate, gateshow
    from ffnbench.report.progress import ProgressBar

    refuse_idle(context, TIMING_FLAGS if exact_only else ("budget",) if current else (), "nothing is timed")
    asked = gate.Options(
        tolerances=tuple(tolerance or ()), budget=budget, exact_only=exact_only, across_machines=across_machines,
        absolute=absolute, current=current,
    )  # fmt: skip
    wanted = gateshow.Wanted.checked(baseline, format_, export or [], out or [], on_unclear, update, exact_only)
    with wanted.outputs as outputs:
        with ProgressBar(quiet=quiet) as progress:
            answer = gate.check(baseline, asked, progress)
        code = gateshow.show_gate(answer, wanted, outputs, wide, os.environ.get("GITHUB_STEP_SUMMARY"))
    if answer.now.interrupted or (answer.again and answer.again.interrupted):
        code = EXIT_INTERRUPTED
    sys.stdout.flush()
    leave(code)
