"""Who is told of a run while it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ffnbench.record.result import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is told of a run: `show` is given each step, `tell` one line for the user.
    `tells` says whether anybody reads them.
    """

    show: Callable[[Step], None] = lambda step: None
    tell: Callable[[str], None] = lambda text: None
    tells: bool = False

    def part(self, number: int, of: int, what: str, later_s: float = 0.0) -> Progress:
        """The progress of part `number` of `of`, each of which is a `what`. The parts
        after it take about `later_s` seconds.
        """

        def show(step: Step) -> None:
            done = (number - 1 + step.done) / of
            text = f"{what} {number}/{of}: {step.text}"
            eta_s = None if step.eta_s is None else step.eta_s + later_s
            self.show(replace(step, done=done, text=text, eta_s=eta_s))

        return replace(self, show=show)


SILENT = Progress()
