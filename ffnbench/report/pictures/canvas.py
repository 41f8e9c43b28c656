"""What all pictures share: size and style, pens, texts that fit, and the bytes of a file. No display needed.

Colours are Okabe & Ito's (2008), which colour-blind readers can tell apart; beyond seven curves the line style
changes as well.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.errors import FfnbenchError
from ffnbench.names import hint_for
from ffnbench.streams import visible

COLOURS = ("text", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MOST_PIXELS = 100e6
SMALLEST_PANEL = 0.7  # inches; below, only ticks and texts are left
NOMINAL = (11.0, 7.0)  # about what the pictures choose by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Inches (None: what suits the content), dots per inch, and a matplotlib style by name."""

    size: tuple[float, float] | None
    dpi: int
    style: str

    def __post_init__(self) -> None:
        if self.style != "default" and self.style not in matplotlib.style.available:
            known = ["default", *(s for s in matplotlib.style.available if not s.startswith("_"))]
            raise FfnbenchError(
                f"unknown style {self.style!r}", hint_for(self.style, known, "for example default, ggplot, grayscale")
            )
        self.check_pixels(self.size or NOMINAL)

    def check_pixels(self, size: tuple[float, float]) -> None:
        """A picture of gigapixels would end for want of memory."""
        width, height = size
        if width * height * self.dpi**2 > MOST_PIXELS:
            raise FfnbenchError(
                f"{width:g}x{height:g} inches at --dpi {self.dpi} are more than {MOST_PIXELS / 1e6:g} megapixels",
                f"at this size at most --dpi {int((MOST_PIXELS / width / height) ** 0.5)}",
            )


@contextmanager
def drawing(canvas: Canvas) -> Iterator[None]:
    """In the canvas's style; a sign that the font lacks is a box, and no warning."""
    with matplotlib.style.context(canvas.style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def render(figure: Figure, suffix: str, canvas: Canvas, *, texts: bool = False) -> bytes:
    """The picture as png, svg or pdf bytes; with `texts` as texts, which the reader's font draws, in svg and pdf."""
    buffer = io.BytesIO()
    kept = {"svg.fonttype": "none", "pdf.fonttype": 42} if texts else {}
    with drawing(canvas), matplotlib.rc_context(kept):  # type: ignore[arg-type]
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=canvas.dpi)
    return buffer.getvalue()


def lay_out(figure: Figure, panels: Sequence[Axes]) -> None:
    """Give everything its place, so that it can be measured; raises FfnbenchError where too little room is left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.draw_without_rendering()
    crowded = any("constrained_layout not applied" in str(warning.message) for warning in caught)
    if crowded or min(min(a.bbox.width, a.bbox.height) for a in panels) < SMALLEST_PANEL * figure.dpi:
        width, height = figure.get_size_inches()
        raise FfnbenchError(
            f"the size {width:g}x{height:g} is too small for all that the picture holds",
            "leave --size out, or name fewer with --activations",
        )


def pen(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th curve. The first colour is that of the style's text."""
    colour = COLOURS[i % len(COLOURS)]
    beyond = i - len(COLOURS)
    return {
        "color": str(matplotlib.rcParams["text.color"]) if colour == "text" else colour,
        "linestyle": LINES[1 + beyond % (len(LINES) - 1)] if beyond >= 0 else LINES[0],
    }


def literal(text: str) -> str:
    """A name as it is: matplotlib would read `$` as mathematics, and hide a legend entry that begins with `_`."""
    escaped = visible(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def shortened(text: str, most: int = 120) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"
