"""Checks on simulated machines, and rows that are slowed down on purpose: what exams of
error rates rest on.
"""

from __future__ import annotations

import pytest
import torch
from fake_machine import planned
from gate import check_plan, checks_of, simulate
from simulated import WORLDS
from torch import Tensor, nn

from ffnbench.worker import jobs, subject, timing
from ffnbench.worker.backends import building


def test_checks_go_through_the_real_loop() -> None:
    """Two baselines of three runs on a quiet machine: none accused of nothing, a fifth
    is found.
    """
    quiet = [world for world in WORLDS if world.name == "quiet"]
    checks = checks_of(simulate(check_plan(), quiet, 2, shares=(0.0, 0.2)))
    unchanged, slowed = (checks.xs(share, level="share") for share in (0.0, 0.2))
    assert (len(unchanged), unchanged.false.sum(), unchanged.unclear.sum()) == (2, 0, 0)
    assert (slowed.found.sum(), slowed.false.sum()) == (2, 0)


class Clock:
    """Is moved by what is timed; a look at it takes a millionth of a second."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


class Takes(torch.autograd.Function):
    """One second forward, and two backward."""

    @staticmethod
    def forward(ctx, x, clock):
        ctx.clock = clock
        clock.now += 1.0
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.clock.now += 2.0
        return grad, None


class Timed(nn.Module):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, x: Tensor) -> Tensor:
        return Takes.apply(x, self.clock)


@pytest.mark.parametrize(
    ("mode", "seconds"), [("forward", 1.0), ("train", 3.0), ("backward", 2.0)]
)
def test_a_slow_down_is_exactly_what_was_asked_for(
    mode: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spin is a share of the call's own time: forward, backward and both."""
    clock = Clock()
    for module in (timing, subject):
        monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(building, "build_module", lambda spec, **place: Timed(clock))
    variants = f"a=relu@mode={mode},b=relu@mode={mode}@slowdown=0.5"
    request = dict(variants=variants, d_model=8, seq_len=4, threads=1)
    made = jobs.Jobs(planned(**request).with_device("cpu"))
    for label, expected in (("a", seconds), ("b", 1.5 * seconds)):
        made.open(label=label, calls=2)
        sample = made.sample(label=label, calls=2)
        assert sample.value == pytest.approx(expected, rel=1e-4)
