"""What `plot-activations` writes: curves of activations, or surfaces of gated forms, and their points as csv."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isnan
from typing import TYPE_CHECKING

from ffnbench.activations.curves import curves_figure
from ffnbench.activations.facts import Facts
from ffnbench.activations.surfaces import gated_figure
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.ffn.variants import GATED_BY_ACTIVATION
from ffnbench.report.formats import PICTURES, Write
from ffnbench.report.pictures.canvas import render
from ffnbench.report.writers import csv_text
from ffnbench.request import PictureRequest
from ffnbench.result import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(
    request: PictureRequest, chosen: Mapping[str, ActivationSpec], curves: dict[str, Curve], facts: dict[str, Facts]
) -> tuple[Figure, dict[str, Write]]:
    """The picture, and what writes it and its points, by suffix."""
    if request.gated:
        figure = gated_figure(curves, titles(chosen))
    else:
        figure = curves_figure(curves, facts, derivative=request.derivative is not False)
    files: dict[str, Write] = {".csv": lambda: points(curves, request.gated)}
    return figure, files | {suffix: partial(render, figure, suffix) for suffix in PICTURES}


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
