"""The commands `compare`, which measures, and `cost`, which only counts."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, answer_request, ending, request_from_typed
from ffnbench.request import CompareRequest, CostRequest

app = typer.Typer()


@app.command(
    "compare",
    cls=Command,
    epilog=ending(
        "ffnbench compare relu,gelu,swiglu --d-model 768 -o run.csv -o run.json",
        "ffnbench compare gelu,swiglu@d_ff=1536..2560/128 --d-model 768 -o d_ff.png",
        "ffnbench compare llama3-8b --seq-len 2Ki --precision 0.5% --budget 2m",
        docs="docs/methodology.md#the-method-on-one-page",
    ),
)
def compare(
    ctx: typer.Context,
    variants: o.Variants = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    bias: o.Bias = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    weights: o.Weights = "none",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    backend: o.Backend = "eager",
    metrics: o.Metrics = "latency,memory",
    layer: o.Layer = None,
    quick: o.Quick = False,
    precision: o.Precision = None,
    budget: o.Budget = None,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    seed: o.Seed = "0",
    timeout: o.Timeout = "300s",
    runs: o.Runs = "1",
    pause: o.Pause = None,
    resume: o.Resume = False,
    wait: o.Wait = False,
    on: o.On = "",
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Measure variants side by side, at equal parameters.

    Shows parameters, FLOPs, latency and memory. If flags have lists
    (--seq-len 1,128 or 1..4096), each combination is measured.
    """
    from ffnbench.planning.compare import plan_compare

    request = request_from_typed(CompareRequest, ctx)
    return answer_request(ctx, request, "compare", plan_compare)


@app.command(
    "cost",
    cls=Command,
    epilog=ending(
        "ffnbench cost relu2,swiglu --d-model 4096 --seq-len 2Ki",
        "ffnbench cost --preset mixtral-8x7b --json",
        "ffnbench cost relu,swiglu --hardware h100,mi300x --dtype bf16",
        docs="docs/forms.md#widths",
    ),
)
def cost(
    ctx: typer.Context,
    variants: o.Variants = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    bias: o.Bias = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    weights: o.Weights = "none",
    mode: o.Mode = "forward",
    hardware: o.Hardware = None,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Count parameters, FLOPs and bytes; nothing is measured.

    If flags have lists (--seq-len 1,128 or 1..4096), each combination is
    counted.
    """
    from ffnbench.planning.compare import as_compare, plan_compare

    request = as_compare(request_from_typed(CostRequest, ctx))
    if request.hardware is None:
        return answer_request(ctx, request, "cost", plan_compare, counts=True)
    from ffnbench.planning.hardware import machines_named

    machines = machines_named(request.hardware)
    return answer_request(
        ctx, request, "cost", plan_compare, counts=True, machines=machines
    )
