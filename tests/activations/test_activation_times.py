"""`activations --time`: one run of operations, how it is told, and every way in which
it can end.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from shell import ffnbench


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
