"""How a Python call is followed: a terminal or a notebook shows how far it is, and nothing else is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ffnbench.following import Following, ProgressListener
from ffnbench.report.answers import notebook_shell
from ffnbench.report.progress import NotebookProgress, TerminalProgress
from ffnbench.result import Progress
from ffnbench.run import world


class SpokenProgress(ProgressListener):
    """Lines in the words of a call."""

    def __init__(self, progress: TerminalProgress | NotebookProgress, spoken: Callable[[str], str]) -> None:
        self._progress, self._spoken = progress, spoken
        self.tells = progress.tells

    def __call__(self, event: Progress) -> None:
        self._progress(event)

    def tell(self, text: str) -> None:
        """One line on stderr, or above the bar of a notebook."""
        self._progress.tell(self._spoken(text))

    def close(self) -> None:
        """Take the bar away."""
        self._progress.close()


@dataclass(frozen=True, slots=True)
class CalledHere:
    """Where a call measures, and how it is followed."""

    world: world.World
    progress: SpokenProgress

    @property
    def following(self) -> Following:
        """Its progress alone: nothing is kept, and nothing gone on with."""
        return Following(progress=self.progress)


def call(*, quiet: bool = False, wait: bool = False, spoken: Callable[[str], str] = str) -> CalledHere:
    """A call that begins now."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    progress: TerminalProgress | NotebookProgress
    if not quiet and notebook_shell():
        progress = NotebookProgress()
    else:
        progress = TerminalProgress(quiet=quiet or not terminal)
    return CalledHere(world.this_machine(wait=wait), SpokenProgress(progress, spoken))
