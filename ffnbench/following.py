"""What a run tells while it is measured, its progress and its journal, and the earlier
run that it resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.result import Progress, Report


class ProgressListener:
    """A listener that ignores everything. Those that draw a bar or write lines are its
    subclasses.

    `left` is how many parts come after the one that it listens to.
    """

    left = 0
    tells = False  # whether anybody reads what is told

    def __call__(self, event: Progress) -> None:
        """Show how far a run is."""

    def tell(self, text: str) -> None:
        """Show one line, before anything is measured."""

    def part(
        self, number: int, of: int, what: str, later_s: float = 0.0
    ) -> ProgressListener:
        """A listener for part `number` of `of`, each of which is a `what`. The parts
        after it take about `later_s` seconds.
        """
        return _Part(self, number, of, what, later_s)


@dataclass(frozen=True, slots=True)
class _Part(ProgressListener):
    """Tells the listener of all parts about the progress of one."""

    of_all: ProgressListener
    number: int
    of: int
    what: str
    later_s: float

    @property
    def left(self) -> int:  # type: ignore[override]
        return self.of - self.number

    @property
    def tells(self) -> bool:  # type: ignore[override]
        return self.of_all.tells

    def __call__(self, event: Progress) -> None:
        """Show the progress of all parts, with this one's number before the text."""
        done = (self.number - 1 + event.done) / self.of
        text = f"{self.what} {self.number}/{self.of}: {event.text}"
        eta_s = None if event.eta_s is None else event.eta_s + self.later_s
        self.of_all(replace(event, done=done, text=text, eta_s=eta_s))

    def tell(self, text: str) -> None:
        """Show one line, before anything is measured."""
        self.of_all.tell(text)


SILENT = ProgressListener()


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Who is told of a run while it is measured, and which earlier run it resumes.

    `journal` is given a report without samples when a run begins, and then everything
    that the run finds, as it comes. `resumed` reads the interrupted run whose samples
    are taken over, None where there is none.
    """

    progress: ProgressListener = SILENT
    journal: Callable[[Any], None] = lambda entry: None
    resumed: Callable[[], Report | None] = lambda: None

    def part(self, number: int, of: int, what: str, later_s: float = 0.0) -> Following:
        """How part `number` of `of` is followed. One journal holds all parts, and no
        part resumes a run by itself: that would take over its samples twice.
        """
        progress = self.progress.part(number, of, what, later_s)
        return replace(self, progress=progress, resumed=lambda: None)


UNFOLLOWED = Following()
