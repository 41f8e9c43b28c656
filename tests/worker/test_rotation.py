"""Copies of the weights, of which each timed call uses the next."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from fake_machine import KnownProber, planned

from ffnbench.worker import rotation
from ffnbench.worker.jobs import Jobs

COUNTED = """
import torch
calls = []
class Counted(torch.nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up = torch.nn.Linear(d_model, d_ff, bias=False)
        self.down = torch.nn.Linear(d_ff, d_model, bias=False)
    def forward(self, x):
        calls.append(self)
        return self.down(torch.relu(self.up(x)))
"""


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if three copies were enough."""
    monkeypatch.setattr(rotation, "rotated_copies", lambda weight_bytes: 3)


def opened(variant: str, **flags: object) -> tuple[Jobs, str]:
    plan = planned(variant, d_model=64, d_ff=96, seq_len=4, device="cpu", probe=KnownProber(1.0), **flags)  # fmt: skip
    jobs, label = Jobs(plan), plan.reference
    jobs.open(label=label, calls=1)
    return jobs, label


@pytest.mark.parametrize("mode", ["forward", "train", "backward"])
def test_calls_use_the_copies_by_turns(
    mode: str, three: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three differ in their storage, have the same weights, and none keeps a
    gradient for the next call to add to.
    """
    (tmp_path / "counted.py").write_text(COUNTED)
    monkeypatch.chdir(tmp_path)
    jobs, label = opened("counted.py:Counted@cache=rotated", mode=mode)
    calls = sys.modules[type(jobs.subjects[label].module).__module__].calls
    calls.clear()
    jobs.sample(label, calls=7, salt=1)
    assert len({id(module) for module in calls}) == 3
    assert all(calls[i] is calls[i + 3] for i in range(4))
    places = {module.up.weight.data_ptr() for module in calls}
    assert len(places) == 3
    for module in calls:
        assert torch.equal(module.up.weight, calls[0].up.weight)
        assert module.up.weight.grad is None
    jobs.check(label)  # of the output, and in train mode of the gradients


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("", 1e-5),
        ("@backend=onednn", 1e-5),
        ("@weights=int8", 0.02),
        ("@weights=int4", 0.2),
        pytest.param(
            "@backend=compile",
            1e-5,
            marks=[
                pytest.mark.slow,
                # torch's own, as it loads its compiler
                pytest.mark.filterwarnings("ignore::DeprecationWarning"),
            ],
        ),
    ],
)
def test_each_copy_computes_the_form(keys: str, error: float, three: None) -> None:
    jobs, label = opened(f"swiglu@cache=rotated{keys}")
    subject = jobs.subjects[label]
    gate, up, down = (
        matrix.weight.detach().double()
        for matrix in (subject.module.gate, subject.module.up, subject.module.down)
    )
    x = torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(3))
    silu = torch.nn.functional.silu
    right = (silu(x.double() @ gate.T) * (x.double() @ up.T)) @ down.T
    run_by: set[int] = set()
    for _ in range(3):
        called = subject.next()
        y = called.call(x)
        assert float((y - right).norm() / right.norm()) < error
        run_by.add(id(called.forward))
    assert len(run_by) == 3
    # no compiled code is made anew
    jobs.sample(label, calls=4)
