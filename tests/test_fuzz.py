"""tests/fuzz.py breaks no promise: a short run, always of the same seed, and a long one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize(("seconds", "fewest"), [(8, 8), pytest.param(400, 900, marks=pytest.mark.slow)])
def test_no_input_breaks_a_promise(seconds: int, fewest: int) -> None:
    """As many inputs as there is time for, so that what fails once fails again."""
    done = subprocess.run(
        [sys.executable, "tests/fuzz.py", "--n", "2000", "--seed", "20260301", "--seconds", str(seconds)],
        cwd=ROOT, capture_output=True, text=True, check=False, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"^(\d+) inputs in", done.stdout, re.M)
    assert told
    assert int(told[1]) >= fewest
