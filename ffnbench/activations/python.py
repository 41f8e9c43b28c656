"""The Python functions of activations: their facts, their operations timed, their
picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.activations.describing import describe_activations, draw_activations
from ffnbench.activations.plan import plan_timing
from ffnbench.api.measuring import measure_plan
from ffnbench.api.preparing import prepare_plan
from ffnbench.python.arguments import (
    Activations,
    Devices,
    DTypes,
    Int,
    Ints,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer, as_displayed
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@public
def activations(
    activations: Activations | None = None,
    *,
    quiet: bool = False,
) -> Answer:
    """What is true of activations: minimum, range, kinks, moments, what torch and
    others call them.

    >>> facts = ffnbench.activations(["gelu", "silu"]).frame()
    >>> facts[["activation", "formula", "minimum"]]
    """
    request = request_from_arguments(FactsRequest, locals())
    with called_here(quiet=quiet) as here:
        return Answer(
            shown=describe_activations(request, here.world), name="activations"
        )


@public
def time_activations(
    activations: Activations | None = None,
    *,
    device: Devices = "auto",
    threads: Ints | None = None,
    workers: Int | None = None,
    rounds: Int | None = None,
    quick: bool = False,
    elements: Ints = "1048576",
    dtype: DTypes = "float32",
    quiet: bool = False,
) -> Report:
    """The operations of activations, forward and backward, each against relu's.

    >>> ffnbench.time_activations(["relu", "gelu"], elements=65536, quick=True)
    """
    request = request_from_arguments(TimingRequest, locals())
    with called_here(quiet=quiet) as here:
        return measure_plan(
            prepare_plan(request, here.world, plan_timing), here.world, here.following
        )


@public
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
) -> Figure:
    """Activations with their derivatives, as a matplotlib Figure.

    >>> ffnbench.plot_activations(["relu", "gelu", "silu"]).savefig("curves.png")
    """
    request = request_from_arguments(PictureRequest, locals())
    with called_here() as here:
        figure: Figure = draw_activations(request, here.world)[0]
        as_displayed(figure)
        return figure
