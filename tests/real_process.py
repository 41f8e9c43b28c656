"""ffnbench as a real process with faked workers, which may be killed at a sample."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from paths import ROOT

STEADY = "0.01"
# a little different at each sample; swiglu is slower
SWIGLU_SLOWER = (
    '0.01 * (1 + 0.001 * (len(asked) % 7)) * (1.3 if label == "swiglu" else 1)'
)


def process(
    *arguments: str, folder: Path, kill_at: int = 0, seconds: str = STEADY
) -> int:
    """Run a command line, killed by signal 9 at that sample; gives how many samples it
    took. `seconds` is the expression of a sample's time. What is measured is written
    after every worker.
    """
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from fake_machine import FakeLaunch
from ffnbench.app import main as cli
from ffnbench.report import files as run_file
from ffnbench.run import world
run_file.EVERY_S = run_file.TIMES_WRITING = 0
asked = []
def seconds(label, worker, number):
    asked.append(label)
    if len(asked) == {kill_at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return {seconds}
world.this_machine = lambda: world.World(launch=FakeLaunch(seconds))
sys.argv = ["ffnbench", *{list(arguments)!r}]
code = cli.run_command_line(sys.argv[1:])
print(len(asked), file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr
    return 0 if kill_at else int(done.stderr.split()[-1])
