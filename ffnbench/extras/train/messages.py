"""What a worker is asked that trains a model, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.messages import OfCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How far a model is: steps made, and seconds of one.

    On the way, `loss` is the last held-out loss, and `not_saved` why no checkpoint is kept. `diverged` is the step at
    which the loss grew beyond sense. At the end, the losses on what is held out and on the part that rates are chosen
    by, and the held-out curve: steps, and the loss after them.
    """

    step: int
    step_s: float
    diverged: int | None = None
    loss: float | None = None
    not_saved: str = ""
    held_out: float | None = None
    choosing: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(OfCase[Trained]):
    """Train a case for so many seconds, or to its end. `checkpoint` is the file that it is kept in, "" for none."""

    answer = Trained
    seconds: float
    checkpoint: str
