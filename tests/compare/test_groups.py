"""Lists: each combination is a group with its own reference, match and widths; how they
are typed, measured, read.
"""

from __future__ import annotations

import csv
import io
import math
import random
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, KnownProber, measure, planned, prepare

from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import CONTROL, Plan
from ffnbench.record.result import Report, Verdict
from ffnbench.report.store import report_text
from ffnbench.run.resources import memory_needed, too_large

LISTS = {"d_model": (64, 96), "dtype": ("float32", "bfloat16"), "mode": ("forward", "train"), "threads": (1, 2),
         "batch": (1, 3), "seq_len": (8, 16)}  # fmt: skip


def plan_of(variants: str, **flags: object) -> Plan:
    return planned(variants, probe=KnownProber(1.0), **flags)


# The plan


def test_each_group_is_the_plan_of_its_own_values() -> None:
    """Whatever a list does, a group holds what a request of single values asks: widths,
    residuals, workloads.
    """
    asked = {
        key: ",".join(values) if key in ("dtype", "mode") else values
        for key, values in LISTS.items()
    }
    plan = plan_of("relu,swiglu,mypkg.mlp:Own", **asked)
    combinations = [
        dict(zip(LISTS, values, strict=True)) for values in product(*LISTS.values())
    ]
    assert len(plan.groups) == len(combinations) == 64
    for group, values in zip(plan.groups, combinations, strict=True):
        alone = plan_of("relu,swiglu,mypkg.mlp:Own", **values)
        assert dict(group.values) == values
        assert [replace(case, point=()) for case in group.cases] == list(alone.cases)
        assert plan.name_of(group.reference) == alone.reference == "relu"
    assert len({case.label for case in plan.cases}) == len(plan.cases) == 3 * 64
    assert [case for group in plan.groups for case in group.cases] == list(
        plan.cases
    )  # rows of a group together


def test_memory_is_that_of_all_groups_together() -> None:
    one, many = (
        plan_of("relu,swiglu", d_model=256, seq_len=n, device="cpu")
        for n in (8, (8, 16, 32))
    )
    # All weights and inputs at once; one matrix is copied to float64 at a time, and one
    # case is called at a time.
    needed = memory_needed(many.cases)
    assert 2 < needed / memory_needed(one.cases) < 3
    assert not too_large(one, {"cpu": needed - 1})
    assert not too_large(many, {"cpu": needed})
    (failure,) = too_large(many, {"cpu": needed - 1})
    assert "of memory, and" in failure.message


@pytest.fixture
def call(in_process, on_machine):
    on_machine(FakeLaunch(), KnownProber)
    return in_process


# Measured, shown and saved


def machine(slow: dict[str, float] | None = None, seed: int = 0) -> FakeLaunch:
    """A token takes 1 ms, swiglu half as long again, with a little noise; `slow` are
    factors of single rows.
    """
    dice = random.Random(seed)

    def seconds(label: str, worker: int, number: int) -> float:
        tokens = (
            int(re.search(r"seq_len=(\d+)", label)[1]) if "seq_len=" in label else 8
        )
        known = "relu@seq_len=8" if label == CONTROL else label
        factor = (slow or {}).get(known, 1.0) * (
            1.5 if label.startswith("swiglu") else 1.0
        )
        return 1e-3 * tokens * factor * math.exp(dice.gauss(0, 0.001))

    return FakeLaunch(seconds)


def measured(launch: FakeLaunch | None = None, **options: object) -> Report:
    flags = {"d_model": 64, "seq_len": (8, 32), "precision": 0.5, **options}
    return measure(prepare("relu,swiglu", **flags), launch=launch or machine())


def test_ratios_are_to_the_reference_of_the_group() -> None:
    """In the same rounds: against the first group's relu swiglu@seq_len=32 would take
    six times as long.
    """
    report = measured()
    found = {c.case: (c.reference, c.verdict) for c in report.comparisons}
    for tokens in (8, 32):
        reference = f"relu@seq_len={tokens}"
        assert found[reference] == (reference, Verdict.REFERENCE)
        assert found[f"swiglu@seq_len={tokens}"] == (reference, Verdict.SLOWER)
        assert report.comparison(
            f"swiglu@seq_len={tokens}"
        ).ratio.value == pytest.approx(1.5, rel=0.01)
    assert (
        report.plan.compared == 2
    )  # what decisions are corrected for: one error in twenty sweeps, not cells
    timed = {
        (sample.worker, sample.case)
        for sample in report.samples
        if sample.metric == LATENCY
    }
    workers = {worker for worker, _ in timed}
    apart = [
        {case for worker_, case in timed if worker_ == worker} for worker in workers
    ]
    assert all(
        rows in ({c.label for c in group.cases} for group in report.plan.groups)
        for rows in apart
    )


@pytest.mark.parametrize("slow", ["swiglu@seq_len=32", "relu@seq_len=8"])
def test_a_check_finds_the_group_that_became_slower(
    slow: str, tmp_path: Path, call, on_machine
) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(report_text(measured(metrics="latency")))
    on_machine(machine(seed=1), KnownProber)
    assert call("check", path, "-q", "--budget", "20")[0] == 0
    on_machine(machine({slow: 1.3}, seed=2), KnownProber)
    code, out, _ = call("check", path, "-q", "--budget", "20", "-f", "csv")
    found = {
        row["case"]: row["status"]
        for row in csv.DictReader(io.StringIO(out))
        if row["metric"] == "latency"
    }
    worse, other = (
        ("REGRESSED", "OK") if slow.startswith("swiglu") else ("OK", "IMPROVED")
    )
    assert (code, found["swiglu@seq_len=32"]) == (int(worse == "REGRESSED"), worse)
    assert found["swiglu@seq_len=8"] == other
