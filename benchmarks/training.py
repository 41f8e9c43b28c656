"""What `ffnbench train` adds to a step: `python benchmarks/training.py [--steps 60]`,
when nothing else runs.

The model of a run is trained by turns in the loop of ffnbench and in one written by
hand, some steps each, and the medians of their seconds are divided.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F

from ffnbench.extras.train.plan import TrainRequest, plan_train, trained_by
from ffnbench.extras.train.worker import TrainingRun
from ffnbench.plan import Probe

SOME = 5  # steps at a time


def by_hand(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    text: torch.Tensor,
    batch: int,
    context: int,
) -> None:
    """One step, as short as it can be written."""
    places = torch.randint(len(text) - context, (batch, 1))
    tokens = text[places + torch.arange(context + 1)].long()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    """Print the quotient."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    asked = TrainRequest(
        variants="swiglu", device="cpu", threads=given.threads, steps=10 * given.steps
    )
    case = next(case for case in plan_train(asked, Probe()).cases if trained_by(case))
    ours, other = TrainingRun(case), TrainingRun(case)
    text = torch.frombuffer(bytearray(other.parts.train), dtype=torch.uint8)
    optimizer = torch.optim.AdamW(other.model.parameters(), lr=1e-3)
    quotients = []
    for _ in range(given.steps // SOME):
        start, before = perf_counter(), ours.step
        while ours.step < before + SOME:
            ours.train_for(0.0)
        between = perf_counter()
        for _ in range(SOME):
            by_hand(
                other.model, optimizer, text, case.workload.batch, case.workload.seq_len
            )
        quotients.append((between - start) / (perf_counter() - between))
    print(
        f"{median(quotients):.3f} of a loop written by hand ({len(quotients)} turns of {SOME} steps)"
    )


if __name__ == "__main__":
    main()
