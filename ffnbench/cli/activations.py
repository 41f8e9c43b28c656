"""The commands that look at activations, and at ffnbench itself."""

from __future__ import annotations

import sys

import typer

from ffnbench.cli import options
from ffnbench.cli.app import app, given, leave
from ffnbench.errors import EXIT_INTERRUPTED, Interrupted, Unfinished
from ffnbench.request import Request

DEFAULTS = Request()
TIMING_FLAGS = ("elements", "dtype", "device", "threads", "workers", "rounds", "quick", "seed")


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
    from ffnbench.cli.show import check_format, show_tables
    from ffnbench.report.progress import ProgressBar

    check_format(format_)
    if not time:
        timing.refuse_without_time(given(context, TIMING_FLAGS))
        show_tables(*gallery.tell_facts(activations, timeout), format_, wide)
        return
    request = timing.timing_request(
        elements=elements, dtypes=dtype, device=device, threads=threads, workers=workers, rounds=rounds, quick=quick,
        seed=seed, timeout=timeout,
    )  # fmt: skip
    with ProgressBar(quiet=quiet) as progress:
        told = timing.tell_times(activations, request, progress)
    show_tables(told.records, told.tables, format_, wide)
    if told.problem:
        raise told.problem
    leave(EXIT_INTERRUPTED if told.interrupted else 0)


@app.command(epilog="Examples: ffnbench selftest; ffnbench selftest --live -o selftest.json; ffnbench selftest --gate")
def selftest(
    gate: options.GateToo = False,
    runs: options.Runs = None,
    live: options.Live = False,
    repeats: options.Repeats = None,
    budget: options.LiveBudget = None,
    d_model: options.LiveWidth = None,
    seed: options.Seed = DEFAULTS.seed,
    saved: options.SavedReadings = None,
    format_: options.Format = "table",
    out: options.RecordsOut = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Count how often ffnbench is wrong: on simulated machines in seconds, with --live on this one."""
    from ffnbench import trial
    from ffnbench.cli.show import check_format, show_tables
    from ffnbench.report import listing
    from ffnbench.report.progress import ProgressBar
    from ffnbench.report.store import Outputs

    check_format(format_)
    asked = trial.Asked(
        gate=gate, live=live, runs=runs, repeats=repeats, budget=budget, d_model=d_model, seed=seed,
        saved=tuple(saved or ()),
    )  # fmt: skip
    question = trial.question(asked)
    with Outputs(out or [], "selftest", (".json", ".csv", ".md")) as outputs:
        with ProgressBar(quiet=quiet) as progress:
            records, table, broken = question(progress)
        show_tables(records, [table], format_, wide)
        for path in outputs.write(lambda suffix: listing.as_file(records, [table], suffix).encode()):
            print(f"wrote {path}", file=sys.stderr)
    if trial.ENDED_EARLY in broken:
        raise Interrupted(trial.ENDED_EARLY)
    if broken:
        raise Unfinished("the selftest failed: " + "; ".join(broken), "the numbers of this ffnbench can't be trusted")
