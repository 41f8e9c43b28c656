"""What is told and drawn of activations without timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.activations.facts import Facts, facts_of
from ffnbench.activations.plan import CHOSEN, every_activation, every_gated_form, parse_range, select
from ffnbench.activations.table import facts_view
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.planning.effort import check_timeout
from ffnbench.report.formats import View, Write
from ffnbench.request import FactsRequest, PictureRequest
from ffnbench.run.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS, SURFACE_POINTS = 1601, 161


def facts(request: FactsRequest, world: World) -> View:
    """What is true of activations; a worker looks at functions of the user's, of which no facts are known."""
    with world.prober(check_timeout(request.timeout)) as prober:
        chosen = select(every_activation() if request.activations is None else request.activations, prober)
    return facts_view(chosen, _facts_of(chosen))


def draw_activations(request: PictureRequest, world: World) -> tuple[Figure, dict[str, Write]]:
    """The figure of activations, and what writes it by suffix."""
    from ffnbench.activations.picture import picture

    low, high = parse_range(request.range_)
    with world.prober(check_timeout(request.timeout)) as prober:
        default = every_gated_form() if request.gated else CHOSEN
        chosen = select(default if request.activations is None else request.activations, prober, gated=request.gated)
        points = SURFACE_POINTS if request.gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
    return picture(request, chosen, curves, {} if request.gated else _facts_of(chosen))


def _facts_of(chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """The facts that are known."""
    facts = {label: facts_of(spec.row, spec.beta) for label, spec in chosen.items()}
    return {label: each for label, each in facts.items() if each}
