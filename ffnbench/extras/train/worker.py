"""A model that is trained, step by step, in a process of its own. Needs torch.

What a step does depends on the seed and its number alone: it goes on from a checkpoint as if it had never been away.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import place_of
from ffnbench.extras.train.decoder import TrainCase
from ffnbench.extras.train.messages import Train, Trained
from ffnbench.extras.train.metrics import CURVE, HELD_OUT
from ffnbench.extras.train.module import LanguageModel
from ffnbench.extras.train.text import LEAST_BATCHES, VOCABULARY, Training, read_text
from ffnbench.worker.backends.building import seed_all
from ffnbench.worker.jobs import Jobs

WARM_UP, LAST = 0.05, 0.1  # of the steps, and of the rate
POINTS = 40  # of a curve
EVALUATED, AT_ONCE = 200_000, 4096  # bytes, at most; of a batch
TENTHS, ON_THE_WAY = 10, 50_000  # points of the held-out curve; bytes of each before the last, at most
DIVERGED = 2 * math.log(VOCABULARY)  # nats: twice what guessing costs
SAVING = 0.05  # of the time, at most
TRAINEE = "trainee"


@dataclass(slots=True)
class Trainee:
    """One model of one case. `checkpoint` is where it is kept from time to time, None for nowhere."""

    case: TrainCase
    checkpoint: Path | None
    model: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    step: int = 0
    elapsed: float = 0.0
    curve: list[tuple[str, int, float]] = field(default_factory=list)  # CURVE: so many steps; HELD_OUT: after so many
    saved: str = ""  # why nothing is kept, where that failed
    _window: list[Tensor] = field(default_factory=list)
    _told: int = 0
    _saved_at: float = 0.0
    _text: Any = None

    @property
    def training(self) -> Training:
        """How it is trained."""
        assert self.case.training is not None
        return self.case.training

    def __post_init__(self) -> None:
        training, work, spec = self.training, self.case.workload, self.case.ffn
        told, self._text = read_text(training.text.path, LEAST_BATCHES * work.batch * (work.seq_len + 1))
        if told.sha256 != training.text.sha256:
            raise FfnbenchError(f"the text {told.path!r} is not the one that was planned", "--text: a copy of it")
        seed_all(training.seed, spec.around)
        where = {"device": place_of(work.device), "dtype": torch.float64 if work.dtype == "float64" else torch.float32}
        self.model = LanguageModel(spec.d_model, partial(spec.build, **where), **where).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        if self.checkpoint and self.checkpoint.is_file():
            self._load()

    def go(self, seconds: float) -> Trained:
        """Train for about so long, or to the end; tells what is new of the curve, and when it has ended the loss on
        what was held out, and on the part that rates are chosen by.
        """
        start, steps = perf_counter(), self.training.steps
        diverged = None
        while self.step < steps and diverged is None:
            began = perf_counter()
            self._window.append(self._one_step())
            self.step += 1
            closes = self.step % max(1, steps // POINTS) == 0 or self.step == steps
            losses = torch.stack(self._window).tolist() if closes else []  # one look at the device for many steps
            self.elapsed += perf_counter() - began
            if closes:
                diverged = self._close_window(losses)
            if self.step < steps and self.step * TENTHS // steps > (self.step - 1) * TENTHS // steps:
                self._held_out(ON_THE_WAY)
            if perf_counter() - start > seconds:
                break
        loss = choosing = None
        if diverged is not None or self.step < steps:
            self._keep()
        else:
            loss, choosing = self._held_out(EVALUATED), self._loss_of(self._text.choosing)
            if not (math.isfinite(loss) and math.isfinite(choosing)):
                diverged, loss, choosing = steps, None, None
        new = tuple(self.curve[self._told :])
        self._told = len(self.curve)
        return Trained(
            step=self.step,
            curve=new,
            seconds=self.elapsed,
            diverged=diverged,
            saved=self.saved,
            loss=loss,
            choosing=choosing,
        )

    def _held_out(self, most: int) -> float:
        """The loss on what is held out, a point of the curve where it is a number."""
        loss = self._loss_of(self._text.held_out, most)
        if math.isfinite(loss):
            self.curve.append((HELD_OUT, self.step, loss))
        return loss

    def _close_window(self, losses: list[float]) -> int | None:
        """Its mean loss; the step at which it has diverged, if it has."""
        first = self.step - len(losses)
        self._window = []
        for number, loss in enumerate(losses, start=first + 1):
            if not loss < DIVERGED:
                return number
        self.curve.append((CURVE, len(losses), math.fsum(losses) / len(losses)))
        return None

    def _one_step(self) -> Tensor:
        self.optimizer.param_groups[0]["lr"] = self._rate()
        batch = self._batch()
        loss = self._loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def _rate(self) -> float:
        """Linear warm-up, then a cosine down to LAST of it."""
        training = self.training
        warm = max(1, round(WARM_UP * training.steps))
        if self.step < warm:
            return training.rate * (self.step + 1) / warm
        done = (self.step - warm) / max(1, training.steps - warm)
        return training.rate * (LAST + (1 - LAST) * (1 + math.cos(math.pi * done)) / 2)

    def _batch(self) -> Tensor:
        """Sequences from random places, the same for every variant: (batch, seq_len + 1)."""
        work, training = self.case.workload, self.training
        generator = torch.Generator().manual_seed(training.seed * 1_000_003 + self.step)
        places = torch.randint(len(self._text.train) - work.seq_len, (work.batch,), generator=generator).tolist()
        return self._sequences(self._text.train, places)

    def _sequences(self, part: bytes, places: list[int]) -> Tensor:
        size, device = self.case.workload.seq_len + 1, place_of(self.case.workload.device)
        cut = b"".join(part[place : place + size] for place in places)
        return torch.frombuffer(bytearray(cut), dtype=torch.uint8).view(-1, size).to(device, torch.int64)

    def _loss(self, batch: Tensor) -> Tensor:
        """Nats per byte, the mean."""
        dtype = getattr(torch, self.case.workload.dtype)
        mixed = torch.autocast(batch.device.type, dtype) if dtype.itemsize < 4 else nullcontext()
        with mixed:
            logits = self.model(batch[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())

    def _loss_of(self, part: bytes, most: int = EVALUATED) -> float:
        """Over evenly spread sequences of a part, at most so many bytes, in batches."""
        work = self.case.workload
        count = max(1, min(most, len(part)) // (work.seq_len + 1))
        places = [number * (len(part) - work.seq_len - 1) // max(1, count - 1) for number in range(count)]
        at_once = max(work.batch, AT_ONCE // work.seq_len)
        self.model.eval()
        with torch.no_grad():
            losses = [(float(self._loss(self._sequences(part, some))), len(some)) for some in _by(places, at_once)]
        self.model.train()
        return math.fsum(loss * size for loss, size in losses) / count

    def _keep(self) -> None:
        """Write all that it takes to go on, whole or not at all."""
        if self.checkpoint is None or self.saved or perf_counter() < self._saved_at:
            return
        start = perf_counter()
        new = self.checkpoint.with_suffix(".new")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                 "elapsed": self.elapsed, "curve": self.curve, "window": self._window,
                 "random": torch.get_rng_state()}  # fmt: skip
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, new)
            os.replace(new, self.checkpoint)
        except (OSError, RuntimeError) as problem:  # a full disk is no reason to lose the run itself
            self.saved = f"no checkpoint is kept: {problem}".splitlines()[0]
            with suppress(OSError):
                new.unlink()
        self._saved_at = perf_counter() + (perf_counter() - start) / SAVING

    def _load(self) -> None:
        """Go on from the checkpoint; a file that is none is passed over."""
        assert self.checkpoint is not None
        try:
            state = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
            made = sum(steps for metric, steps, _ in state["curve"] if metric == CURVE) + len(state["window"])
            numbers = [state["elapsed"], *(loss for _, _, loss in state["curve"]), *map(float, state["window"])]
            if not (state["step"] == made <= self.training.steps and math.isfinite(math.fsum(numbers))):
                raise ValueError("its step is not where its curve ends")
        except Exception:  # cut off, edited, of an earlier version, or of code of the user's that has changed
            self.checkpoint.unlink()
            return self.__post_init__()
        self.step, self.elapsed, self.curve = state["step"], state["elapsed"], state["curve"]
        self._window = state["window"]
        return None


def train(jobs: Jobs, request: Train) -> Trained:
    """Train a case for so long, or to its end; what was found since it was asked the last time."""
    case = jobs.settle(request.label)
    assert isinstance(case, TrainCase)
    if TRAINEE not in jobs.held:
        jobs.held[TRAINEE] = Trainee(case, Path(request.checkpoint) if request.checkpoint else None)
    trainee: Trainee = jobs.held[TRAINEE]
    return trainee.go(request.seconds)


HANDLERS = {"Train": (Train, train)}


def _by(values: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
