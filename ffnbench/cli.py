"""The commands: flags -> request -> plan -> run -> report -> show. Owns the exit codes, and nothing else.

0 done; 2 usage or input, before measuring; 3 could not finish, or a bug (with its traceback); 130 interrupted. Code 1
is kept for a gate that found a regression.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from ffnbench import __version__, options
from ffnbench.errors import EXIT_INTERRUPTED, EXIT_UNFINISHED, EXIT_USAGE, FfnbenchError, Unfinished
from ffnbench.registry import hint_for
from ffnbench.request import Request

DEFAULTS = Request()
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build any Transformer FFN from flags, count it exactly, measure it honestly.",
    epilog="Start with: ffnbench compare --d-model 768 --variants relu,gelu,swiglu",
)


def main() -> None:
    """The console script: one voice for every error, and a bug never looks like a result."""
    try:
        code = app(standalone_mode=False)
    except FfnbenchError as problem:
        code = complain(problem.message, problem.hint, problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = complain("interrupted before anything was measured", "", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # the reader has gone: nothing more to say, and no complaint at exit
        code = EXIT_UNFINISHED
    except OSError as problem:
        code = complain(f"{problem.strerror or problem}", "can stdout be written to?", EXIT_UNFINISHED)
    except Exception as problem:
        code = _usage_error(problem)
    sys.exit(code)


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def complain(message: str, hint: str, code: int) -> int:
    """`error:` and `hint:` on stderr; gives the exit code back."""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code


def _usage_error(problem: Exception) -> int:
    """Typer's own complaints (an unknown option, a word for a number) in our voice; anything else is a bug."""
    if not isinstance(problem, typer.BadParameter.__bases__[0]):
        traceback.print_exception(problem)
        return complain("this is a bug in ffnbench", "please report it with the lines above", EXIT_UNFINISHED)
    context: Any = getattr(problem, "ctx", None)
    command = context.command_path if context else "ffnbench"
    message = " ".join(str(getattr(problem, "format_message")()).split()).rstrip(".")  # noqa: B009
    if not message:  # no_args_is_help
        return 0
    return complain(message[:1].lower() + message[1:], f"`{command} --help` shows what there is", EXIT_USAGE)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ffnbench {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Build any Transformer FFN from flags, count it exactly, measure it honestly."""


@app.command(epilog="Example: ffnbench compare --d-model 768 --variants relu,gelu,swiglu -o run.csv -o run.json")
def compare(
    variants: options.Variants = DEFAULTS.variants,
    d_model: options.DModel = DEFAULTS.d_model,
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
    from ffnbench.report.progress import ProgressBar
    from ffnbench.report.store import Outputs
    from ffnbench.report.table import compare_table
    from ffnbench.show import check_format, finish

    check_format(format_)
    prepared = api.prepare(request)
    with Outputs(out or [], "compare") as outputs:
        with ProgressBar(quiet=quiet) as progress:
            report = prepared.measure(progress)
        _exit(finish(report, compare_table, outputs, format_, wide))


@app.command(epilog="Example: ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama")
def cost(
    variants: options.Variants = DEFAULTS.variants,
    d_model: options.DModel = DEFAULTS.d_model,
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
    from ffnbench.report.store import Outputs
    from ffnbench.report.table import cost_table
    from ffnbench.show import check_format, finish

    check_format(format_)
    report = api.price(request)
    with Outputs(out or [], "cost") as outputs:
        _exit(finish(report, cost_table, outputs, format_, wide))


@app.command("plot-activations", epilog="Example: ffnbench plot-activations --activations relu,gelu,silu -o curves.svg")
def plot_activations(
    activations: options.Activations = None,
    range_: options.Range = "-4:4",
    derivative: options.Derivative = True,
    gated: options.Gated = False,
    size: options.Size = None,
    dpi: options.Dpi = 150,
    style: options.Style = "default",
    out: options.PictureOut = None,
) -> None:
    """Draw activations with their derivatives, or the surfaces of gated forms, to png, svg, pdf or csv."""
    from ffnbench.gallery import draw

    for line in draw(activations, range_, derivative, gated, size, dpi, style, out or ["activations.png"]):
        print(line)


@app.command(epilog="Examples: ffnbench activations --wide; ffnbench activations --time --quick --dtype float32,bf16")
def activations(
    activations: options.Activations = None,
    time: options.Time = False,
    elements: options.Elements = None,
    dtype: options.Dtypes = None,
    device: options.Device = DEFAULTS.device,
    threads: options.Threads = None,
    workers: options.Workers = None,
    rounds: options.Rounds = None,
    quick: options.Quick = False,
    seed: options.Seed = DEFAULTS.seed,
    timeout: options.Timeout = DEFAULTS.timeout,
    format_: options.Format = "table",
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the facts of activations, or with --time what their operations cost."""
    from ffnbench import gallery
    from ffnbench.report.progress import ProgressBar
    from ffnbench.show import check_format, show_tables

    check_format(format_)
    if not time:
        gallery.refuse_without_time(elements=elements, dtype=dtype, workers=workers, rounds=rounds, threads=threads)
        records, tables, failed = gallery.tell_facts(activations, timeout)
    else:
        request = gallery.timing_request(elements, dtype, device, threads, workers, rounds, quick, seed, timeout)
        with ProgressBar(quiet=quiet) as progress:
            records, tables, failed = gallery.tell_times(activations, request, progress)
    show_tables(records, tables, format_, wide)
    _exit(failed)


@app.command(epilog="Examples: ffnbench selftest; ffnbench selftest --live --repeats 5 -o selftest.json")
def selftest(
    runs: options.Runs = 1000,
    live: options.Live = False,
    repeats: options.Repeats = None,
    budget: options.LiveBudget = None,
    d_model: options.LiveWidth = None,
    format_: options.Format = "table",
    out: options.RecordsOut = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Count how often ffnbench is wrong: on simulated machines in seconds, with --live on this one."""
    from ffnbench import trial
    from ffnbench.report import listing
    from ffnbench.report.progress import ProgressBar
    from ffnbench.report.store import Outputs
    from ffnbench.show import check_format, show_tables

    check_format(format_)
    question = trial.question(runs, live, repeats, budget, d_model)
    with Outputs(out or [], "selftest", (".json", ".csv", ".md")) as outputs:
        with ProgressBar(quiet=quiet) as progress:
            records, table, broken = question(progress)
        show_tables(records, [table], format_, wide)
        for path in outputs.write(lambda suffix: listing.as_file(records, [table], suffix).encode()):
            print(f"wrote {path}", file=sys.stderr)
    if broken:
        raise Unfinished("the selftest failed: " + "; ".join(broken), "the numbers of this ffnbench can't be trusted")


@app.command("list", epilog="Example: ffnbench list rules")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="variants, activations, rules or dtypes.")] = "variants",
    format_: options.Format = "table",
    wide: options.Wide = False,
) -> None:
    """Show the names there are to choose from."""
    from ffnbench.report.listing import FOOTNOTES, LISTINGS
    from ffnbench.show import check_format, show_records

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
    from ffnbench.report.listing import environment, timer_records
    from ffnbench.show import check_format, show_records

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
    from ffnbench.report.store import Outputs
    from ffnbench.show import check_format, finish

    check_format(format_)
    loaded, differs = api.recompute(api.load(path))
    with Outputs(out or [], "report") as outputs:
        code = finish(loaded, lambda shown: shown.table, outputs, format_, wide)
    if differs:
        print(f"note: {differs}", file=sys.stderr)
    _exit(code)
