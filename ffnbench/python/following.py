"""The ending of a Python call: a terminal or a notebook shows how far it is, and nothing else is printed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ffnbench.report.answers import notebook_shell
from ffnbench.report.formats import View
from ffnbench.report.output import Listener, NullSink, say
from ffnbench.report.progress import NotebookLine, ProgressBar


class Following(NullSink):
    """Follows one call. `view` makes the answer readable, once there is one. A context manager."""

    def __init__(self, *, quiet: bool = False, wait: bool = False, spoken: Callable[[str], str] = str) -> None:
        self.waits, self._spoken, self.began = wait, spoken, time.monotonic()
        self.view: Callable[[], View] | None = None
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar = NotebookLine() if not quiet and notebook_shell() else None
        self._quiet = quiet or self._bar is not None or not terminal

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, view: Callable[[], View]) -> None:
        """Keep it: a Python answer is shown by whoever called."""
        self.view = view

    def tell(self, text: str) -> None:
        """One line on stderr, or above the bar of a notebook, in the words of the call."""
        text = self._spoken(text)
        if self._bar is not None:
            self._bar.tell(text)
        elif not self._quiet:
            say(text)

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """A listener that draws a bar."""
        if self._bar is not None:
            yield self._bar
        else:
            with ProgressBar(quiet=self._quiet) as bar:
                yield bar
