"""Progress: a bar with the time left in a terminal, one line a step elsewhere."""

from __future__ import annotations

import math
import re
import sys
import time
from typing import TYPE_CHECKING

from ffnbench.common.streams import say, visible
from ffnbench.record.progress import Progress
from ffnbench.record.result import STEP_END, Step

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

REFRESH_S = 0.2  # the least time between two drawings


class TerminalProgress:
    """A bar on stderr in a terminal, else lines, and nothing where `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self.tells = not quiet
        self._bar: RichProgress | None = None
        self._last_step = ""
        self._shown_at = -math.inf

    def show(self, event: Step) -> None:
        """Show how far the run is."""
        if not self.tells:
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
        text, eta = visible(event.text), _eta(event)
        if self._bar.disable:
            self._log(text.partition(STEP_END)[0], eta)
            return
        due = time.monotonic() - self._shown_at > REFRESH_S
        if due:
            self._shown_at = time.monotonic()
        self._bar.update(
            self._bar.task_ids[0],
            completed=event.done,
            description=text + eta,
            refresh=due,
        )

    def _log(self, line: str, eta: str) -> None:
        """Print a line for each step. Only the number before the slash counts: where
        `process 3/12` becomes `process 3/13`, the estimate of all has changed.
        """
        step = re.sub(r"/\d+$", "", line)
        if step != self._last_step:
            self._last_step = step
            print(line + eta, file=sys.stderr, flush=True)

    def tell(self, text: str) -> None:
        """One line on stderr."""
        self.close()
        if self.tells:
            say(text)

    def close(self) -> None:
        """Remove the bar; the next event draws a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _bar() -> RichProgress:
    """A bar with one task, which is disabled where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    bar = RichProgress(
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        auto_refresh=False,  # its thread would take a CPU in the middle of a sample
        disable=not console.is_terminal,
    )
    bar.add_task("", total=1.0)
    return bar


def progress_of(shown: TerminalProgress) -> Progress:
    """What is told of a run goes there."""
    return Progress(show=shown.show, tell=shown.tell, tells=shown.tells)


def _eta(event: Step) -> str:
    """`  eta 1:05`, the time left, rounded up so that it is never 0:00; empty where it
    is not known.
    """
    if event.eta_s is None:
        return ""
    minutes, seconds = divmod(max(1, math.ceil(event.eta_s)), 60)
    return f"  eta {minutes}:{seconds:02d}"


def duration(seconds: float) -> str:
    """`45 s`, `4 min`, `2.5 h`: a time to wait, rounded up."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds <= 90 * 60:
        return f"{math.ceil(seconds / 60)} min"
    return f"{math.ceil(seconds / 360) / 10:g} h"
