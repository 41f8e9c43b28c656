"""The command that gates without a baseline: old and new code in the same minutes on the same machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ffnbench import ab_options, options
from ffnbench.app import app, leave
from ffnbench.errors import EXIT_INTERRUPTED
from ffnbench.protocol import LONG_BUDGET_S
from ffnbench.request import Request

DEFAULTS = Request()
VARIANT = typer.Argument(
    metavar="VARIANT", help="package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`."
)


@app.command(epilog="Example: ffnbench ab mypkg.mlp:SwiGLU --base-rev origin/main --d-model 1024 --fail-above 5%")
def ab(
    variant: Annotated[str, VARIANT],
    base_rev: ab_options.BaseRev = None,
    base_python: ab_options.BasePython = None,
    base_source: ab_options.BaseSource = None,
    base_env: ab_options.BaseEnv = None,
    head_rev: ab_options.HeadRev = None,
    head_python: ab_options.HeadPython = None,
    head_source: ab_options.HeadSource = None,
    head_env: ab_options.HeadEnv = None,
    d_model: options.DModel = DEFAULTS.d_model,
    d_ff: options.DFF = None,
    bias: options.Bias = DEFAULTS.bias,
    batch: options.Batch = DEFAULTS.batch,
    seq_len: options.SeqLen = DEFAULTS.seq_len,
    dtype: options.Dtype = DEFAULTS.dtype,
    device: options.Device = DEFAULTS.device,
    mode: options.ModeName = DEFAULTS.mode,
    threads: options.Threads = None,
    fail_above: ab_options.FailAbove = None,
    allow_mismatch: ab_options.AllowMismatch = False,
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
    from ffnbench import gateshow
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
