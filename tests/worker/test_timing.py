"""What is called when: a case is warm before its calls are counted, and no clock runs
while gradients are cleared.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
import torch
from fake_machine import planned
from torch import Tensor, nn

from ffnbench.worker import jobs, timing
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends import building

D, SEQ = 8, 32
COLD_S, WARM_S = 1 / 64, 1 / 1024  # powers of two, so that their sums are exact


class Slow(nn.Module):
    """A clock, and a module that moves it: cold for that many calls on the whole input,
    then faster.
    """

    def __init__(self, cold_calls: int) -> None:
        super().__init__()
        self.now, self.calls, self.cold_calls = 0.0, 0, cold_calls

    def clock(self) -> float:
        return self.now

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == SEQ:  # the checks of its values look at the first tokens alone
            self.calls += 1
            self.now += COLD_S if self.calls <= self.cold_calls else WARM_S
        return 2 * x


def test_a_case_is_warm_before_its_calls_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One checked call and eight of warming up take 16 ms each, all others 1 ms:
    sixteen of them make a sample.
    """
    plan = planned(variants="relu", d_model=D, seq_len=SEQ, threads=1, device="cpu")
    warmup_s = 8 * COLD_S
    plan = replace(
        plan,
        protocol=replace(plan.protocol, warmup_s=warmup_s, min_sample_s=16 * WARM_S),
    )
    module = Slow(cold_calls=1 + 8)
    monkeypatch.setattr(building, "build_module", lambda spec, **place: module)
    monkeypatch.setattr(timing, "perf_counter", module.clock)
    assert jobs.Jobs(plan).open(label="relu", calls=None).calls == 16
    assert module.now >= COLD_S + warmup_s
    again = Slow(cold_calls=0)
    monkeypatch.setattr(building, "build_module", lambda spec, **place: again)
    monkeypatch.setattr(timing, "perf_counter", again.clock)
    jobs.Jobs(plan).open(label="relu", calls=16)
    assert (
        again.now < warmup_s
    )  # one that is told the number of calls leaves that to its round of practice


class Watched(nn.Parameter):
    """A leaf that says when Python sets its gradient; autograd itself sets it
    unseen.
    """

    events: list[str]

    @property
    def grad(self) -> Tensor | None:
        return torch.Tensor.grad.__get__(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.events.append("clear")
        torch.Tensor.grad.__set__(self, value)


def watched(events: list[str]) -> Watched:
    leaf = Watched(torch.randn(1, 4, 4))
    leaf.events = events
    return leaf


class Matrix(nn.Module):
    """One matrix, whose call is an event."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events, self.weight = events, watched(events)

    def forward(self, x: Tensor) -> Tensor:
        self.events.append("forward")
        return x @ self.weight


@pytest.mark.parametrize(
    ("backward_only", "a_call"),
    [
        (False, ["clear", "start", "forward", "stop"]),
        (True, ["clear", "forward", "start", "stop"]),
    ],
    ids=["train", "backward"],
)
def test_gradients_are_cleared_while_no_clock_runs(
    backward_only: bool, a_call: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def read() -> float:
        events.append(
            "stop" if events.count("start") > events.count("stop") else "start"
        )
        if events[-1] == "start" and subject.module.weight.grad is not None:
            events.append("gradients of the last call")
        return float(len(events))

    monkeypatch.setattr(timing, "perf_counter", read)
    subject = subjects.Subject(
        Matrix(events), watched(events), torch.ones(1, 4, 4), True, backward_only
    )
    assert timing._one_by_one(subject, subject.pool.renew(7, 3), [subject.grad] * 3) > 0
    assert [event for event, _ in groupby(events)] == [*a_call * 3, "clear"]


def test_cold_on_the_cpu_evicts_before_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice the last caches, read and written, while no clock runs."""
    monkeypatch.setattr(timing, "last_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(timing, "_buffer_of", lambda size: Buffer(size))
    events: list[object] = []

    class Buffer:
        def __init__(self, size: int) -> None:
            self.size = size

        def add_(self, number: int) -> None:
            events.append(self.size)

    def read() -> float:
        events.append("clock")
        return float(len(events))

    module = Matrix(events)  # type: ignore[arg-type]
    subject = subjects.Subject(
        module, torch.randn(1, 4, 4), torch.ones(1, 4, 4), False, cold=True
    )
    inputs = subject.pool.renew(1, 2)
    events.clear()
    monkeypatch.setattr(timing, "perf_counter", read)
    timing.time_calls(subject, inputs)
    assert events == [2 * (1 << 20), "clock", "forward", "clock"] * 2
