"""`ffnbench check`: tolerances, budgets, files, and how often it is wrong on simulated
machines.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, KnownProber
from gate_world import machine, saved

import ffnbench
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import Workload


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


def test_the_tolerance_of_a_row_counts_before_that_of_its_group_and_of_all(
    tmp_path: Path,
) -> None:
    """`llama3-8b` stands for the row `llama3-8b (swiglu)`."""
    sweep = {"variants": "relu,gelu", "seq_len": "1,2", "workers": 5, "rounds": 3}
    path = saved(tmp_path / "sweep.json", **sweep, precision=None)
    texts = [
        "latency=3%",
        "gelu:latency=4%",
        "gelu@seq_len=1:latency=8%",
        "gelu:params=1%",
    ]
    for tolerance in (texts, texts[::-1]):
        found = ffnbench.check(path, path, tolerance=tolerance).findings
        latencies = [row.tolerance for row in found if row.metric == "latency"]
        assert latencies == [0.08, 0.04]
        params = [row.tolerance for row in found if row.metric == "params"]
        assert params == [0.0, 0.01, 0.0, 0.01]
    preset = ffnbench.cost("llama3-8b").save(tmp_path / "preset.json")
    tolerance = ["llama3-8b:params=2%", "params=1%"]
    found = ffnbench.check(preset, preset, tolerance=tolerance, exact_only=True)
    assert [r.tolerance for r in found.findings if r.metric == "params"] == [0.02]


@pytest.mark.parametrize(("flag", "code"), [("pass", 0), ("fail", 4)])
def test_a_budget_that_is_over_before_a_round_can_not_tell(
    call, baseline: Path, clock: list, flag: str, code: int
) -> None:
    ticks = itertools.count(step=3.0)
    clock[0] = lambda: next(ticks)
    ended, out, err = call(baseline, f"--budget 5 --on-unclear {flag}")
    assert (ended, "swiglu latency can't tell" in out) == (code, True), out
    assert "error:" not in err


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


def test_what_a_check_could_have_found_is_the_limit_times_half_the_interval(
    call, baseline: Path
) -> None:
    found = ffnbench.check(
        baseline, baseline, tolerance=["latency=1%", "swiglu:latency=1.2%"]
    )
    found_in = [
        (1 + row.tolerance) * math.sqrt(row.change.high / row.change.low) - 1
        for row in found.findings
        if row.status == "UNCLEAR"
    ]
    assert len(found_in) == 2
    assert f"a slowdown of {100 * max(found_in):.1f}% would have shown" in str(found)
