"""The commands that ask whether code has got slower or larger: `check` against a saved
baseline, `ab` between old and new code.
"""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, ending, output_from_typed, request_from_typed
from ffnbench.request import CheckRequest, SidesRequest

app = typer.Typer()


@app.command(
    "check",
    cls=Command,
    epilog=ending(
        "ffnbench check baseline.json --tolerance 5% --format github",
        "ffnbench check baseline.json --exact-only",
        "ffnbench check baseline.json --budget 5m --update",
        docs="docs/ci.md#a-stored-baseline",
    ),
)
def check(
    ctx: typer.Context,
    baseline: o.Baseline,
    current: o.Current = None,
    tolerance: o.Tolerance = None,
    exact_only: o.ExactOnly = False,
    budget: o.Budget = "120s",
    trust: o.Trust = None,
    update: o.Update = False,
    on_unclear: o.OnUnclear = "pass",
    wait: o.Wait = False,
    format: o.CheckFormat = "table",
    verbose: o.Verbose = False,
    out: o.CheckOut = None,
    quiet: o.Quiet = False,
) -> int:
    """Measure a baseline again, and show what regressed.

    The exit code is 1 if a row regressed, and only then.
    """
    from ffnbench.gate import checking
    from ffnbench.gate.check_destination import CheckDestination
    from ffnbench.gate.shown_check import check_view
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(CheckRequest, ctx), output_from_typed(ctx)
    inputs = (request.baseline, request.current)
    with CheckDestination(output, request.baseline, inputs) as destination:
        for default in destination.defaults:
            destination.progress.tell(f"note: {default}")
        world = this_machine(wait=output.wait)
        checked = checking.check(request, world, destination.following, updates=update)
        destination.show(check_view(checked))
    return destination.code


@app.command(
    "ab",
    cls=Command,
    epilog=ending(
        "ffnbench ab mypkg.mlp:SwiGLU origin/main --d-model 1024 --tolerance 5%",
        "ffnbench ab swiglu --base-python .venv-old/bin/python --mode train",
        "ffnbench ab mypkg/mlp.py:SwiGLU v1.0 --exact-only --format github",
        docs="docs/ci.md#ab-in-a-pull-request",
    ),
)
def ab(
    ctx: typer.Context,
    variant: o.Code,
    base_rev: o.BaseRev = None,
    base_python: o.BasePython = None,
    base_source: o.BaseSource = None,
    base_env: o.BaseEnv = None,
    head_rev: o.HeadRev = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    tolerance: o.Tolerance = None,
    exact_only: o.ExactOnly = False,
    budget: o.Budget = "120s",
    allow_mismatch: o.AllowMismatch = False,
    on_unclear: o.OnUnclear = "pass",
    wait: o.Wait = False,
    format: o.CheckFormat = "table",
    verbose: o.Verbose = False,
    out: o.CheckOut = None,
    quiet: o.Quiet = False,
) -> int:
    """Compare the old and the new code of one module.

    The exit code is 1 if a row regressed.

    Base, the old side, may be a git revision, a folder, an interpreter or
    an environment. Head, the new side, is the working tree, unless
    --head-rev names a revision. It needs no baseline, and decides as
    `ffnbench check` does.
    """
    from ffnbench.gate import checking
    from ffnbench.gate.check_destination import CheckDestination
    from ffnbench.gate.shown_check import check_view
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(SidesRequest, ctx), output_from_typed(ctx)
    with CheckDestination(output) as destination:
        world = this_machine(wait=output.wait)
        checked = checking.ab(
            request, world, destination.following, notes=destination.defaults
        )
        destination.show(check_view(checked))
    return destination.code
