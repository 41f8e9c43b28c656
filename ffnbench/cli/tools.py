"""The commands about names, models, this machine, and ffnbench itself."""

from __future__ import annotations

from typing import Annotated

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command, settings
from ffnbench.cli.completing import COMPLETERS
from ffnbench.cli.help import examples
from ffnbench.report.files.outputs import inputs_of
from ffnbench.report.formats import FORMATS, SUFFIXES
from ffnbench.report.output import Kept, Output, OutputSink, Shown, ShownQuietly
from ffnbench.request import SelftestRequest

WORDS = {"formats": ", ".join(FORMATS), "suffixes": ", ".join(SUFFIXES)}


@command(
    "list",
    epilog=examples(
        "ffnbench list variants",
        "ffnbench list rules --wide",
        "ffnbench list presets --json",
        docs="docs/forms.md#names-that-mean-different-things",
    ),
    words=WORDS,
)
def list_(
    output: Shown,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="variants, keys, activations, rules, presets, dtypes or backends.",
            autocompletion=COMPLETERS["what"],
        ),
    ] = "variants",
) -> None:
    """Show the names there are to choose from."""
    from ffnbench.report.tables.listing import BACKENDS, listing_view

    with OutputSink(output, "list") as sink:
        if what == BACKENDS:  # what can run here is known to torch alone: a worker is asked
            from ffnbench import api

            api.backends(sink)
        else:
            sink.show(lambda: listing_view(what))


@command(
    epilog=examples(
        "ffnbench env",
        "ffnbench env --ceilings",
        "ffnbench env --timer --json",
        docs="docs/performance.md#what-the-machine-can-do",
    ),
    words=WORDS,
)
def env(
    output: ShownQuietly,
    timer: Annotated[bool, typer.Option("--timer", help="Measure the harness: an empty call, a tick.")] = False,
    ceilings: Annotated[
        bool, typer.Option("--ceilings", help="Measure what this machine can do: products, reads by cache; 5 s.")
    ] = False,
) -> None:
    """Show where numbers would be made: machine, torch, fingerprint, and what makes it noisy now."""
    from ffnbench import api

    with OutputSink(output, "env") as sink:
        found = settings()
        rows = [("defaults from", str(found.path)), *((f"default {n}", v) for n, v in found.rows())] if found else []
        api.environment(timer, sink, ceilings=ceilings, settings=rows)


MODEL = typer.Argument(
    metavar="CONFIG|PRESET",
    help="A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
    autocompletion=COMPLETERS["model"],
)


@command(
    epilog=examples(
        "ffnbench inspect deepseek-v3",
        "ffnbench inspect mixtral-8x7b --whole-model",
        "ffnbench inspect path/to/config.json --json",
        docs="docs/models.md#configjson",
    ),
    words=WORDS,
)
def inspect(
    model: Annotated[str, MODEL],
    output: Kept,
    whole_model: Annotated[
        bool, typer.Option("--whole-model", help="All parameters by part: embeddings, attention, FFN, norms, head.")
    ] = False,
) -> None:
    """Show a model's FFNs in words and numbers, one row a kind of layer."""
    from ffnbench import api

    with OutputSink(output, "inspect", inputs=inputs_of(model)) as sink:
        if whole_model:
            api.inspect_whole(model, sink)
        else:
            api.inspect(model, sink)


@command(
    epilog=examples(
        "ffnbench selftest",
        "ffnbench selftest --threads 1 --budget 30s",
        "ffnbench selftest --repeats 40 --d-model 256 -o selftest.json",
        docs="docs/methodology.md#how-often-it-is-wrong",
    ),
    words=WORDS,
)
def selftest(request: SelftestRequest, output: Output) -> None:
    """Count how often ffnbench is wrong on this machine, where the truth is known."""
    from ffnbench import api

    with OutputSink(output, "selftest") as sink:
        api.selftest(request, sink)
    leave(sink.code)
