"""What `plot-activations` draws and `activations` tells: check, ask a worker for curves and facts, write or show."""

from __future__ import annotations

import csv
import io
from math import isnan
from typing import Any

from ffnbench.activations.facts import Facts
from ffnbench.bench.prober import Prober
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec, require_positive
from ffnbench.ffn.variants import GATED_BY_ACTIVATION
from ffnbench.planning.activations import CHOSEN, every_activation, every_gated_form, parse_range, select
from ffnbench.planning.effort import check_timeout
from ffnbench.report.activations import facts_records, facts_table
from ffnbench.report.store import Outputs
from ffnbench.report.table import Table
from ffnbench.result import Curve

PICTURES = (".png", ".svg", ".pdf", ".csv")
CURVE_POINTS, SURFACE_POINTS = 1601, 161
SMALLEST_SIZE, LARGEST_SIZE = (3.0, 2.0), 60.0


def draw(
    *,
    activations: str | None,
    range_: str,
    derivative: bool | None,
    gated: bool,
    size: str | None,
    dpi: int,
    style: str,
    timeout: float,
    out: list[str],
) -> list[str]:
    """Write the pictures; gives the lines that tell what was written. Nothing is left behind by a mistake."""
    from ffnbench.report import plots

    if gated and derivative is not None:
        flag = "--derivative" if derivative else "--no-derivative"
        raise FfnbenchError(f"{flag} is for curves, and --gated draws surfaces", "leave one of the two out")
    low, high = parse_range(range_)
    look = plots.Look(size=_size(size), dpi=require_positive("dpi", dpi), style=style)
    with Outputs(out, "activations", PICTURES) as outputs, Prober(check_timeout(timeout)) as prober:
        default = every_gated_form() if gated else CHOSEN
        chosen = select(default if activations is None else activations, prober, gated=gated)
        points = SURFACE_POINTS if gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
        if gated:
            from ffnbench.report.surfaces import gated_figure

            figure = gated_figure(curves, _titles(chosen), look=look)
        else:
            from ffnbench.report.curves import curves_figure

            facts = {label: found for label, spec in chosen.items() if (found := _facts(prober, spec))}
            figure = curves_figure(curves, facts, derivative=derivative is not False, look=look)
        look.check_pixels(tuple(figure.get_size_inches()))

        def render(suffix: str) -> bytes:
            return _points(curves, gated).encode() if suffix == ".csv" else plots.render(figure, suffix, look)

        paths = outputs.write(render)
    many = "s" if len(chosen) > 1 else ""
    with_slope = "" if derivative is False else f" with derivative{many}"
    what = f"gated surface{many}" if gated else f"activation{many}{with_slope}"
    return [f"{len(chosen)} {what} on [{low:.12g}, {high:.12g}] -> {path}" for path in paths]


def _facts(prober: Prober, spec: ActivationSpec) -> Facts | None:
    """The facts, for the picture's marks; None for a function that is finite where it is drawn, and not elsewhere."""
    try:
        return prober.facts(spec)
    except FfnbenchError:
        return None


def _size(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    width, cross, height = text.lower().partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        size = 0.0, 0.0
    fits = all(least <= side <= LARGEST_SIZE for least, side in zip(SMALLEST_SIZE, size, strict=True))
    if not cross or not fits:
        problem = "is out of range" if cross and min(size) > 0 else "cannot be read"
        raise FfnbenchError(f"the size {text!r} {problem}", "inches, between 3x2 and 60x60: --size 10x4.5")
    return size


def _titles(chosen: dict[str, ActivationSpec]) -> dict[str, str]:
    """`swiglu: silu(g) · u`. An activation by itself is titled with the name of its gated form."""
    titles = {}
    for label, spec in chosen.items():
        name = GATED_BY_ACTIVATION.get(label, f"{label}_glu") if label == spec.activation else label
        beta = "" if spec.beta is None else f", β = {spec.beta:g}"
        titles[label] = f"{name}: {spec.activation.rpartition(':')[2]}(g{beta}) · u"
    return titles


def _points(curves: dict[str, Curve], gated: bool) -> str:
    """Every point in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("gate", "up", "activation", "value") if gated else ("x", "activation", "value", "derivative"))
    for label, curve in curves.items():
        if gated:
            writer.writerows((g, u, label, y * u) for u in curve.x for g, y in zip(curve.x, curve.y, strict=True))
        else:
            points = zip(curve.x, curve.y, curve.slope, strict=True)
            writer.writerows((x, label, y, "" if isnan(s) else s) for x, y, s in points)
    return text.getvalue()


def tell_facts(activations: str | None, timeout: float) -> tuple[list[dict[str, Any]], list[Table]]:
    """Find the facts of activations; gives them as records and as a table."""
    with Prober(check_timeout(timeout)) as prober:
        chosen = select(every_activation() if activations is None else activations, prober)
        facts = {label: prober.facts(spec) for label, spec in chosen.items()}
    return facts_records(chosen, facts), [facts_table(chosen, facts)]
