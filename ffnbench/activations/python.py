"""The Python functions of activations: their facts, their operations timed, their picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench import api
from ffnbench.activations.describing import draw_activations, facts
from ffnbench.python.calls import answer_of
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer, as_displayed, written_to
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@asks(FactsRequest, follows=True)
def activations(request: FactsRequest, sink: Following) -> Answer:
    """What is true of activations: minimum, range, kinks, moments, what torch and others call them.

    >>> ffnbench.activations(["gelu", "silu"]).frame()[["activation", "formula", "minimum"]]
    """
    facts(request, sink)
    return answer_of(sink, "activations")


@asks(TimingRequest, follows=True)
def time_activations(request: TimingRequest, sink: Following) -> Report:
    """The operations of activations, forward and backward, each against relu's.

    >>> ffnbench.time_activations(["relu", "gelu"], elements=65536, quick=True)
    """
    return api.time_activations(request, sink)


@asks(PictureRequest)
def plot_activations(
    request: PictureRequest, sink: Following, path: str | os.PathLike[str] | None = None
) -> Figure | Path:
    """Activations with their derivatives, or the surfaces of gated forms (`gated=True`), as a picture.

    Gives a matplotlib Figure; with `path` it writes a file and gives its path.

    >>> figure = ffnbench.plot_activations(["relu", "gelu", "silu"])
    """
    figure: Figure
    figure, files = draw_activations(request)
    if path is None:
        as_displayed(figure)
        return figure
    return written_to(path, files, "activations")
