"""A short run of tests/fuzz.py: seeded, and no promise broken. Longer ones are for whoever changes what is typed."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT

SEED, SECONDS, FEWEST = "20260301", 6, 15


def test_a_short_run_breaks_no_promise() -> None:
    """As many inputs as there is time for; all of the same seed, so that what fails once fails again."""
    done = subprocess.run(
        [sys.executable, "tests/fuzz.py", "--n", "2000", "--seed", SEED, "--seconds", str(SECONDS)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"^(\d+) inputs in", done.stdout, re.M)
    assert told
    assert int(told[1]) >= FEWEST
