"""The commands: flags -> request -> plan -> run -> report -> show. Owns the exit codes, and nothing else.

0 done; 2 usage or input, before measuring; 3 could not finish, or a bug (with its traceback); 130 interrupted. Code 1
is kept for a gate that found a regression.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ffnbench import __version__, options
from ffnbench.errors import EXIT_INTERRUPTED, EXIT_UNFINISHED, EXIT_USAGE, FfnbenchError, Unfinished
from ffnbench.interruption import termination_as_interruption
from ffnbench.registry import hint_for
from ffnbench.request import Request
from ffnbench.result import Report

INTERRUPTED = "interrupted before the answer was complete"


class _Commands(TyperGroup):
    """Typer would end silently at an interruption."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(complain(INTERRUPTED, "", EXIT_INTERRUPTED)) from None


DEFAULTS = Request()
TIMING_FLAGS = ("elements", "dtype", "device", "threads", "workers", "rounds", "quick", "seed")
app = typer.Typer(
    cls=_Commands,
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
        with termination_as_interruption():
            code = app(standalone_mode=False)
    except FfnbenchError as problem:
        code = complain(problem.message, problem.hint, problem.exit_code)
    except KeyboardInterrupt:
        code = complain(INTERRUPTED, "", EXIT_INTERRUPTED)
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

    _check_format(format_)
    prepared = api.prepare(request)
    with Outputs(out or [], "compare") as outputs:
        with ProgressBar(quiet=quiet) as progress:
            report = prepared.measure(progress)
        _finish(report, compare_table, outputs, format_, wide)


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

    _check_format(format_)
    report = api.price(request)
    with Outputs(out or [], "cost") as outputs:
        _finish(report, cost_table, outputs, format_, wide)


@app.command("plot-activations", epilog="Example: ffnbench plot-activations --activations relu,gelu,silu -o curves.svg")
def plot_activations(
    activations: options.Activations = None,
    range_: options.Range = "-4:4",
    derivative: options.Derivative = None,
    gated: options.Gated = False,
    size: options.Size = None,
    dpi: options.Dpi = 150,
    style: options.Style = "default",
    timeout: options.Timeout = DEFAULTS.timeout,
    out: options.PictureOut = None,
) -> None:
    """Draw activations with their derivatives, or the surfaces of gated forms, to png, svg, pdf or csv."""
    from ffnbench.gallery import draw

    lines = draw(
        activations=activations, range_=range_, derivative=derivative, gated=gated, size=size, dpi=dpi, style=style,
        timeout=timeout, out=out or ["activations.png"],
    )  # fmt: skip
    print("\n".join(lines))


@app.command(epilog="Examples: ffnbench activations --wide; ffnbench activations --time --quick --dtype float32,bf16")
def activations(
    context: typer.Context,
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
    from ffnbench import gallery, timing
    from ffnbench.report.progress import ProgressBar

    _check_format(format_)
    if not time:
        timing.refuse_without_time([name for name in TIMING_FLAGS if _given(context, name)])
        _show_tables(*gallery.tell_facts(activations, timeout), format_, wide)
        return
    request = timing.timing_request(
        elements=elements, dtypes=dtype, device=device, threads=threads, workers=workers, rounds=rounds, quick=quick,
        seed=seed, timeout=timeout,
    )  # fmt: skip
    with ProgressBar(quiet=quiet) as progress:
        told = timing.tell_times(activations, request, progress)
    _show_tables(told.records, told.tables, format_, wide)
    if told.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if told.problem:
        raise told.problem


def _given(context: typer.Context, name: str) -> bool:
    """Whether a flag was typed, be it with the value of its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command("list", epilog="Example: ffnbench list rules")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="variants, activations, rules or dtypes.")] = "variants",
    format_: options.Format = "table",
    wide: options.Wide = False,
) -> None:
    """Show the names there are to choose from."""
    from ffnbench.report.listing import FOOTNOTES, LISTINGS

    _check_format(format_)
    if what not in LISTINGS:
        raise FfnbenchError(f"nothing is called {what!r}", hint_for(what, LISTINGS, "lists: " + ", ".join(LISTINGS)))
    _show_records(LISTINGS[what](), format_, wide, FOOTNOTES.get(what, ()))


@app.command(epilog="Example: ffnbench env --format json")
def env(format_: options.Format = "table") -> None:
    """Show where numbers would be made: machine, torch, fingerprint, and what makes it noisy now."""
    from ffnbench.bench.environment import advice, describe
    from ffnbench.bench.session import Session
    from ffnbench.report.listing import environment

    _check_format(format_)
    worker = Session()
    try:
        facts = worker.facts()
    finally:
        worker.close()
    _show_records(environment(describe(facts)), format_, False, [f"noise: {text}" for text in advice()])


def _check_format(name: str) -> None:
    from ffnbench.report.store import FORMATS

    if name not in FORMATS:
        raise FfnbenchError(f"unknown format {name!r}", hint_for(name, FORMATS, "formats: " + ", ".join(FORMATS)))


def _finish(report: Report, table_of: Any, outputs: Any, format_: str, wide: bool) -> None:
    """Show the answer, write the files, choose the exit code."""
    from ffnbench.report.store import FORMATS, WRITERS
    from ffnbench.report.text import show

    if report.interrupted and not report.samples:
        raise typer.Exit(complain("interrupted before anything was measured", "", EXIT_INTERRUPTED))
    if format_ == "table":
        show(table_of(report), Console(), wide=wide)
    else:
        sys.stdout.write(WRITERS[FORMATS[format_]](report, table_of))
    sys.stdout.flush()
    if paths := outputs.write(lambda suffix: WRITERS[suffix](report, table_of).encode()):
        print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    if report.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if report.stopped:
        raise Unfinished(report.stopped, "the table holds what was measured by then")
    if report.failures and len({f.case for f in report.failures}) == len(report.plan.cases):
        raise Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")


def _show_records(records: list[dict[str, Any]], format_: str, wide: bool, footnotes: Sequence[str] = ()) -> None:
    from ffnbench.report import listing
    from ffnbench.report.text import show

    if format_ == "table":
        show(listing.table(records, footnotes), Console(), wide=wide)
    else:
        sys.stdout.write(listing.machine_readable(records, format_))


def _show_tables(records: list[dict[str, Any]], tables: list[Any], format_: str, wide: bool) -> None:
    from ffnbench.report import listing
    from ffnbench.report.text import markdown, show

    if format_ == "markdown":
        sys.stdout.write("\n".join(markdown(table, every=True) for table in tables))
        return
    if format_ != "table":
        sys.stdout.write(listing.machine_readable(records, format_))
        return
    for i, table in enumerate(tables):
        if i:
            print()
        show(table, Console(), wide=wide)
