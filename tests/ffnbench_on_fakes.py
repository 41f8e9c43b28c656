"""`ffnbench` in a process of its own, on a machine that is made up: it stands in for
the real one where a shell calls it. Head takes as long as the file in the current
folder says; base takes 4 ms.

With FAKE_PROBER=real, processes look at the code, and only times are made up.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fake_machine import KnownProber
from gate_world import machine

from ffnbench.app import main as cli
from ffnbench.run import world
from ffnbench.run.prober import Prober


def main() -> None:
    """Run the command."""
    text = Path("mypkg/mlp.py").read_text(encoding="utf-8")
    (seconds,) = re.findall(r"^SECONDS = ([\d.]+)$", text, re.MULTILINE) or ["0.004"]
    launch = machine({"SwiGLU": float(seconds) / 0.004})
    prober = Prober if os.environ.get("FAKE_PROBER") == "real" else KnownProber
    ticks = itertools.count(step=0.005)
    made_up = world.World(launch=launch, prober=prober, now=lambda: next(ticks))
    world.this_machine = lambda: made_up
    cli.main()


if __name__ == "__main__":
    main()
