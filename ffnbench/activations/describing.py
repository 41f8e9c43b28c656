"""Facts and pictures of activations, for which nothing is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.activations.facts import Facts, facts_of
from ffnbench.activations.plan import (
    USUAL_CHOICES,
    every_activation,
    parse_range,
    select,
)
from ffnbench.activations.table import facts_view
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.planning.effort import check_timeout
from ffnbench.report.formats import View, Write
from ffnbench.request import FactsRequest, PictureRequest
from ffnbench.run.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS = 1601


def describe_activations(request: FactsRequest, world: World) -> View:
    """The facts of activations, for `activations`. Functions of the user's are loaded
    by a worker, and have no facts but those that they declare.
    """
    names = every_activation() if request.activations is None else request.activations
    with world.prober(check_timeout(request.timeout)) as prober:
        chosen = select(names, prober)
    return facts_view(chosen, _facts_of(chosen))


def draw_activations(
    request: PictureRequest, world: World
) -> tuple[Figure, dict[str, Write]]:
    """The figure of activations, and what writes it or its points, by suffix."""
    from ffnbench.activations.picture import picture

    low, high = parse_range(request.range_)
    names = USUAL_CHOICES if request.activations is None else request.activations
    with world.prober(check_timeout(request.timeout)) as prober:
        chosen = select(names, prober)
        curves = {
            label: prober.curve(spec, low, high, CURVE_POINTS)
            for label, spec in chosen.items()
        }
    return picture(curves, _facts_of(chosen))


def _facts_of(chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """The facts that are known, by label."""
    by_label = {}
    for label, spec in chosen.items():
        facts = facts_of(spec.row, spec.beta)
        if facts:
            by_label[label] = facts
    return by_label
