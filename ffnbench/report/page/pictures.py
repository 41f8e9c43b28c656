"""Pictures in a page: the svg of a figure in which each mark tells its row, and curves of the activations of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Tree

from ffnbench.ffn.spec import ActivationSpec, FFNSpec
from ffnbench.result import Curve, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
HOW = "Arrow keys go from mark to mark. The table has the same figures."
REACH, POINTS = 4.0, 401
BROAD, NARROW = 500, 300  # points


def inline(figure: Figure, name: str, told: Mapping[str, str]) -> str:
    """A figure as part of a page. An artist whose gid is the label of a row, or a list of labels in JSON, one for each
    of its markers, is a mark: it tells what `told` has of the row.
    """
    from ffnbench.report.pictures.canvas import render

    for area in (figure.patch, *(axes.patch for axes in figure.axes)):
        area.set_alpha(0)
    Tree.register_namespace("", SVG)
    Tree.register_namespace("xlink", XLINK)
    root = Tree.fromstring(render(figure, ".svg", texts=True))
    width = float(root.attrib.pop("width").removesuffix("pt"))
    root.attrib.pop("height")
    marks = list(_marks(root, told))
    for mark, text in marks:
        mark.attrib |= {"class": "mark", "role": "img", "aria-label": text.replace("\n", ", "), "data-tip": text}
    about = f"{name}. {HOW}" if marks else f"{name}: lines with the names that the legend has."
    root.attrib |= {"role": "group", "aria-label": about, "tabindex": "0"}
    root.attrib.pop("version", None)
    for one in (*root.findall(f"{{{SVG}}}metadata"), *root.findall("metadata")):
        root.remove(one)
    text = _without_ids(Tree.tostring(root, encoding="unicode"))
    wide = ' class="broad"' * (width > BROAD) + ' class="narrow"' * (width < NARROW)
    return f'<figure{wide}><div class="wide">{text}</div><figcaption class="tip" role="status"></figcaption></figure>'


def _marks(root: Tree.Element, told: Mapping[str, str]) -> Iterator[tuple[Tree.Element, str]]:
    """The elements that stand for rows, with what they tell."""
    for group in root.iter(f"{{{SVG}}}g"):
        name = group.get("id", "")
        if name in told:
            yield group, told[name]
        elif name.startswith('["'):
            with suppress(ValueError):  # a name of something else
                uses, labels = list(group.iter(f"{{{SVG}}}use")), json.loads(name)
                yield from ((use, told[label]) for use, label in zip(uses, labels, strict=True) if label in told)


def _without_ids(text: str) -> str:
    """Without the names that nothing refers to: several pictures stand in one page."""
    wanted = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    return re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in wanted else "", text)


def activations_figure(report: Report) -> Figure | None:
    """The curve of each activation of ours in the run; None where there is none."""
    chosen: dict[str, ActivationSpec] = {}
    for case in report.plan.shown:
        if isinstance(case.ffn, FFNSpec | ActivationSpec) and case.ffn.own is None:
            spec = ActivationSpec(activation=case.ffn.activation, beta=case.ffn.beta)
            name = spec.activation if spec.beta in (None, spec.row.beta) else f"{spec.activation}, β = {spec.beta:g}"
            chosen[name] = spec
    curves = {name: curve for name, spec in chosen.items() if (curve := traced(spec))}
    if not curves:
        return None
    from ffnbench.report.pictures.curves import curves_figure

    return curves_figure(curves, {}, derivative=False)


def traced(spec: ActivationSpec) -> Curve | None:
    """f on [-4, 4], by numpy in place of torch, which this process never loads; None of one that needs more."""
    import numpy as np

    x = np.linspace(-REACH, REACH, POINTS).view(_array())
    try:
        y = spec.row.apply(_functions(), x, spec.beta)
    except AttributeError:
        return None
    return Curve(x=tuple(x.tolist()), y=tuple(y.tolist()), slope=tuple([float("nan")] * POINTS))


def _array() -> Any:
    """numpy's array with the methods of a tensor that activations call."""
    import numpy as np
    from scipy.special import expit

    class Array(np.ndarray):
        """A tensor's methods."""

        def sigmoid(self) -> Any:
            return expit(self)

        def tanh(self) -> Any:
            return np.tanh(self)

        def square(self) -> Any:
            return np.square(self)

        def expm1(self) -> Any:
            return np.expm1(self)

        def clamp(self, low: float | None = None, high: float | None = None, *, max: float | None = None) -> Any:
            return np.clip(self, low, high if max is None else max)

        def where(self, condition: Any, other: Any) -> Any:
            return np.where(condition, self, other)

    return Array


def _functions() -> SimpleNamespace:
    """Those of torch.nn.functional that activations are made of, by their definitions."""
    import numpy as np
    from scipy.special import expit, ndtr

    def gelu(x: Any, approximate: str = "none") -> Any:
        return x * (ndtr(x) if approximate == "none" else expit(np.sqrt(8 / np.pi) * (x + 0.044715 * x**3)))

    def elu(x: Any, alpha: float = 1.0) -> Any:
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))

    return SimpleNamespace(
        relu=lambda x: np.maximum(x, 0),
        relu6=lambda x: np.clip(x, 0, 6),
        leaky_relu=lambda x, slope: np.where(x > 0, x, slope * x),
        gelu=gelu,
        silu=lambda x: x * expit(x),
        softplus=lambda x: np.logaddexp(x, 0),
        mish=lambda x: x * np.tanh(np.logaddexp(x, 0)),
        hardswish=lambda x: x * np.clip(x + 3, 0, 6) / 6,
        elu=elu,
        selu=lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772),
    )
