"""What follows a run from outside: its progress, its journal, and what an earlier run
has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.result import Progress, Report


class ProgressListener:
    """A listener that ignores everything; others draw a bar or write lines.

    It is called with every event of a run. `left` is how many parts come after the one
    that is followed.
    """

    left = 0
    tells = False  # whether anybody reads what is told

    def __call__(self, event: Progress) -> None:
        """How far a run is."""

    def tell(self, text: str) -> None:
        """One line, before anything is measured."""

    def part(
        self, number: int, of: int, what: str, later_s: float = 0.0
    ) -> ProgressListener:
        """A listener for one of several parts, which take `later_s` seconds after this
        one.
        """
        return _Part(self, number, of, what, later_s)


@dataclass(frozen=True, slots=True)
class _Part(ProgressListener):
    """Progress of one part as that of all of them."""

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
        """With the part's number before the text."""
        done = (self.number - 1 + event.done) / self.of
        text = f"{self.what} {self.number}/{self.of}: {event.text}"
        eta_s = None if event.eta_s is None else event.eta_s + self.later_s
        self.of_all(replace(event, done=done, text=text, eta_s=eta_s))

    def tell(self, text: str) -> None:
        """As the whole does."""
        self.of_all.tell(text)


SILENT = ProgressListener()


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """How a run is followed.

    `journal` is given a report without samples when a run begins, and then all that the
    run finds, as it comes. `resumed` reads what an earlier run has left that is gone on
    with.
    """

    progress: ProgressListener = SILENT
    journal: Callable[[Any], None] = lambda entry: None
    resumed: Callable[[], Report | None] = lambda: None

    def part(self, number: int, of: int, what: str, later_s: float = 0.0) -> Following:
        """How one of several parts is followed: one journal holds them all, and nothing
        is gone on with twice.
        """
        progress = self.progress.part(number, of, what, later_s)
        return replace(self, progress=progress, resumed=lambda: None)


UNFOLLOWED = Following()
