"""The command `block`."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, asked, destination_of, ending, output_of
from ffnbench.request import BlockRequest

app = typer.Typer()


@app.command(
    "block",
    cls=Command,
    epilog=ending(
        "ffnbench block --preset bert-base --cost-only",
        "ffnbench block llama3-8b --seq-len 128,1Ki,8Ki --cost-only",
        "ffnbench block --d-model 512 --quick",
        docs="docs/block.md#what-is-counted",
    ),
)
def block(
    ctx: typer.Context,
    placed: o.VariantPlaced = None,
    variant: o.Variant = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    bias: o.Bias = None,
    heads: o.Heads = None,
    kv_heads: o.KVHeads = None,
    head_dim: o.HeadDim = None,
    causal: o.Causal = None,
    textbook: o.Textbook = True,
    batch: o.Batch = "1",
    seq_len: o.BlockSeqLen = "512",
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    backend: o.Backend = "eager",
    time: o.Time = None,
    cache: o.Cache = "hot",
    matmul_precision: o.MatmulPrecision = "highest",
    reduced_reductions: o.ReducedReductions = True,
    cost_only: o.CostOnly = False,
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
    """Set an FFN beside the attention of its block.

    Parameters, FLOPs, KV bytes, latency, and the share of each. Of lists (--seq-len
    128,1024) each combination is measured.
    """
    from ffnbench.api.measuring import measure_here_or_as_jobs
    from ffnbench.api.preparing import prepare
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    request, output = asked(BlockRequest, ctx, variant=placed), output_of(ctx)
    with destination_of(output, "block", *vars(request).values(), pictures=True) as destination:
        world, counts = this_machine(wait=output.wait), request.cost_only
        as_jobs = None if counts else output.measure
        prepared = prepare(request, world, notes=destination.defaults, counts=counts, as_jobs=as_jobs is not None)
        report = prepared.cost_report()
        destination.expect(report)
        if not counts:
            report = measure_here_or_as_jobs(prepared, world, destination, as_jobs)
        destination.show(report_view(report))
    return destination.code
