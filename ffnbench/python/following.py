"""Where a Python call measures, and how it is followed: a terminal or a notebook shows how far it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ffnbench.common.errors import FfnbenchError
from ffnbench.following import Following
from ffnbench.messages import MARK
from ffnbench.report.answers import notebook_shell
from ffnbench.report.progress import NotebookProgress, TerminalProgress
from ffnbench.run import world


@dataclass(frozen=True, slots=True)
class CalledHere:
    """A call in this process."""

    world: world.World
    progress: TerminalProgress | NotebookProgress

    @property
    def following(self) -> Following:
        """Its progress alone: nothing is kept, and nothing gone on with."""
        return Following(progress=self.progress)


@contextmanager
def called_here(*, quiet: bool = False, wait: bool = False) -> Iterator[CalledHere]:
    """A call that begins now. A worker runs the file of a class once more: what measures there would start workers of
    its own, and so on; that is refused.
    """
    if os.environ.get(MARK):
        raise FfnbenchError(
            "it calls ffnbench while a worker loads it", 'put what calls ffnbench under `if __name__ == "__main__":`'
        )
    terminal = sys.stderr is not None and sys.stderr.isatty()
    progress: TerminalProgress | NotebookProgress
    if not quiet and notebook_shell():
        progress = NotebookProgress()
    else:
        progress = TerminalProgress(quiet=quiet or not terminal)
    try:
        yield CalledHere(world.this_machine(wait=wait), progress)
    finally:
        progress.close()
