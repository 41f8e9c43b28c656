"""The commands that answer which FFN: measured, counted, and shown again."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, asked, destination_of, ending, output_of
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
    placed: o.VariantsPlaced = None,
    variants: o.Variants = "relu,gelu,swiglu",
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    multiple_of: o.MultipleOf = None,
    rule: o.Rule = None,
    ratio: o.Ratio = None,
    ffn_dim_multiplier: o.FfnDimMultiplier = None,
    bias: o.Bias = None,
    dropout: o.Dropout = "0",
    reference: o.Reference = None,
    init: o.Init = "torch",
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    backend: o.Backend = "eager",
    routing: o.Routing = None,
    time: o.Time = None,
    cache: o.Cache = "hot",
    matmul_precision: o.MatmulPrecision = "highest",
    reduced_reductions: o.ReducedReductions = True,
    metrics: o.Metrics = "latency,memory,ceilings",
    control: o.Control = False,
    quick: o.Quick = False,
    precision: o.Precision = None,
    budget: o.Budget = None,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    seed: o.Seed = "0",
    timeout: o.Timeout = "300s",
    runs: o.Repeated = "1",
    pause: o.Pause = None,
    shard: o.Shard = None,
    resume: o.Resume = False,
    wait: o.Wait = False,
    on: o.On = "",
    slurm: o.Slurm = None,
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Measure variants side by side, at equal parameters.

    Parameters, FLOPs, latency, memory. Of lists (--seq-len 1,128 or 1..4096) each
    combination is measured.
    """
    from ffnbench.api.measuring import measure_here_or_as_jobs
    from ffnbench.api.preparing import prepare
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    request, output = asked(CompareRequest, ctx, variants=placed), output_of(ctx)
    with destination_of(output, "compare", *vars(request).values(), pictures=True) as destination:
        world = this_machine(wait=output.wait)
        prepared = prepare(request, world, notes=destination.defaults, as_jobs=output.measure is not None)
        destination.expect(prepared.cost_report())
        report = measure_here_or_as_jobs(prepared, world, destination, output.measure)
        destination.show(report_view(report))
    return destination.code


@app.command(
    "cost",
    cls=Command,
    epilog=ending(
        "ffnbench cost relu2,swiglu --d-model 4096 --seq-len 2Ki",
        "ffnbench cost --preset mixtral-8x7b --json",
        "ffnbench cost gelu,swiglu@moe=8x2 --mode train -f md",
        docs="docs/forms.md#widths",
    ),
)
def cost(
    ctx: typer.Context,
    placed: o.VariantsPlaced = None,
    variants: o.Variants = "relu,gelu,swiglu",
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    multiple_of: o.MultipleOf = None,
    rule: o.Rule = None,
    ratio: o.Ratio = None,
    ffn_dim_multiplier: o.FfnDimMultiplier = None,
    bias: o.Bias = None,
    dropout: o.Dropout = "0",
    reference: o.Reference = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
    out: o.Out = None,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Count parameters, FLOPs and bytes; nothing is measured.

    Of lists (--seq-len 1,128 or 1..4096) each combination is counted.
    """
    from ffnbench.api.preparing import prepare
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    request, output = asked(CostRequest, ctx, variants=placed), output_of(ctx)
    inputs = vars(request).values()
    with destination_of(output, "cost", *inputs, pictures=True, counts_only=True) as destination:
        compared = CompareRequest(**vars(request))
        report = prepare(compared, this_machine(), notes=destination.defaults, counts=True).cost_report()
        destination.expect(report)
        destination.show(report_view(report))
    return destination.code
