"""The scripts of examples/ run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT

SMALL = "--steps 20 --seeds 2 --d-model 32 --layers 1 --context 32 --batch 8 --budget 5"


def test_the_script_that_trains_pairs_runs_by_seed_and_draws_them(
    tmp_path: Path,
) -> None:
    script = ROOT / "examples" / "train.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 170
    command = [sys.executable, script, "relu", "again=relu", "swiglu", *SMALL.split()]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    row = r"^(\S+) +([\d.]+)  ([-+][\d.]+) ± ([\d.]+) "
    relu, again, swiglu = re.findall(row, done.stdout, re.MULTILINE)
    # the same weights and the same bytes: the same loss to the last digit
    assert again[1:] == (relu[1], "+0.0000", "0.0000")
    assert swiglu[1] != relu[1]
    evenly = 5.545  # nats per byte of a model that gives 256 bytes equal chances
    assert all(float(loss) < evenly - 1 for _, loss, _, _ in (relu, swiglu))
    assert (tmp_path / "train.png").stat().st_size > 1000
