"""Compiled variants: what is compiled is checked, timed without its compilation, and never silently eager."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import KnownProber

from ffnbench.common import jsonable
from ffnbench.metrics import COMPILE
from ffnbench.plan import CompileMode, Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.run.session import Session

HOSTILE = str(Path(__file__).with_name("hostile.py"))


def plan_of(variants: str, mode: str = "forward") -> Plan:
    request = CompareRequest(
        variants=variants, d_model=32, d_ff=64, seq_len=16, threads=1, mode=mode, match="none", device="cpu"
    )
    return plan_compare(request, KnownProber(1.0))


@pytest.fixture(scope="module")
def worker():
    """One process for all: loading the compiler takes longer than all that it compiles here."""
    session = Session()
    yield session
    session.close()


def ask(worker: Session, do: str, label: str, **more: object) -> dict:
    return worker.ask({"do": do, "label": label, **more}, 120)


def assert_right(worker: Session, label: str) -> None:
    """What a call gives after some were timed is what the module gives in float64."""
    ask(worker, "sample", label, calls=2, salt=5)
    assert 0 < ask(worker, "check", label)["error"] < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "forms"),
    [
        ("forward", ("swiglu", "wide=swiglu@d_ff=96")),
        ("train", ("relu@dropout=0.1",)),
        ("backward", ("relu",)),
    ],
)
def test_compiled_forms_are_checked_and_timed(worker: Session, mode: str, forms: tuple[str, ...]) -> None:
    """Two widths of one form, so that neither may find the other's code."""
    plan = plan_of(",".join(f"{form}@backend=compile" for form in forms), mode)
    assert "failure" not in worker.ask({"do": "plan", "plan": jsonable.encode(plan), "memory_bytes": None}, 60)
    for case in plan.cases:
        opened = ask(worker, "open", case.label, calls=None)
        assert opened.get("graphs") == 1, opened
        assert opened[COMPILE] > 0.05
    for case in plan.cases:
        assert ask(worker, "sample", case.label, calls=2)["value"] > 0
        assert_right(worker, case.label)
        memory = ask(worker, "memory", case.label)
        assert memory["peak_bytes"] >= 4 * 16 * 32
        assert (memory["saved_bytes"] is None) == (mode == "forward")
        assert ask(worker, "sample", case.label, calls=2)["value"] > 0


@pytest.mark.slow
def test_compile_modes_and_frozen_weights(worker: Session) -> None:
    """Each mode computes the same; what frozen weights take is the compiler's matter."""
    plan = plan_of("swiglu@backend=compile")
    case = plan.cases[0]
    works = [replace(case.workload, compile=mode.value) for mode in CompileMode if mode.value != "default"]
    works = [*works, replace(case.workload, freeze=True)]
    cases = [replace(case, label=f"{i}", workload=work) for i, work in enumerate(works)]
    plan = replace(plan, cases=tuple(cases), reference="0")
    worker.ask({"do": "plan", "plan": jsonable.encode(plan), "memory_bytes": None}, 60)
    found = [ask(worker, "open", case.label, calls=None) for case in cases]
    own = 4 * 3 * 32 * 64
    assert [answer.get("graphs") for answer in found] == [1] * len(cases), found
    assert [answer["held_bytes"] for answer in found[:-1]] == [own] * (len(cases) - 1)
    assert found[-1]["held_bytes"] is None
    for case in cases:
        assert ask(worker, "sample", case.label, calls=2)["value"] > 0
        assert_right(worker, case.label)


@pytest.mark.slow
def test_code_that_does_not_compile_once_and_for_all(worker: Session) -> None:
    names = ("Plain", "TwoGraphs", "Counts", "Closed")
    plan = plan_of(",".join(f"{HOSTILE}:{name}@backend=compile" for name in names))
    worker.ask({"do": "plan", "plan": jsonable.encode(plan), "memory_bytes": None}, 60)
    found = dict(zip(names, [ask(worker, "open", case.label, calls=None) for case in plan.cases], strict=True))
    assert found["Plain"]["graphs"] == 1
    assert found["TwoGraphs"]["graphs"] == 2
    assert found["Counts"]["failure"] == "recompiled"
    assert "compiles again while it is timed" in found["Counts"]["message"]
    assert found["Closed"]["failure"] == "unsupported"
    assert "nothing in it that it could compile" in found["Closed"]["message"]


@pytest.mark.slow
def test_a_machine_without_a_compiler_says_so() -> None:
    session = Session(
        replace(plan_compare(CompareRequest()).cases[0].arm, env=(("CXX", "/nowhere/g++"), ("PATH", "/nowhere")))
    )
    plan = plan_of("swiglu@backend=compile")
    session.ask({"do": "plan", "plan": jsonable.encode(plan), "memory_bytes": None}, 60)
    answer = ask(session, "open", plan.cases[0].label, calls=None)
    session.close()
    assert answer["failure"] == "unsupported", answer
    assert "C++ compiler" in answer["message"]
