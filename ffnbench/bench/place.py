"""An arm on this machine: which program its interpreter is, which folder it starts in, which variables it sees."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ffnbench.arm import Arm
from ffnbench.errors import FfnbenchError


def interpreter_of(arm: Arm) -> str:
    """The absolute path of its interpreter, links kept, for a virtual environment is one; raises FfnbenchError."""
    if not arm.python:
        return sys.executable
    path = os.path.expanduser(arm.python)
    found = shutil.which(path)
    if found is not None:
        return os.path.abspath(found)
    inside = Path(path, "bin", "python")
    if inside.exists():
        hint = f"that is a folder; its interpreter is {inside}"
    else:
        hint = "it is the python of another environment, for example .venv-old/bin/python"
    raise FfnbenchError(f"there is no interpreter {arm.python!r}", hint)


def folder_of(arm: Arm) -> Path | None:
    """The folder that comes first on its module path and is its current one; raises FfnbenchError where it is none."""
    if not arm.source:
        return None
    folder = Path(arm.source).expanduser().absolute()
    if not folder.is_dir():
        raise FfnbenchError(f"there is no folder {arm.source!r}", "@source= is a checkout of your code")
    return folder


def variables_of(arm: Arm) -> dict[str, str]:
    """The environment of its process: this one's, its own variables, and its folder on the module path."""
    environment = {**os.environ, **dict(arm.env)}
    if folder := folder_of(arm):
        first = [folder, folder / "src"] if _is_layout(folder / "src") else [folder]
        paths = [*map(str, first), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment


def _is_layout(folder: Path) -> bool:
    """Whether packages stand in this `src`: it is none itself."""
    return folder.is_dir() and not (folder / "__init__.py").exists()
