"""Progress in a notebook: one bar, which is gone when the call ends. Plain HTML, so that no widget is needed."""

from __future__ import annotations

import html
import time
from typing import Any

from ffnbench.result import Progress
from ffnbench.streams import visible

REFRESH_S = 0.3
GONE = {"text/html": "", "text/plain": ""}


class NotebookBar:
    """A line of text with a bar before it; it appears with the first thing to tell."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown_at = float("-inf")
        self._told = ""

    def tell(self, text: str) -> None:
        """One line above the bar, in place of the last one."""
        self._told = visible(text)
        self._show(self._told, f"<small>{html.escape(self._told)}</small>")

    def __call__(self, event: Progress) -> None:
        """How far it is; drawn a few times a second at most."""
        now = time.monotonic()
        if now - self._shown_at < REFRESH_S:
            return
        self._shown_at = now
        eta = f"  eta {int(event.eta_s) // 60}:{int(event.eta_s) % 60:02d}" if event.eta_s is not None else ""
        line = f"{event.done:4.0%}  {visible(event.text)}{eta}"
        above = f"<small>{html.escape(self._told)}</small><br>" if self._told else ""
        bar = f'<progress value="{event.done:.3f}" max="1"></progress> <small>{html.escape(line)}</small>'
        self._show(line, above + bar)

    def close(self) -> None:
        """Take it away."""
        if self._handle is not None:
            self._handle.update(GONE, raw=True)
            self._handle = None

    def _show(self, text: str, page: str) -> None:
        from IPython.display import display

        bundle = {"text/plain": text, "text/html": page}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
