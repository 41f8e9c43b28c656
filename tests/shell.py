"""The real command in a process of its own, and what Typer knows of each command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT
from typer.main import get_command

from ffnbench.app.main import app

COMMANDS = get_command(app).commands


def options_of(name: str) -> dict:
    """The parameters of a command that are typed by name, by their own names."""
    return {
        param.name: param
        for param in COMMANDS[name].params
        if param.param_type_name == "option" and not param.hidden
    }


def ffnbench(
    *arguments: str,
    columns: int = 80,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
):
    """Run the real command, its output captured, so that stdout is a pipe."""
    environment = {
        **os.environ,
        "COLUMNS": str(columns),
        "PYTHONPATH": str(ROOT),
        **(env or {}),
    }
    return subprocess.run(
        [sys.executable, "-m", "ffnbench", *arguments],
        capture_output=True, text=True, timeout=300, cwd=cwd or ROOT, env=environment,
    )  # fmt: skip
