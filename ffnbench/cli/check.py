"""The commands of a gate: has it got slower, or larger?"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ffnbench.cli import options
from ffnbench.cli.app import app, leave, refuse_idle
from ffnbench.errors import EXIT_INTERRUPTED
from ffnbench.planning.effort import LONG_BUDGET_S
from ffnbench.request import Request

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
    from ffnbench import gate
    from ffnbench.cli import show as gateshow
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


DEFAULTS = Request()
VARIANT = typer.Argument(
    metavar="VARIANT", help="package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`."
)


@app.command(epilog="Example: ffnbench ab mypkg.mlp:SwiGLU --base-rev origin/main --d-model 1024 --fail-above 5%")
def ab(
    variant: Annotated[str, VARIANT],
    base_rev: options.BaseRev = None,
    base_python: options.BasePython = None,
    base_source: options.BaseSource = None,
    base_env: options.BaseEnv = None,
    head_rev: options.HeadRev = None,
    head_python: options.HeadPython = None,
    head_source: options.HeadSource = None,
    head_env: options.HeadEnv = None,
    d_model: options.DModel = DEFAULTS.d_model,
    d_ff: options.DFF = None,
    bias: options.Bias = DEFAULTS.bias,
    batch: options.Batch = DEFAULTS.batch,
    seq_len: options.SeqLen = DEFAULTS.seq_len,
    dtype: options.Dtype = DEFAULTS.dtype,
    device: options.Device = DEFAULTS.device,
    mode: options.ModeName = DEFAULTS.mode,
    threads: options.Threads = None,
    fail_above: options.FailAbove = None,
    allow_mismatch: options.AllowMismatch = False,
    tolerance: options.Tolerances = None,
    exact_only: options.ExactOnly = False,
    budget: options.GateBudget = LONG_BUDGET_S,
    on_unclear: options.OnUnclear = "pass",
    seed: options.Seed = DEFAULTS.seed,
    timeout: options.Timeout = DEFAULTS.timeout,
    format_: options.GateFormat = "table",
    export: options.Exports = None,
    out: options.GateOut = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure one module twice, old and new side by side, and say what has regressed: exit 1.

    Base and head may be git revisions, folders, interpreters, environments. Head is this environment and the working
    tree as it is, unless it is said otherwise. With no baseline to be kept, it gates as `ffnbench check` does.
    """
    from ffnbench import ab as journey
    from ffnbench.cli import show as gateshow
    from ffnbench.report.progress import ProgressBar

    request = Request(
        variants=variant, d_model=d_model, d_ff=d_ff, bias=bias, batch=batch, seq_len=seq_len, dtype=dtype,
        device=device, mode=mode, threads=threads, seed=seed, timeout=timeout,
    )  # fmt: skip
    question = journey.Question(
        request=request,
        base=journey.SideFlags(rev=base_rev, source=base_source, python=base_python, env=tuple(base_env or ())),
        head=journey.SideFlags(rev=head_rev, source=head_source, python=head_python, env=tuple(head_env or ())),
        tolerances=tuple(tolerance or ()), fail_above=fail_above, budget=budget, exact_only=exact_only,
        allow_mismatch=allow_mismatch,
    )  # fmt: skip
    wanted = gateshow.Wanted.checked("", format_, export or [], out or [], on_unclear, False, exact_only)
    with wanted.outputs as outputs:
        with ProgressBar(quiet=quiet) as progress:
            answer = journey.ab(question, progress)
        code = gateshow.show_gate(answer, wanted, outputs, wide, os.environ.get("GITHUB_STEP_SUMMARY"))
    if answer.now.interrupted or (answer.again and answer.again.interrupted):
        code = EXIT_INTERRUPTED
    sys.stdout.flush()
    leave(code)
