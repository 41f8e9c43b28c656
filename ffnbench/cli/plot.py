"""The command that draws a saved run as it is asked to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ffnbench.cli.commands import command, sink_of
from ffnbench.report.flags import Plotted
from ffnbench.request import ARGUMENTS, CURVES, flag

DEFAULT_PICTURE = "plot.png"


@dataclass(frozen=True, kw_only=True)
class PlotAxes:
    """What is drawn over what."""

    run: str = flag("", "A .json that `compare` wrote with -o.", ARGUMENTS, place="RUN")
    x: str = flag("", "An axis, or a column: seq_len, d_model, params. [default: the axis with most points]", CURVES,
                  "NAME")  # fmt: skip
    y: str = flag("", "A column of numbers, named as in the CSV or by its heading: ratio, latency, peak, gflops. "
                  "[default: ratio; latency of a single variant]", CURVES, "NAME")  # fmt: skip
    facet: str = flag("", "A panel for each value of this; the axes that are left have panels too.", CURVES, "NAME")


@command(
    "plot",
    "ffnbench plot run.json --x seq_len --y latency -o latency.pdf",
    "ffnbench plot run.json --x params --y latency",
    "ffnbench plot run.json --y gflops --facet dtype",
    docs="docs/sweeps.md#curves",
)
def plot(asked: PlotAxes, output: Plotted) -> int:
    """Draw any column of a saved run over any axis, with a ring around what no other variant beats."""
    from ffnbench import api
    from ffnbench.report.formats import PICTURES

    written = output if output.out else replace(output, out=(DEFAULT_PICTURE,))
    with sink_of(written, "plot", asked.run, suffixes=PICTURES) as sink:
        api.plot(asked.run, sink, x=asked.x, y=asked.y, facet=asked.facet)
    return 0
