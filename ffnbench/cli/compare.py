"""The commands that answer which FFN, and what surrounds them: flags -> request -> plan -> run -> report -> show."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ffnbench.cli import options
from ffnbench.cli.app import app, leave
from ffnbench.errors import FfnbenchError
from ffnbench.names import hint_for
from ffnbench.request import Request

DEFAULTS = Request()


@app.command(epilog="Example: ffnbench compare --d-model 768 --variants relu,gelu,swiglu -o run.csv -o run.json")
def compare(
    variants: options.Variants = DEFAULTS.variants,
    preset: options.Preset = None,
    config: options.ConfigPath = None,
    d_model: options.DModel = None,
    d_ff: options.DFF = None,
    match: options.MatchOn = DEFAULTS.match,
    multiple_of: options.MultipleOf = None,
    rule: options.RuleName = None,
    ratio: options.Ratio = DEFAULTS.ratio,
    ffn_dim_multiplier: options.Multiplier = None,
    bias: options.Bias = DEFAULTS.bias,
    dropout: options.Dropout = DEFAULTS.dropout,
    init: options.InitName = DEFAULTS.init,
    batch: options.Batch = DEFAULTS.batch,
    seq_len: options.SeqLen = DEFAULTS.seq_len,
    dtype: options.Dtype = DEFAULTS.dtype,
    device: options.Device = DEFAULTS.device,
    mode: options.ModeName = DEFAULTS.mode,
    threads: options.Threads = None,
    backend: options.BackendName = DEFAULTS.backend,
    routing: options.RoutingName = None,
    reference: options.Reference = None,
    workers: options.Workers = None,
    rounds: options.Rounds = None,
    quick: options.Quick = False,
    precision: options.Precision = None,
    budget: options.Budget = None,
    control: options.Control = False,
    metrics: options.MetricNames = DEFAULTS.metrics,
    seed: options.Seed = DEFAULTS.seed,
    timeout: options.Timeout = DEFAULTS.timeout,
    format_: options.Format = "table",
    out: options.Out = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure variants side by side: parameters, FLOPs, latency and memory, at equal parameters."""
    request = Request(**{k: v for k, v in locals().items() if k in Request.__dataclass_fields__})
    from ffnbench import api
    from ffnbench.cli.show import check_format, finish
    from ffnbench.report.compare import compare_table
    from ffnbench.report.progress import ProgressBar
    from ffnbench.report.store import Outputs

    check_format(format_)
    prepared = api.prepare(request)
    with Outputs(out or [], "compare") as outputs:
        with ProgressBar(quiet=quiet) as progress:
            report = prepared.measure(progress)
        leave(finish(report, compare_table, outputs, format_, wide))


@app.command(epilog="Example: ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama")
def cost(
    variants: options.Variants = DEFAULTS.variants,
    preset: options.Preset = None,
    config: options.ConfigPath = None,
    d_model: options.DModel = None,
    d_ff: options.DFF = None,
    match: options.MatchOn = DEFAULTS.match,
    multiple_of: options.MultipleOf = None,
    rule: options.RuleName = None,
    ratio: options.Ratio = DEFAULTS.ratio,
    ffn_dim_multiplier: options.Multiplier = None,
    bias: options.Bias = DEFAULTS.bias,
    dropout: options.Dropout = DEFAULTS.dropout,
    batch: options.Batch = DEFAULTS.batch,
    seq_len: options.SeqLen = DEFAULTS.seq_len,
    dtype: options.Dtype = DEFAULTS.dtype,
    mode: options.ModeName = DEFAULTS.mode,
    reference: options.Reference = None,
    format_: options.Format = "table",
    out: options.Out = None,
    wide: options.Wide = False,
) -> None:
    """Count parameters, FLOPs and bytes of variants, without measuring and without torch."""
    request = Request(**{k: v for k, v in locals().items() if k in Request.__dataclass_fields__})
    from ffnbench import api
    from ffnbench.cli.show import check_format, finish
    from ffnbench.report.compare import cost_table
    from ffnbench.report.store import Outputs

    check_format(format_)
    report = api.price(request)
    with Outputs(out or [], "cost") as outputs:
        leave(finish(report, cost_table, outputs, format_, wide))


@app.command("list", epilog="Example: ffnbench list rules")
def list_(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="variants, activations, rules, presets or dtypes.")
    ] = "variants",
    format_: options.Format = "table",
    wide: options.Wide = False,
) -> None:
    """Show the names there are to choose from."""
    from ffnbench.cli.show import check_format, show_records
    from ffnbench.report.listing import FOOTNOTES, LISTINGS

    check_format(format_)
    if what not in LISTINGS:
        raise FfnbenchError(f"nothing is called {what!r}", hint_for(what, LISTINGS, "lists: " + ", ".join(LISTINGS)))
    show_records(LISTINGS[what](), format_, wide, FOOTNOTES.get(what, ()))


@app.command(epilog="Example: ffnbench env --timer")
def env(
    timer: Annotated[bool, typer.Option("--timer", help="Measure the harness: an empty call, a tick.")] = False,
    format_: options.Format = "table",
) -> None:
    """Show where numbers would be made: machine, torch, fingerprint, and what makes it noisy now."""
    from ffnbench.bench.environment import advice, describe
    from ffnbench.bench.session import Session
    from ffnbench.cli.show import check_format, show_records
    from ffnbench.report.listing import environment, timer_records

    check_format(format_)
    worker = Session()
    try:
        facts = worker.facts()
        overhead = timer_records(worker.ask({"do": "timer"}, DEFAULTS.timeout)) if timer else []
    finally:
        worker.close()
    records = [*environment(describe(facts)), *overhead]
    show_records(records, format_, False, [f"noise: {text}" for text in advice()])


@app.command(epilog="Example: ffnbench report run.json --wide")
def report(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A .json that `compare` or `cost` wrote with -o.")],
    format_: options.Format = "table",
    out: options.Out = None,
    wide: options.Wide = False,
) -> None:
    """Show a saved run again: every figure is computed anew from its samples."""
    from ffnbench import api
    from ffnbench.cli.show import check_format, finish
    from ffnbench.planning.block import is_block
    from ffnbench.report.block_files import BLOCK_WRITERS
    from ffnbench.report.store import WRITERS, Outputs

    check_format(format_)
    loaded, differs = api.recompute(api.load(path))
    writers = BLOCK_WRITERS if is_block(loaded.plan) else WRITERS
    with Outputs(out or [], "report") as outputs:
        code = finish(loaded, lambda shown: shown.table, outputs, format_, wide, writers)
    if differs:
        print(f"note: {differs}", file=sys.stderr)
    leave(0 if loaded.interrupted else code)  # showing it was not interrupted
