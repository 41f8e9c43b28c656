"""The commands about names, models, this machine, and ffnbench itself."""

from __future__ import annotations

from typing import Annotated

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command, sink_of
from ffnbench.cli.completing import completer
from ffnbench.cli.help import examples
from ffnbench.report.flags import Kept, Output, Shown, ShownQuietly
from ffnbench.request import SelftestRequest

WHAT = typer.Argument(
    metavar="WHAT",
    help="variants, keys, activations, rules, presets, dtypes or backends.",
    autocompletion=completer("what"),
)
MODEL = typer.Argument(
    metavar="CONFIG|PRESET",
    help="A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
    autocompletion=completer("model"),
)
WHOLE = typer.Option("--whole-model", help="All parameters by part: embeddings, attention, FFN, norms, head.")
TIMER = typer.Option("--timer", help="Measure the harness: an empty call, a tick.")
CEILINGS = typer.Option("--ceilings", help="Measure what this machine can do: products, reads by cache; 5 s.")


@command(
    "list",
    epilog=examples(
        "ffnbench list variants",
        "ffnbench list rules -v",
        "ffnbench list presets --json",
        docs="docs/forms.md#names-that-mean-different-things",
    ),
)
def list_(output: Shown, what: Annotated[str, WHAT] = "variants") -> None:
    """Show the names there are to choose from."""
    from ffnbench.report.tables.listing import BACKENDS, listing_view

    with sink_of(output, "list") as sink:
        if what == BACKENDS:  # what can run here is known to torch alone: a worker is asked
            from ffnbench import api

            api.backends(sink)
        else:
            sink.show(lambda: listing_view(what))


@command(
    "env",
    epilog=examples(
        "ffnbench env",
        "ffnbench env --ceilings",
        "ffnbench env --timer --json",
        docs="docs/performance.md#what-the-machine-can-do",
    ),
)
def env(
    output: ShownQuietly,
    timer: Annotated[bool, TIMER] = False,
    ceilings: Annotated[bool, CEILINGS] = False,
) -> None:
    """Show where numbers would be made: machine, torch, fingerprint, and what makes it noisy now."""
    from ffnbench import api
    from ffnbench.cli.app import described_all
    from ffnbench.cli.defaults import found_settings

    with sink_of(output, "env") as sink:
        found = found_settings(described_all)
        rows = [("defaults from", str(found.path)), *((f"default {n}", v) for n, v in found.rows())] if found else []
        api.environment(timer, sink, ceilings=ceilings, settings=rows)


@command(
    "inspect",
    epilog=examples(
        "ffnbench inspect deepseek-v3",
        "ffnbench inspect mixtral-8x7b --whole-model",
        "ffnbench inspect path/to/config.json --json",
        docs="docs/models.md#configjson",
    ),
)
def inspect(model: Annotated[str, MODEL], output: Kept, whole_model: Annotated[bool, WHOLE] = False) -> None:
    """Show a model's FFNs in words and numbers, one row a kind of layer."""
    from ffnbench import api

    with sink_of(output, "inspect", model) as sink:
        (api.inspect_whole if whole_model else api.inspect)(model, sink)


@command(
    "selftest",
    epilog=examples(
        "ffnbench selftest",
        "ffnbench selftest --threads 1 --budget 30s",
        "ffnbench selftest --repeats 40 --d-model 256 -o selftest.json",
        docs="docs/methodology.md#how-often-it-is-wrong",
    ),
)
def selftest(request: SelftestRequest, output: Output) -> None:
    """Count how often ffnbench is wrong on this machine, where the truth is known."""
    from ffnbench import api

    with sink_of(output, "selftest") as sink:
        api.selftest(request, sink)
    leave(sink.code)
