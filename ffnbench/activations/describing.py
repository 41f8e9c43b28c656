"""Facts and pictures of activations, for which nothing is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.activations.facts import Facts, facts_of
from ffnbench.activations.plan import USUAL_CHOICES, select
from ffnbench.activations.table import facts_table
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.answer import Write
from ffnbench.report.table import Table
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS = 1601


def describe_activations(names: str | None, probe: Prober) -> Table:
    """The facts of activations, for `activations`. Functions of the user's are loaded
    by a worker, and have no facts but those that they declare.
    """
    every_name = ",".join(row.name for row in ACTIVATIONS)
    chosen = select(names or every_name, probe)
    return facts_table(chosen, _facts_of(chosen))


def draw_activations(
    names: str | None, bounds: tuple[float, float], probe: Prober
) -> tuple[Figure, dict[str, Write]]:
    """The figure of activations, and what writes it or its points, by suffix."""
    from ffnbench.activations.picture import picture

    low, high = bounds
    chosen = select(names or USUAL_CHOICES, probe)
    curves = {
        label: probe.curve(spec, low, high, CURVE_POINTS)
        for label, spec in chosen.items()
    }
    return picture(curves, _facts_of(chosen))


def _facts_of(chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """The facts that are known, by label."""
    by_label = {}
    for label, spec in chosen.items():
        facts = facts_of(spec)
        if facts:
            by_label[label] = facts
    return by_label
