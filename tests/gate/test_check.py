"""What a gate decides: every status, every exit code, and how often it is wrong on
simulated machines.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, KnownProber, prepare
from gate_world import edited, machine, measured, saved

from ffnbench.api.call import Call
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.gate import checking
from ffnbench.gate.decision import (
    Checked,
    Finding,
    Policy,
    Status,
    exact_findings,
    exit_code,
    parse_tolerances,
    status_of,
)
from ffnbench.plan.plan import CONTROL, Workload


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return saved(tmp_path / "baseline.json")


@pytest.fixture
def call(on_fakes):
    """`ffnbench check`; gives exit code, stdout in one line, stderr."""

    def run(
        *arguments: object, launch: FakeLaunch | None = None
    ) -> tuple[int, str, str]:
        return on_fakes("check", *arguments, launch=launch or machine(seed=1))

    return run


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        (0.90, 0.99, Status.IMPROVED), (0.99, 1.049, Status.OK), (1.001, 1.05, Status.OK), (0.5, 2.0, Status.UNCLEAR),
        (1.05, 1.07, Status.UNCLEAR), (1.051, 1.20, Status.REGRESSED),
    ],
)  # fmt: skip
def test_the_gate_is_decided_by_the_interval(
    low: float, high: float, status: Status
) -> None:
    assert status_of(low, high, 0.05) is status


@pytest.mark.parametrize(
    ("statuses", "unclear_fails", "code"),
    [
        ({Status.OK}, True, 0), ({Status.IMPROVED, Status.NEW}, True, 0), ({Status.REGRESSED}, False, 1),
        ({Status.REGRESSED, Status.MISSING, Status.UNCLEAR}, True, 1), ({Status.MISSING, Status.OK}, False, 3),
        ({Status.UNCLEAR}, False, 0), ({Status.UNCLEAR}, True, 4), ({Status.INCOMPARABLE}, False, 0),
        ({Status.INCOMPARABLE}, True, 4), (set(), True, 0),
    ],
)  # fmt: skip
def test_every_exit_code(statuses: set[Status], unclear_fails: bool, code: int) -> None:
    findings = tuple(
        Finding(case="a", metric="latency", status=status, tolerance=0.05)
        for status in statuses
    )
    run = measured()
    checked = Checked(findings=findings, before=run, now=run)
    assert exit_code(checked, unclear_fails=unclear_fails) == code


def test_tolerances() -> None:
    policy = Policy(
        tolerances=parse_tolerances(
            ["latency=3%", "mine.py:act:latency=8%", "params=1%"],
            {"mine.py:act": "act"},
        )
    )
    assert policy.of("swiglu", "latency") == 0.03
    assert policy.of("mine.py:act", "latency") == 0.08
    assert (policy.of("swiglu", "params"), policy.of("swiglu", "peak_bytes")) == (
        0.01,
        0.0,
    )
    assert Policy().of("swiglu", "latency") == 0.05
    assert parse_tolerances(["0.5%", "params=0"], {}) == (
        ("", "latency", 0.005),
        ("", "params", 0.0),
    )


def test_a_tolerance_of_one_row_counts_before_that_of_its_group() -> None:
    labels = [f"swiglu@seq_len={tokens}" for tokens in (1, 2)]
    for texts in (
        ("swiglu:latency=3%", f"{labels[0]}:latency=8%"),
        (f"{labels[0]}:latency=8%", "swiglu:latency=3%"),
    ):
        policy = Policy(
            tolerances=parse_tolerances(texts, dict.fromkeys(labels, "swiglu"))
        )
        assert [policy.of(label, "latency") for label in labels] == [0.08, 0.03]


def test_less_for_less_work_is_no_gain() -> None:
    before, now = (
        prepare(variants="relu", d_model=64, seq_len=tokens, device="cpu").cost_report()
        for tokens in (16, 8)
    )
    statuses = {
        found.metric: found.status for found in exact_findings(before, now, Policy())
    }
    assert (statuses["params"], statuses["peak_bytes"]) == (Status.OK, Status.REGRESSED)


def test_a_slower_reference_is_suspected(call, baseline: Path) -> None:
    launch = machine({"relu": 1.3, CONTROL: 1.3}, seed=2)
    code, out, _ = call(baseline, launch=launch)
    assert (code, "every row improved: has the reference bec" in out) == (
        0,
        True,
    )


@pytest.mark.parametrize(("flag", "code"), [("pass", 0), ("fail", 4)])
def test_a_budget_that_is_over_before_a_round_can_not_tell(
    call, baseline: Path, clock: list, flag: str, code: int
) -> None:
    ticks = itertools.count(step=3.0)
    clock[0] = lambda: next(ticks)
    ended, out, err = call(baseline, f"--budget 5 --on-unclear {flag}")
    assert (ended, "swiglu latency can't tell" in out) == (code, True), out
    assert "error:" not in err


@pytest.mark.parametrize("damage", [{"findings": [{"case": "relu"}]}, {"now": 3}])
def test_a_saved_check_that_is_damaged_is_an_error(
    call, on_fakes, baseline: Path, tmp_path: Path, damage: dict
) -> None:
    path = tmp_path / "check.json"
    assert call(baseline, baseline, "-o", path)[0] == 0
    edited(path, lambda data: data.update(damage))
    code, _, err = on_fakes("report", path)
    assert (code, err.count("\n"), "check.json" in err) == (2, 2, True)


def test_an_update_beside_other_work_keeps_the_baseline(call, baseline: Path) -> None:
    before, noisy = baseline.read_text(), machine({"swiglu": 1.3})
    noisy.waited = 0.7
    code, out, err = call(baseline, "--update --budget 10", launch=noisy)
    assert (code, "REGRESSED" in out, baseline.read_text()) == (3, False, before)
    assert "the baseline was not updated: nothing was measured for gelu, " in err


def test_a_saved_run_is_held_against_the_baseline_and_nothing_is_measured(
    call, baseline: Path, tmp_path: Path
) -> None:
    run, launch = tmp_path / "run.json", machine()
    slower = measured(machine({"swiglu": 1.2}, seed=3), precision=0.5)
    assert call(baseline, saved(run, slower), launch=launch)[0] == 1
    assert launch.log == []
    noisy = measured(machine({"swiglu": 1.05}, scatter=0.05), precision=10.0)
    out = call(baseline, saved(run, noisy))[1]
    assert re.search(r": (gelu, )?swiglu: the interval crosses the limit", out)
    assert "--budget" not in out


def test_a_saved_run_that_was_interrupted_can_fail_and_lacks_what_it_has_not(
    call, baseline: Path, tmp_path: Path
) -> None:
    slower = saved(tmp_path / "b.json", measured(machine({"swiglu": 1.5})))
    edited(slower, lambda data: data.update(interrupted=True))
    assert call(baseline, slower)[0] == 1
    before = baseline.read_text()
    slow = machine({"swiglu": 1.5})
    longer = measured(slow, workers=5, rounds=3, metrics="latency,memory")
    cut = edited(
        saved(tmp_path / "c.json", longer), lambda data: data.update(interrupted=True)
    )
    err = call(baseline, cut, "--update")[2]
    assert "the baseline was not updated: this run is incomplete" in err
    assert baseline.read_text() == before
    edited(slower, lambda data: data.update(measured=data["measured"][:1]))
    assert "swiglu peak_bytes MISSING" in call(baseline, slower, "--exact-only")[1]


class Uncountable(KnownProber):
    """What is counted ends its process."""

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        raise Unsupported(f"{spec.target}: SystemExit: 0")


def test_a_row_that_can_not_be_counted_does_not_end_a_check(
    on_fakes, tmp_path: Path, monkeypatch
) -> None:
    """It has no numbers then and now; one that had some is missing."""
    monkeypatch.chdir(tmp_path)
    check = "check b.json --exact-only --trust mypkg.mlp:SwiGLU"
    for prober, is_missing in ((Uncountable, False), (KnownProber, True)):
        assert on_fakes(
            "cost relu,mypkg.mlp:SwiGLU --d-model 64 -o b.json", prober=prober
        )[0] == (3 if prober is Uncountable else 0)
        code, out, _ = on_fakes(check, prober=Uncountable)
        assert (code, "SwiGLU params MISSING" in out) == (3, is_missing), out


def test_a_gate_neither_cries_wolf_nor_sleeps(call, baseline: Path) -> None:
    """Ten checks each of unchanged code and of +8 % at a tolerance of 2 %, with workers
    of 0.4 % scatter.
    """

    def codes(factor: float) -> list[int]:
        launches = [machine({"swiglu": factor}, 0.004, seed) for seed in range(10)]
        return [
            call(baseline, "--tolerance latency=2%", launch=launch)[0]
            for launch in launches
        ]

    assert codes(1.0) == [0] * 10
    assert sum(code == 1 for code in codes(1.08)) >= 9


def test_what_a_check_could_have_seen_is_said_in_the_terms_of_its_verdicts(
    call, baseline: Path
) -> None:
    """By hand: OK excludes a slowdown of the tolerance; of an undecided row, the limit
    times half the interval.
    """

    def checked_with(*tolerance: str) -> Checked:
        call = Call(command="")
        return checking.check(
            str(baseline),
            str(baseline),
            call,
            tolerance=tolerance,
            exact_only=False,
            budget=120.0,
            trust=(),
        )

    passed = checked_with("swiglu:latency=8%")
    assert (passed.smallest, passed.excluded) == (None, 0.08)
    assert "OK excludes slowdowns above 5.0%" in call(baseline, baseline)[1]
    checked = checked_with("latency=1%", "swiglu:latency=1.2%")
    assert checked.excluded is None
    known = {f.case: f.change for f in checked.findings if f.metric == "latency"}
    halves = {
        case: math.exp((math.log(change.high) - math.log(change.low)) / 2)
        for case, change in known.items()
    }
    assert checked.smallest == pytest.approx(
        max(1.01 * halves["gelu"], 1.012 * halves["swiglu"]) - 1, rel=1e-9
    )
