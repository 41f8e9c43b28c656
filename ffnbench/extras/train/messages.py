"""What a worker is asked that trains a model, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.messages import OfCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How far a model is: steps made, seconds that they took, and what is new of its curve since it was asked last.

    A point of the curve is (metric, steps, loss). `diverged` is the step at which the loss grew beyond sense. `saved`
    says why no checkpoint is kept, where that failed. `loss` and `choosing` are the losses at the end, on what was held
    out and on the part that rates are chosen by.
    """

    step: int
    curve: tuple[tuple[str, int, float], ...]
    seconds: float
    diverged: int | None = None
    saved: str = ""
    loss: float | None = None
    choosing: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(OfCase[Trained]):
    """Train a case for so many seconds, or to its end. `checkpoint` is the file that it is kept in, "" for none."""

    answer = Trained
    seconds: float
    checkpoint: str
