"""`ffnbench selftest`: what it counts, what it prints and saves, how it ends."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from exam.machine import Machine, World

from ffnbench.cli.commands import FILES, options_of
from ffnbench.extras.selftest import measuring
from ffnbench.extras.selftest.measuring import (
    SLOWDOWNS,
    Rate,
    SelftestRequest,
    SelftestRow,
    error_rates,
)
from ffnbench.plan import Plan
from ffnbench.result import Failure, FailureKind, Run

CALM = World(name="calm", layout=0.001, starter=0.0, sample=0.01)


def on_dice(plan: Plan, real, world: World = CALM) -> Run:
    return Machine(world, plan, plan.protocol.seed).measure(plan, real)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Runs are simulated; what was asked of them."""
    plans: list[Plan] = []
    monkeypatch.setattr(
        measuring,
        "run_workers",
        lambda plan, _, real=measuring.run_workers: (
            plans.append(plan) or on_dice(plan, real)
        ),
    )
    return plans


def told(run: int, row: str, verdict: str, *interval: float) -> SelftestRow:
    low, high = interval or (None, None)
    return SelftestRow(run=run, row=row, truth=1 + SLOWDOWNS.get(row, 0.0), ratio=1.0, low=low, high=high, verdict=verdict,
                seconds=10.0 + run)  # fmt: skip


def test_counting() -> None:
    """A run has one false difference however many of its equal rows are called
    different.
    """
    rates = error_rates([
        told(0, "same1", "slower", 1.01, 1.02), told(0, "same2", "faster", 0.97, 0.99),
        told(0, "+3%", "slower", 1.02, 1.04),
        told(1, "same1", "same", 0.99, 1.01), told(1, "same2", "unclear", 0.9, 1.1), told(1, "+3%", "same", 0.99, 1.01),
        told(2, "same1", "busy"), told(2, "+5%", "faster", 0.8, 0.9), told(2, "+10%", "slower", 1.05, 1.2),
    ])  # fmt: skip
    assert rates.runs == 3
    assert rates.false_difference == Rate(hits=1, of=3)
    assert rates.wrong_way == Rate(hits=2, of=4)
    assert rates.covered == Rate(hits=4, of=8)
    assert rates.detected == {
        "+3%": Rate(hits=1, of=3),
        "+5%": Rate(hits=0, of=3),
        "+10%": Rate(hits=1, of=3),
    }
    assert rates.busy == Rate(hits=1, of=3)
    assert rates.seconds == 11.0


def test_the_command(call, asked, tmp_path: Path) -> None:
    path = tmp_path / "told.json"
    code, out, err = call(
        "selftest", "--repeats", "3", "--threads", "1", "--d-model", "64", "-o", path
    )
    assert code == 0, err
    assert "measuring takes at most 45 s" in err  # three runs of 15 s
    assert [plan.protocol.seed for plan in asked] == [0, 1, 2]
    assert {
        (case.workload.threads, case.ffn.d_model)
        for plan in asked
        for case in plan.cases
    } == {(1, 64)}
    assert "100.0%" in out
    rows = json.loads(path.read_text())
    assert [(row["run"], row["row"]) for row in rows] == [
        (n, r) for n in range(3) for r in ("same1", "same2", *SLOWDOWNS)
    ]
    assert {row["row"]: row["truth"] for row in rows} == {
        "same1": 1,
        "same2": 1,
        "+3%": 1.03,
        "+5%": 1.05,
        "+10%": 1.1,
    }


def test_by_default_it_takes_three_minutes_at_most() -> None:
    asked = SelftestRequest()
    assert (
        asked.repeats * (measuring.plan_selftest(asked).protocol.budget_s or math.inf)
        <= 180
    )


def test_what_was_measured_outlives_an_interruption(
    call, tmp_path: Path, monkeypatch
) -> None:
    runs, path = itertools.count(), tmp_path / "told.json"
    monkeypatch.setattr(
        measuring,
        "run_workers",
        lambda plan, _, real=measuring.run_workers: replace(
            on_dice(plan, real), interrupted=next(runs) == 2
        ),
    )
    code, out, err = call("selftest", "--repeats", "4", "-o", path)
    assert code == 130
    assert "the table holds what was measured by then" in err
    assert out.splitlines()
    assert {row["run"] for row in json.loads(path.read_text())} == {0, 1}


def test_why_a_later_run_failed_is_told(call, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = itertools.count()
    lost = Failure(case="+3%", kind=FailureKind.CRASH, message="killed by signal 9")
    monkeypatch.setattr(
        measuring,
        "run_workers",
        lambda plan, _, real=measuring.run_workers: replace(
            on_dice(plan, real), failures=(lost,) if next(runs) == 2 else ()
        ),
    )
    code, out, err = call("selftest", "--repeats", "4")
    assert code == 3
    assert "a case of the selftest failed: killed by signal 9" in err
    assert "the table holds what was measured by then" in err
    assert "interrupted" not in err
    assert out.splitlines()


def test_a_broken_promise_ends_with_3(call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each equal row has a state of its own in every run, which no run can see."""
    restless = World(name="states", run=0.05, sample=0.01)
    monkeypatch.setattr(
        measuring,
        "run_workers",
        lambda plan, _, real=measuring.run_workers: on_dice(plan, real, restless),
    )
    code, out, err = call("selftest", "--repeats", "8", "-q")
    assert code == 3
    assert "the selftest failed: false differences in" in err
    assert "100.0%" in out


def test_a_file_may_set_its_flags() -> None:
    """None of them runs, writes or trusts anything that a command line did not name."""
    of_core = {name for one in FILES for name in options_of(one)}
    assert options_of("selftest").keys() - of_core == {"repeats"}
