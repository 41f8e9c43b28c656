"""Compiled variants: what is compiled is checked, timed without its compilation, and
never silently eager.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_machine import KnownProber, planned
from paths import ROOT

from ffnbench.plan.metrics import COMPILE, HELD
from ffnbench.plan.plan import Plan
from ffnbench.record.result import FailureKind
from ffnbench.run.worker import Worker
from ffnbench.worker.backends import compiling
from ffnbench.worker.backends.building import build_module
from ffnbench.worker.subject import subject_of

HOSTILE = str(ROOT / "tests" / "hostile.py")


def plan_of(variants: str, mode: str = "forward") -> Plan:
    request = dict(
        variants=variants,
        d_model=32,
        d_ff=64,
        seq_len=16,
        threads=1,
        mode=mode,
        match="none",
        device="cpu",
    )
    return planned(**request, probe=KnownProber(1.0))


@pytest.fixture(scope="module")
def worker():
    """One process for all: loading the compiler takes longer than all that it compiles
    here.
    """
    session = Worker()
    yield session
    session.close()


def ask(worker: Worker, job: str, **arguments: Any) -> Any:
    return worker.ask(job, 120, **arguments)


def assert_right(worker: Worker, label: str) -> None:
    """What a call gives after some were timed is what the module gives in float64."""
    ask(worker, "sample", label=label, calls=2, salt=5)
    assert 0 < ask(worker, "check", label=label)["error"] < 1e-5


@pytest.mark.parametrize("freeze", [False, True])
def test_the_bytes_of_weights_that_a_compiler_has_frozen_are_not_known(
    freeze: bool, monkeypatch
) -> None:
    """They are constants in layouts of its own. By hand: two matrices of 32 x 64, in
    float32.
    """
    monkeypatch.setattr(compiling, "compiled_of", lambda work: torch.nn.Module.__call__)
    monkeypatch.setattr(compiling, "compile_now", lambda *_, **__: (1.0, 1))
    [case] = plan_of(f"relu@backend=compile@freeze={str(freeze).lower()}").cases
    subject = subject_of(build_module(case.ffn), case.workload, 32, 0)
    assert compiling.prepare(subject, case.workload).values[HELD] == (
        None if freeze else 2 * 32 * 64 * 4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "forms"),
    [
        ("forward", ("swiglu", "wide=swiglu@d_ff=96")),
        ("train", ("relu@dropout=0.1",)),
        ("backward", ("relu",)),
    ],
)
def test_compiled_forms_are_checked_and_timed(
    worker: Worker, mode: str, forms: tuple[str, ...]
) -> None:
    """Two widths of one form, so that neither may find the other's code."""
    plan = plan_of(",".join(f"{form}@backend=compile" for form in forms), mode)
    assert worker.ask("begin", 60, plan=plan) is None
    for case in plan.cases:
        opened = ask(worker, "open", label=case.label, calls=None)
        assert opened.graphs == 1, opened
        assert opened.values[COMPILE] > 0.05
    for case in plan.cases:
        assert ask(worker, "sample", label=case.label, calls=2).value > 0
        assert_right(worker, case.label)
        memory = ask(worker, "memory", label=case.label)
        assert memory["peak_bytes"] >= 4 * 16 * 32
        assert (memory["saved_bytes"] is None) == (mode == "forward")
        assert ask(worker, "sample", label=case.label, calls=2).value > 0


@pytest.mark.slow
def test_code_that_does_not_compile_once_and_for_all(worker: Worker) -> None:
    names = ("Plain", "TwoGraphs", "Counts", "Closed")
    plan = plan_of(",".join(f"{HOSTILE}:{name}@backend=compile" for name in names))
    worker.ask("begin", 60, plan=plan)
    found = dict(
        zip(
            names,
            [ask(worker, "open", label=case.label, calls=None) for case in plan.cases],
            strict=True,
        )
    )
    assert found["Plain"].graphs == 1
    assert found["TwoGraphs"].graphs == 2
    assert found["Counts"].kind is FailureKind.RECOMPILED
    assert "compiles again while it is timed" in found["Counts"].message
    assert found["Closed"].kind is FailureKind.UNSUPPORTED
    assert "nothing in it that it could compile" in found["Closed"].message
