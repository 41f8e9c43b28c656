"""What `plot-activations` writes: curves of activations, or surfaces of gated forms, and their points as csv."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.activations.facts import Facts
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec, require_positive
from ffnbench.ffn.variants import GATED_BY_ACTIVATION
from ffnbench.planning.activations import parse_range
from ffnbench.report.formats import PICTURES, Write
from ffnbench.report.pictures.canvas import Canvas, render
from ffnbench.report.pictures.curves import curves_figure
from ffnbench.report.pictures.surfaces import gated_figure
from ffnbench.report.records import csv_text
from ffnbench.request import PictureRequest
from ffnbench.result import Curve
from ffnbench.units import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALLEST_SIZE, LARGEST_SIZE = (3.0, 2.0), 60.0  # inches


def canvas_of(request: PictureRequest) -> Canvas:
    """How the picture is to look; raises FfnbenchError for what can't be drawn, before anybody is asked for points."""
    return Canvas(size=_size(request.size), dpi=require_positive("dpi", request.dpi), style=request.style)


def picture_figure(
    request: PictureRequest,
    canvas: Canvas,
    chosen: Mapping[str, ActivationSpec],
    curves: dict[str, Curve],
    facts: dict[str, Facts],
) -> Figure:
    """The picture; raises FfnbenchError for one of too many pixels."""
    if request.gated:
        figure = gated_figure(curves, titles(chosen), canvas=canvas)
    else:
        figure = curves_figure(curves, facts, derivative=request.derivative is not False, canvas=canvas)
    canvas.check_pixels(tuple(figure.get_size_inches()))
    return figure


def picture_files(
    request: PictureRequest, canvas: Canvas, figure: Figure, curves: dict[str, Curve]
) -> dict[str, Write]:
    """What writes the picture and its points, by suffix."""
    files: dict[str, Write] = {".csv": lambda: points(curves, request.gated)}
    return files | {suffix: partial(render, figure, suffix, canvas) for suffix in PICTURES}


def told(request: PictureRequest, chosen: Mapping[str, ActivationSpec], paths: list[Path]) -> list[str]:
    """What was drawn, and where it stands."""
    low, high = parse_range(request.range_)
    what = counted(len(chosen), "gated surface" if request.gated else "activation")
    return [f"{what} on [{low:.12g}, {high:.12g}] -> {path}" for path in paths]


def _size(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        size = 0.0, 0.0
    if not all(least <= side <= LARGEST_SIZE for least, side in zip(SMALLEST_SIZE, size, strict=True)):
        raise FfnbenchError(f"cannot read the size {text!r}", "inches, between 3x2 and 60x60: --size 10x4.5")
    return size


def titles(chosen: Mapping[str, ActivationSpec]) -> dict[str, str]:
    """`swiglu: silu(g) · u`. An activation by itself is titled with the name of its gated form."""
    titles = {}
    for label, spec in chosen.items():
        name = GATED_BY_ACTIVATION.get(label, f"{label}_glu") if label == spec.activation else label
        beta = "" if spec.beta is None else f", β = {spec.beta:g}"
        titles[label] = f"{name}: {spec.activation.rpartition(':')[2]}(g{beta}) · u"
    return titles


def points(curves: dict[str, Curve], gated: bool) -> str:
    """Every point in full precision."""
    if gated:
        return csv_text(
            {"gate": g, "up": u, "activation": label, "value": y * u}
            for label, curve in curves.items() for u in curve.x for g, y in zip(curve.x, curve.y, strict=True)
        )  # fmt: skip
    return csv_text(
        {"x": x, "activation": label, "value": y, "derivative": None if isnan(s) else s}
        for label, curve in curves.items() for x, y, s in zip(curve.x, curve.y, curve.slope, strict=True)
    )  # fmt: skip
