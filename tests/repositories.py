"""A module of a user's with two versions, and git as tests call it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

MODULE = """
import time
import torch
from torch import nn

SECONDS = {seconds}

class SwiGLU(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.gate, self.up = (nn.Linear(dim, hidden_dim, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        if x.device.type == "cpu":
            time.sleep(SECONDS)  # as long whatever else runs
        return self.down(torch.nn.functional.{act}(self.gate(x)) * self.up(x))
"""
TARGET = "mypkg.mlp:SwiGLU"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, env=clean
    )  # fmt: skip
    return done.stdout.strip()


def two_sides(folder: Path) -> None:
    """A repository with the package and the revisions that the documents speak of."""
    (folder / "mypkg").mkdir()
    (folder / "mypkg" / "mlp.py").touch()
    for arguments in ("init -q", "add .", "-c user.name=n -c user.email=e@x commit -qm one", "tag v1.0",
                      "update-ref refs/remotes/origin/main HEAD"):  # fmt: skip
        subprocess.run(["git", *arguments.split()], cwd=folder, check=True)
