"""The command of the README and its answer as a picture: `python docs/recording.py`.

Writes docs/compare.svg, by rich's own export, from a saved run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
RUN = DOCS.parent / "results" / "amd-epyc-2cpu" / "compare.json"
COMMAND = "ffnbench compare --d-model 768 --variants relu,gelu,swiglu"
COLUMNS = 80


def answer() -> str:
    """What `ffnbench report` prints of the run on a terminal, colours included."""
    environment = os.environ | {
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
    }
    environment.pop("NO_COLOR", None)
    report = [sys.executable, "-m", "ffnbench", "report", str(RUN)]
    done = subprocess.run(
        report, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


def picture() -> str:
    """The command and its answer as an SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, color_system="256")
        console.print(Text(f"$ {COMMAND}\n", style="bold"))
        console.print(Text.from_ansi(answer()))
        return console.export_svg(title="", unique_id="ffnbench") + "\n"


if __name__ == "__main__":
    (DOCS / "compare.svg").write_text(picture(), encoding="utf-8")
