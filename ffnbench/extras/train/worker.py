"""Trains one model, step by step, in a process of its own. Needs torch.

What a step reads depends on the seed and the number of the step alone, so all variants
read the same.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import torch_device
from ffnbench.extras.train.decoder import VOCABULARY, LanguageModel
from ffnbench.extras.train.plan import Train, TrainCase, Trained
from ffnbench.extras.train.text import read_text
from ffnbench.worker.backends.building import seed_all
from ffnbench.worker.jobs import Jobs

WARM_UP = 0.05  # share of the steps
LAST_RATE = 0.1  # share of the rate that is left at the last step
EVALUATIONS = 10  # of the held-out loss in a run, evenly spread over its steps
# a model is evaluated on so many bytes at most: at the end, and before
FINAL_BYTES, ON_THE_WAY_BYTES = 200_000, 50_000
EVALUATION_BATCH_BYTES = 4096  # of a batch that is evaluated, at least
DIVERGED_LOSS = 2 * math.log(VOCABULARY)  # nats: twice what guessing costs
HELD_RUN = "training run"  # the key of the run in what the worker holds


class TrainingRun:
    """The training of one model."""

    def __init__(self, case: TrainCase) -> None:
        self.case, self.training = case, case.recipe
        self.device = torch_device(case.workload.device)
        text, self.parts = read_text(
            self.training.text.path, case.workload.batch, case.workload.seq_len
        )
        if text.sha256 != self.training.text.sha256:
            raise FfnbenchError(
                f"the text {text.path!r} is not the one that was planned",
                "--text: a copy of it",
            )
        spec = case.ffn
        seed_all(self.training.seed, spec.around)
        dtype = torch.float64 if case.workload.dtype == "float64" else torch.float32
        where = {"device": self.device, "dtype": dtype}
        self.model = LanguageModel(
            spec.d_model, partial(spec.build, **where), **where
        ).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        self.step = 0
        # steps, and the held-out loss after them
        self.curve: list[tuple[int, float]] = []

    def train_for(self, seconds: float) -> Trained:
        """Train for about so long, one step at least, or to the end.

        Gives how far the training is; at the end also the losses on what is held out
        and on the part that rates are chosen by.
        """
        start, first_step, steps = perf_counter(), self.step, self.training.steps
        losses = []
        while self.step < steps:
            losses.append(self._train_step())
            due = self.step * EVALUATIONS // steps
            due_before = (self.step - 1) * EVALUATIONS // steps
            if self.step < steps and due > due_before:
                loss = self._mean_loss(self.parts.held_out, ON_THE_WAY_BYTES)
                self.curve.append((self.step, loss))
            if perf_counter() - start > seconds:
                break
        diverged = None
        # only now, since reading a loss waits for the device; NaN has diverged as well
        for number, step_loss in enumerate(losses, start=first_step + 1):
            if not float(step_loss) < DIVERGED_LOSS:
                diverged = number
                break
        step_s = (perf_counter() - start) / max(1, len(losses))
        if diverged is not None:
            return Trained(step=self.step, step_s=step_s, diverged=diverged)
        if self.step < steps:
            last_loss = self.curve[-1][1] if self.curve else None
            return Trained(step=self.step, step_s=step_s, loss=last_loss)
        return self._evaluate_at_end(step_s)

    def _evaluate_at_end(self, step_s: float) -> Trained:
        """Evaluate the trained model; a loss that is not finite means that it diverged
        at the last step.
        """
        held_out = self._mean_loss(self.parts.held_out, FINAL_BYTES)
        choosing = self._mean_loss(self.parts.choosing, FINAL_BYTES)
        curve = (*self.curve, (self.step, held_out))
        losses = [choosing, *(loss for _, loss in curve)]
        if not all(map(math.isfinite, losses)):
            return Trained(step=self.step, step_s=step_s, diverged=self.step)
        return Trained(
            step=self.step,
            step_s=step_s,
            held_out=held_out,
            choosing=choosing,
            curve=curve,
        )

    def _train_step(self) -> Tensor:
        """Make a step, and give its loss as a tensor, without waiting for a device."""
        self.optimizer.param_groups[0]["lr"] = self._rate()
        loss = self._loss(self._batch())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def _rate(self) -> float:
        """The learning rate of the next step: a linear warm-up, then a cosine down to
        LAST_RATE of the full rate.
        """
        training = self.training
        warm_up = max(1, round(WARM_UP * training.steps))
        if self.step < warm_up:
            return training.rate * (self.step + 1) / warm_up
        done = (self.step - warm_up) / max(1, training.steps - warm_up)
        cosine = (1 + math.cos(math.pi * done)) / 2
        return training.rate * (LAST_RATE + (1 - LAST_RATE) * cosine)

    def _batch(self) -> Tensor:
        """Sequences of the next step from random places, the same for every variant:
        (batch, seq_len + 1).
        """
        work, text = self.case.workload, self.parts.train
        # a prime above the number of steps: no two steps of any runs share a seed
        generator = torch.Generator().manual_seed(
            self.training.seed * 1_000_003 + self.step
        )
        places = torch.randint(
            len(text) - work.seq_len, (work.batch,), generator=generator
        )
        return self._sequences(text, places.tolist())

    def _sequences(self, text: bytes, places: list[int]) -> Tensor:
        """The bytes at some places of a text: (places, seq_len + 1)."""
        size = self.case.workload.seq_len + 1
        content = bytearray(b"".join(text[place : place + size] for place in places))
        return (
            torch.frombuffer(content, dtype=torch.uint8)
            .view(-1, size)
            .to(self.device, torch.int64)
        )

    def _loss(self, sequences: Tensor) -> Tensor:
        """The mean loss of predicting each byte from those before it, in nats."""
        dtype = getattr(torch, self.case.workload.dtype)
        if dtype.itemsize < 4:
            mixed = torch.autocast(self.device.type, dtype)
        else:
            mixed = nullcontext()
        with mixed:
            logits = self.model(sequences[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), sequences[:, 1:].flatten())

    def _mean_loss(self, text: bytes, most_bytes: int) -> float:
        """Evaluate the model on evenly spread sequences of a text, of so many bytes at
        most; gives nats per byte.
        """
        work = self.case.workload
        count = max(1, min(most_bytes, len(text)) // (work.seq_len + 1))
        places = [
            number * (len(text) - work.seq_len - 1) // max(1, count - 1)
            for number in range(count)
        ]
        at_once = max(work.batch, EVALUATION_BATCH_BYTES // work.seq_len)
        total = 0.0
        self.model.eval()
        with torch.no_grad():
            for start in range(0, count, at_once):
                batch = places[start : start + at_once]
                total += len(batch) * float(self._loss(self._sequences(text, batch)))
        self.model.train()
        return total / count


def train_for_seconds(jobs: Jobs, request: Train) -> Trained:
    """Train a case for so long, or to its end, and give how far it is."""
    if HELD_RUN not in jobs.feature_state:
        case = jobs.set_conditions_of(request.label)
        assert isinstance(case, TrainCase)
        jobs.feature_state[HELD_RUN] = TrainingRun(case)
    run: TrainingRun = jobs.feature_state[HELD_RUN]
    return run.train_for(request.seconds)


HANDLERS = {"Train": (Train, train_for_seconds)}
