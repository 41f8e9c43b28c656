"""The Python functions of activations: their facts, their operations timed, their picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

from ffnbench.activations.describing import draw_activations, facts
from ffnbench.api.measuring import measure
from ffnbench.api.preparing import prepare
from ffnbench.python.arguments import Activations, Devices, DTypes, Float, Int, Ints, StrPath, asked
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer, as_displayed, written_to
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@public
def activations(
    activations: Activations | None = None,
    *,
    quiet: bool = False,
    wait: bool = False,
) -> Answer:
    """What is true of activations: minimum, range, kinks, moments, what torch and others call them.

    >>> ffnbench.activations(["gelu", "silu"]).frame()[["activation", "formula", "minimum"]]
    """
    request = asked(FactsRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return Answer(shown=facts(request, here.world), name="activations")


@public
def time_activations(
    activations: Activations | None = None,
    *,
    device: Devices = "auto",
    threads: Ints | None = None,
    workers: Int | None = None,
    rounds: Int | None = None,
    quick: bool = False,
    seed: Int = 0,
    timeout: Float = 300.0,
    runs: Int = 1,
    pause: Float | None = None,
    shard: str | None = None,
    elements: Ints = "1048576",
    dtype: DTypes = "float32",
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """The operations of activations, forward and backward, each against relu's.

    >>> ffnbench.time_activations(["relu", "gelu"], elements=65536, quick=True)
    """
    request = asked(TimingRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return measure(prepare(request, here.world), here.world, here.following)


@overload
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
    derivative: bool | None = None,
    gated: bool = False,
    timeout: Float = 300.0,
    path: None = None,
) -> Figure: ...


@overload
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
    derivative: bool | None = None,
    gated: bool = False,
    timeout: Float = 300.0,
    path: StrPath,
) -> Path: ...


@public
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
    derivative: bool | None = None,
    gated: bool = False,
    timeout: Float = 300.0,
    path: StrPath | None = None,
) -> Figure | Path:
    """Activations with their derivatives, or the surfaces of gated forms (`gated=True`), as a picture.

    Gives a matplotlib Figure; with `path` it writes a file and gives its path.

    >>> figure = ffnbench.plot_activations(["relu", "gelu", "silu"])
    """
    request = asked(PictureRequest, locals())
    with called_here() as here:
        figure: Figure
        figure, files = draw_activations(request, here.world)
        if path is None:
            as_displayed(figure)
            return figure
        return written_to(path, files, "activations")
