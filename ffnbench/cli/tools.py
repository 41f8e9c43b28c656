"""The commands about names, and this machine."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, destination_of, settings_here
from ffnbench.features import listings
from ffnbench.report.flags import Shown, ShownQuietly
from ffnbench.request import ARGUMENTS, MEASURING, flag


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Which names."""

    what: str = flag(
        "variants", "variants, keys, activations, rules, presets, dtypes, backends or hardware.", ARGUMENTS,
        place="WHAT",
    )  # fmt: skip


@command(
    "list",
    "ffnbench list variants",
    "ffnbench list rules -v",
    "ffnbench list presets --json",
    docs="docs/forms.md#names-that-mean-different-things",
)
def list_(topic: Topic, output: Shown) -> int:
    """Show the names there are to choose from."""
    from ffnbench.report.listing import BACKENDS, listing_view

    with destination_of(output, "list") as destination:
        if topic.what == BACKENDS:
            from ffnbench.api.this_machine import backends
            from ffnbench.run.world import this_machine

            view = backends(this_machine())
        elif topic.what in listings():
            view = listings()[topic.what].file("listing").LISTINGS[topic.what]()
        else:
            view = listing_view(topic.what)
        destination.show(view)
    return 0


@dataclass(frozen=True, kw_only=True)
class OfMachine:
    """What of the machine is measured."""

    timer: bool = flag(False, "Measure the harness: an empty call, a tick.", MEASURING)
    ceilings: bool = flag(False, "Measure what this machine can do: products, reads by cache; 5 s.", MEASURING)


@command(
    "env",
    "ffnbench env",
    "ffnbench env --ceilings",
    "ffnbench env --timer --json",
    docs="docs/performance.md#what-the-machine-can-do",
)
def env(asked: OfMachine, output: ShownQuietly) -> int:
    """Show where numbers would be made: machine, torch, fingerprint, and what makes it noisy now."""
    from ffnbench.api.this_machine import environment
    from ffnbench.run.world import this_machine

    with destination_of(output, "env") as destination:
        settings = settings_here()
        rows = settings.rows() if settings else []
        world, progress = this_machine(), destination.progress
        destination.show(environment(world, progress, timer=asked.timer, ceilings=asked.ceilings, settings=rows))
    return 0
