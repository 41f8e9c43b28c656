"""The command `block`."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, answer_request, ending, request_from_typed
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
    variant: o.Variant = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    bias: o.Bias = None,
    heads: o.Heads = None,
    kv_heads: o.KVHeads = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLenOfBlock = "512",
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    backend: o.Backend = "eager",
    cost_only: o.CostOnly = False,
    quick: o.Quick = False,
    precision: o.Precision = None,
    budget: o.Budget = None,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    resume: o.Resume = False,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
) -> int:
    """Compare an FFN with the attention of its block.

    Shows parameters, FLOPs, KV bytes and latency, and the FFN's share. If
    flags have lists (--seq-len 128,1024), each combination is measured.
    """
    from ffnbench.block.plan import plan_block

    request = request_from_typed(BlockRequest, ctx)
    return answer_request(ctx, request, "block", plan_block, counts=cost_only)
