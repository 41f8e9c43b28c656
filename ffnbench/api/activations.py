"""The commands about activations: what they are, without timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.activations.facts import Facts
from ffnbench.api import world
from ffnbench.api.preparing import NULL_SINK
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.planning.activations import CHOSEN, every_activation, every_gated_form, parse_range, select
from ffnbench.planning.effort import check_timeout
from ffnbench.report.formats import Write
from ffnbench.report.output import NullSink, OutputSink
from ffnbench.report.tables.activations import facts_view
from ffnbench.request import FactsRequest, PictureRequest
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS, SURFACE_POINTS = 1601, 161


def facts(request: FactsRequest, sink: NullSink = NULL_SINK) -> None:
    """What is true of activations, found in float64 by a worker."""
    with world.MACHINE.prober(check_timeout(request.timeout)) as prober:
        chosen = select(every_activation() if request.activations is None else request.activations, prober)
        found = {label: prober.facts(spec) for label, spec in chosen.items()}
    sink.show(lambda: facts_view(chosen, found))


def plot_activations(request: PictureRequest, sink: OutputSink) -> None:
    """Curves of activations or surfaces of gated forms, into files."""
    for path in sink.write(draw_activations(request)[1]):
        sink.tell(f"wrote {path}")


def draw_activations(request: PictureRequest) -> tuple[Figure, dict[str, Write]]:
    """The figure of activations, and what writes it by suffix."""
    from ffnbench.report.pictures.activations import picture

    low, high = parse_range(request.range_)
    with world.MACHINE.prober(check_timeout(request.timeout)) as prober:
        default = every_gated_form() if request.gated else CHOSEN
        chosen = select(default if request.activations is None else request.activations, prober, gated=request.gated)
        points = SURFACE_POINTS if request.gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
        found = {} if request.gated else _facts_where_finite(prober, chosen)
    return picture(request, chosen, curves, found)


def _facts_where_finite(prober: Prober, chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """Facts for the marks of a picture; none for a function that is finite where it is drawn, and not elsewhere."""
    found = {}
    for label, spec in chosen.items():
        try:
            found[label] = prober.facts(spec)
        except FfnbenchError:
            continue
    return found
