"""Progress: a bar with the time left in a terminal, one line a worker in a log, a line that goes in a notebook."""

from __future__ import annotations

import html
import math
import re
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from ffnbench.common.streams import say, visible
from ffnbench.following import ProgressListener
from ffnbench.result import Progress

REFRESH_S = 0.2


class ProgressBar:
    """A bar that is called with every event of a run."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._last_step = ""
        self._shown_at = 0.0
        self._bar = RichProgress(
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            auto_refresh=False,  # its thread would take a CPU in the middle of a sample
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0)

    def start(self) -> None:
        """Draw it."""
        self._bar.start()

    def stop(self) -> None:
        """Take it away."""
        self._bar.stop()

    def __call__(self, event: Progress) -> None:
        text, eta = visible(event.text), _eta(event)
        due = time.monotonic() - self._shown_at > REFRESH_S
        self._bar.update(self._task, completed=event.done, description=text + eta, refresh=due)
        self._shown_at = time.monotonic() if due else self._shown_at
        line = text.partition("  ")[0]
        step = re.sub(r"/\d+$", "", line)  # how many there will be is reckoned anew all the time
        if not self._quiet and not self._console.is_terminal and step != self._last_step:
            self._last_step = step
            print(line + eta, file=sys.stderr, flush=True)


class TerminalProgress(ProgressListener):
    """A bar on stderr in a terminal, and lines in a log; nothing where it is quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.tells = not quiet
        self._bar: ProgressBar | None = None

    def __call__(self, event: Progress) -> None:
        if self._bar is None:
            self._bar = ProgressBar(quiet=not self.tells)
            self._bar.start()
        self._bar(event)

    def tell(self, text: str) -> None:
        """One line on stderr."""
        self.close()
        if self.tells:
            say(text)

    def close(self) -> None:
        """Take the bar away; another event draws one again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class NotebookProgress(ProgressListener):
    """A line of text in a notebook, which is gone when the call ends. Plain HTML, so that no widget is needed."""

    tells = True

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown_at = float("-inf")

    def __call__(self, event: Progress) -> None:
        """How far it is; drawn a few times a second at most."""
        if time.monotonic() - self._shown_at > REFRESH_S:
            self._shown_at = time.monotonic()
            self.tell(f"{event.done:4.0%}  {event.text}{_eta(event)}")

    def tell(self, text: str) -> None:
        """This line in place of the last one."""
        text = visible(text)
        self._show({"text/plain": text, "text/html": f"<small>{html.escape(text)}</small>"})

    def close(self) -> None:
        """Take it away."""
        if self._handle is not None:
            self._show({"text/plain": "", "text/html": ""})

    def _show(self, bundle: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def _eta(event: Progress) -> str:
    """` eta 1:05`, rounded up: what goes on is never at 0:00. Empty where nobody knows."""
    if event.eta_s is None:
        return ""
    minutes, seconds = divmod(max(1, math.ceil(event.eta_s)), 60)
    return f"  eta {minutes}:{seconds:02d}"


def wait_text(seconds: float | None, *, groups: int = 1, others: float | None = None, cpus: int = 1) -> str:
    """How long it takes at most, where that is known, and that others use CPUs now where they do."""
    what = f"measuring {groups:,} groups" if groups > 1 else "measuring"
    told = "" if seconds is None else f"{what} takes at most {duration(seconds)}"
    if others is None:
        return told
    busy = f"others use {others:.1f} of its {cpus} CPUs" if cpus > 1 else f"others use {others:.0%} of its CPU"
    return f"{told} on a quiet machine; this one is busy now: {busy}" if told else f"this machine is busy now: {busy}"


def duration(seconds: float) -> str:
    """`45 s`, `4 min`, `2.5 h`: rounded up, for a wait."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds <= 90 * 60:
        return f"{math.ceil(seconds / 60)} min"
    return f"{math.ceil(seconds / 360) / 10:g} h"
