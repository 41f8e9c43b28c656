"""What a worker does that trains: the modules of a language model of bytes, and the steps that train it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import place_of
from ffnbench.extras.train.plan import VOCABULARY, Train, TrainCase, Trained, read_text
from ffnbench.ffn.attention_module import Attention
from ffnbench.ffn.spec import AttentionSpec
from ffnbench.worker.backends.building import seed_all
from ffnbench.worker.jobs import Jobs

BASE, EPSILON = 10_000.0, 1e-6  # of rotary positions, and of norms
SPREAD = 0.02  # standard deviation of the vectors of bytes


class RotaryAttention(Attention):
    """Causal self-attention whose queries and keys are turned by their place, halves of a head by halves."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As Attention's, turned."""
        q, k, v = super().heads(x)
        head_dim = q.shape[-1]
        steps = BASE ** -(torch.arange(0, head_dim, 2, device=x.device, dtype=torch.float32) / head_dim)
        angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None] * steps
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return _turned(q, cos, sin), _turned(k, cos, sin), v


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Norm(nn.Module):
    """RMSNorm with a weight."""

    def __init__(self, width: int, **where: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, **where))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, EPSILON)


class Block(nn.Module):
    """Attention and FFN, each with a norm before it and a sum behind it."""

    def __init__(self, attention: AttentionSpec, **where: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(attention.d_model, **where) for _ in range(2))
        self.attention = RotaryAttention(attention, **where)
        self.ffn: nn.Module = nn.Identity()  # until Decoder gives it its own

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        y: Tensor = x + self.ffn(self.norms[1](x))
        return y


class Decoder(nn.Module):
    """All blocks, and a norm behind them. x and the result are (batch, seq_len, d_model).

    `make` gives an FFN. What all variants share draws its weights first, and the FFNs after that: so the same seed
    gives all variants the same attention.
    """

    def __init__(self, attention: AttentionSpec, layers: int, make: Callable[[], nn.Module], **where: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(attention, **where) for _ in range(layers))
        self.norm = Norm(attention.d_model, **where)
        for block in self.blocks:
            block.ffn = make()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.norm(x)
        return y


class LanguageModel(nn.Module):
    """Bytes (batch, seq_len) to the logits of the next ones (batch, seq_len, 256). `make` gives its blocks, whose
    weights are drawn last.
    """

    def __init__(self, d_model: int, make: Callable[[], nn.Module], **where: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, d_model, **where)
        nn.init.normal_(self.embed.weight, std=SPREAD)
        self.head = nn.Linear(d_model, VOCABULARY, bias=False, **where)
        self.decoder = make()

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.decoder(self.embed(tokens)))
        return logits


WARM_UP = 0.05  # of the steps
LAST_RATE = 0.1  # of the rate, at the last step
TENTHS = 10  # of the steps: after each of them the model is evaluated
EVALUATED, ON_THE_WAY = 200_000, 50_000  # bytes at most that a model is evaluated on: at the end, and before
AT_ONCE = 4096  # bytes of a batch that is evaluated
DIVERGED = 2 * math.log(VOCABULARY)  # nats: twice what guessing costs
SAVING = 0.05  # of the time, at most
RUN = "training run"  # where the worker holds it


