"""`activations --time`: one run of operations, how it is told, and every way in which
it can end.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare
from rich.cells import cell_len
from shell import ffnbench

from ffnbench.activations.table import timing_frame
from ffnbench.report.terminal import plain
from ffnbench.request import TimingRequest
from ffnbench.result import Report


def seconds(label: str, worker: int, number: int) -> float:
    name, _, elements, mode = label.split()
    base = (
        {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[name]
        * (2 if mode == "backward" else 1)
        * int(elements)
    )
    return (
        1e-9 * base * (1 + 0.1 * worker) * (1 + 0.001 * (len(label) % 7) * (worker - 1))
    )


def told(activations: str | None, launch: FakeLaunch, **flags) -> Report:
    """The operations measured on workers that are not real."""
    return measure(
        prepare(TimingRequest(activations=activations, **flags)), launch=launch
    )


def test_timing_compares_within_size_dtype_and_direction() -> None:
    report = told(
        "gelu,silu",
        FakeLaunch(seconds),
        elements="1000,5000",
        dtype="float32,bf16",
        quick=True,
    )
    table = timing_frame(report)
    records = table.records()
    assert not report.interrupted
    assert len(records) == 2 * 2 * 2 * 3  # dtypes, sizes, directions; relu is added
    assert len(table.groups) == 8
    for record in records:
        expected = {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[record["activation"]]
        assert record["ratio"] == pytest.approx(expected, rel=0.01)
        assert (
            record["verdict"]
            == {"relu": "reference", "gelu": "slower", "silu": "same"}[
                record["activation"]
            ]
        )
    text = plain(table, 60)
    assert "forward, 5,000 elements, float32" in text
    assert (
        "as fast as relu (within 2%): silu; slower than relu: gelu +200% [+"
        in " ".join(text.split())
    )
    assert all(cell_len(line.rstrip()) <= 60 for line in text.splitlines())


@pytest.mark.slow
def test_timing_for_real_is_one_run_of_operations(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def telu(x): return x * x.exp().tanh()\n")
    done = ffnbench(
        "activations", "--time", "--quick", "--rounds", "2", "--workers", "3", "--activations", "mine.py:telu",
        "--elements", "4096", "--format", "csv", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(r["activation"], r["mode"]) for r in rows] == [
        (name, mode) for mode in ("forward", "backward") for name in ("relu", "telu")
    ]
    assert all(
        (r["verdict"] == "busy" or float(r["latency_s"]) > 0) and r["failure"] == ""
        for r in rows
    )


def interrupted_at(place: tuple[int, int], problem: BaseException):
    def seconds(label: str, worker: int, number: int) -> float:
        if (worker, number) >= place:
            raise problem
        return 0.01

    return FakeLaunch(seconds)


def test_an_interrupted_run_shows_what_was_measured_and_says_so() -> None:
    launch = interrupted_at((2, 3), KeyboardInterrupt())
    report = told("gelu", launch, elements="10,20", workers=5, rounds=6)
    assert report.interrupted
    table = timing_frame(report)
    assert any(
        "3 fresh processes x 3-6 shuffled rounds" in line for line in table.details
    )
    assert (
        "interrupted: 0 of 4 groups are done" in table.summary
    )  # two sizes, forward and backward
