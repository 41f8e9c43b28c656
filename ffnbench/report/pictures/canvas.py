"""What all pictures share: pens, texts that fit, and the bytes of a file. No display needed.

Colours are Okabe & Ito's (2008), which colour-blind readers can tell apart; beyond seven curves the line style
changes as well.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure

from ffnbench.streams import visible

BLACK = "black"
COLOURS = (BLACK, "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
DPI = 150  # of a picture for a page; those for a column of a paper have 300
STYLE = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": BLACK, "grid.alpha": 0.1, "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": "small",
}  # fmt: skip


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """The style of all pictures, with these settings; a sign that the font lacks is a box, and no warning."""
    with matplotlib.style.context(["default", STYLE | settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def render(figure: Figure, suffix: str, *, texts: bool = False) -> bytes:
    """The picture as png, svg or pdf bytes; with `texts` as texts, which the reader's font draws, in svg and pdf."""
    buffer = io.BytesIO()
    with drawing(**({"svg.fonttype": "none", "pdf.fonttype": 42} if texts else {})):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=figure.dpi)
    return buffer.getvalue()


def pen(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th curve."""
    beyond = i - len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": LINES[1 + beyond % (len(LINES) - 1)] if beyond >= 0 else LINES[0],
    }


def literal(text: str) -> str:
    """A name as it is: matplotlib would read `$` as mathematics, and hide a legend entry that begins with `_`."""
    escaped = visible(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def shortened(text: str, most: int = 120) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"