class TrainingRun:
    """The training of one model. `checkpoint` is the file that it can be gone on with from, None for none."""

    def __init__(self, case: TrainCase, checkpoint: Path | None) -> None:
        assert case.training is not None
        self.case, self.training, self.checkpoint = case, case.training, checkpoint
        self.device = place_of(case.workload.device)
        text, self.parts = read_text(self.training.text.path, case.workload.batch, case.workload.seq_len)
        if text.sha256 != self.training.text.sha256:
            raise FfnbenchError(f"the text {text.path!r} is not the one that was planned", "--text: a copy of it")
        self.not_saved = ""  # why no checkpoint is kept
        self._next_save = 0.0
        self._begin()
        if checkpoint is not None and checkpoint.is_file():
            self._resume(checkpoint)

    def _begin(self) -> None:
        spec = self.case.ffn
        seed_all(self.training.seed, spec.around)
        double = self.case.workload.dtype == "float64"
        where = {"device": self.device, "dtype": torch.float64 if double else torch.float32}
        self.model = LanguageModel(spec.d_model, partial(spec.build, **where), **where).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        self.step = 0
        self.curve: list[tuple[int, float]] = []  # steps, and the held-out loss after them

    def train_for(self, seconds: float) -> Trained:
        """Train for about so long, one step at least, or to the end.

        Tells how far it is, and at the end the losses on what is held out and on the part that rates are chosen by.
        """
        start, first_step, steps = perf_counter(), self.step, self.training.steps
        losses = []
        while self.step < steps:
            losses.append(self._train_step())
            tenths = self.step * TENTHS // steps
            if self.step < steps and tenths > (self.step - 1) * TENTHS // steps:
                self.curve.append((self.step, self._loss_of(self.parts.held_out, ON_THE_WAY)))
            if perf_counter() - start > seconds:
                break
        diverged = None
        for number, loss in enumerate(losses, start=first_step + 1):
            if not float(loss) < DIVERGED:
                diverged = number
                break
        step_s = (perf_counter() - start) / max(1, len(losses))
        if diverged is not None:
            return Trained(step=self.step, step_s=step_s, diverged=diverged)
        if self.step < steps:
            self._save()
            loss = self.curve[-1][1] if self.curve else None
            return Trained(step=self.step, step_s=step_s, loss=loss, not_saved=self.not_saved)
        return self._evaluate(step_s)

    def _evaluate(self, step_s: float) -> Trained:
        """The losses of the model at the end."""
        held_out = self._loss_of(self.parts.held_out, EVALUATED)
        choosing = self._loss_of(self.parts.choosing, EVALUATED)
        curve = (*self.curve, (self.step, held_out))
        if not all(math.isfinite(loss) for loss in (choosing, *(loss for _, loss in curve))):
            return Trained(step=self.step, step_s=step_s, diverged=self.step)
        return Trained(step=self.step, step_s=step_s, held_out=held_out, choosing=choosing, curve=curve)

    def _train_step(self) -> Tensor:
        """The loss of the step, not waited for."""
        self.optimizer.param_groups[0]["lr"] = self._rate()
        loss = self._loss(self._batch())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def _rate(self) -> float:
        """Linear warm-up, then a cosine down to LAST_RATE of it."""
        training = self.training
        warm_up = max(1, round(WARM_UP * training.steps))
        if self.step < warm_up:
            return training.rate * (self.step + 1) / warm_up
        done = (self.step - warm_up) / max(1, training.steps - warm_up)
        return training.rate * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2)

    def _batch(self) -> Tensor:
        """Sequences from random places, the same for every variant: (batch, seq_len + 1)."""
        work, text = self.case.workload, self.parts.train
        generator = torch.Generator().manual_seed(self.training.seed * 1_000_003 + self.step)
        places = torch.randint(len(text) - work.seq_len, (work.batch,), generator=generator)
        return self._sequences(text, places.tolist())

    def _sequences(self, text: bytes, places: list[int]) -> Tensor:
        size = self.case.workload.seq_len + 1
        content = bytearray(b"".join(text[place : place + size] for place in places))
        return torch.frombuffer(content, dtype=torch.uint8).view(-1, size).to(self.device, torch.int64)

    def _loss(self, sequences: Tensor) -> Tensor:
        """Nats per byte, the mean."""
        dtype = getattr(torch, self.case.workload.dtype)
        mixed = torch.autocast(self.device.type, dtype) if dtype.itemsize < 4 else nullcontext()
        with mixed:
            logits = self.model(sequences[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), sequences[:, 1:].flatten())

    def _loss_of(self, text: bytes, most_bytes: int) -> float:
        """Over evenly spread sequences of a text."""
        work = self.case.workload
        count = max(1, min(most_bytes, len(text)) // (work.seq_len + 1))
        places = [number * (len(text) - work.seq_len - 1) // max(1, count - 1) for number in range(count)]
        at_once = max(work.batch, AT_ONCE // work.seq_len)
        total = 0.0
        self.model.eval()
        with torch.no_grad():
            for start in range(0, count, at_once):
                batch = places[start : start + at_once]
                total += len(batch) * float(self._loss(self._sequences(text, batch)))
        self.model.train()
        return total / count

    def _save(self) -> None:
        """Write all that it takes to go on, whole or not at all."""
        if self.checkpoint is None or self.not_saved or perf_counter() < self._next_save:
            return
        start = perf_counter()
        new = self.checkpoint.with_suffix(".new")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "curve": self.curve,
            "random": torch.get_rng_state(),
        }
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, new)
            os.replace(new, self.checkpoint)
        except (OSError, RuntimeError) as problem:  # a full disk is no reason to lose the run itself
            self.not_saved = f"no checkpoint is kept: {problem}".splitlines()[0]
            with suppress(OSError):
                new.unlink()
        self._next_save = perf_counter() + (perf_counter() - start) / SAVING

    def _resume(self, checkpoint: Path) -> None:
        """Go on from the checkpoint; one that can't be read is passed over."""
        try:
            state = torch.load(checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
            self.step, self.curve = state["step"], state["curve"]
        except Exception:  # cut off, of an earlier version, or of code of the user's that has changed
            checkpoint.unlink()
            self._begin()


def train(jobs: Jobs, request: Train) -> Trained:
    """Train a case for so long, or to its end; what there is to tell of it."""
    if RUN not in jobs.held:
        case = jobs.settle(request.label)
        assert isinstance(case, TrainCase)
        jobs.held[RUN] = TrainingRun(case, Path(request.checkpoint) if request.checkpoint else None)
    run: TrainingRun = jobs.held[RUN]
    return run.train_for(request.seconds)


HANDLERS = {"Train": (Train, train)}
