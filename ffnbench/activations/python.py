"""The Python functions of activations: their facts, their operations timed, their picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.activations.describing import draw_activations, facts
from ffnbench.api.measuring import measure
from ffnbench.api.preparing import prepare
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer, as_displayed, written_to
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@asks(FactsRequest, follows=True)
def activations(request: FactsRequest, here: CalledHere) -> Answer:
    """What is true of activations: minimum, range, kinks, moments, what torch and others call them.

    >>> ffnbench.activations(["gelu", "silu"]).frame()[["activation", "formula", "minimum"]]
    """
    return Answer(shown=facts(request, here.world), name="activations")


@asks(TimingRequest, follows=True)
def time_activations(request: TimingRequest, here: CalledHere) -> Report:
    """The operations of activations, forward and backward, each against relu's.

    >>> ffnbench.time_activations(["relu", "gelu"], elements=65536, quick=True)
    """
    return measure(prepare(request, here.world), here.world, here.following)


@asks(PictureRequest)
def plot_activations(
    request: PictureRequest, here: CalledHere, path: str | os.PathLike[str] | None = None
) -> Figure | Path:
    """Activations with their derivatives, or the surfaces of gated forms (`gated=True`), as a picture.

    Gives a matplotlib Figure; with `path` it writes a file and gives its path.

    >>> figure = ffnbench.plot_activations(["relu", "gelu", "silu"])
    """
    figure: Figure
    figure, files = draw_activations(request, here.world)
    if path is None:
        as_displayed(figure)
        return figure
    return written_to(path, files, "activations")
