"""Cases that run elsewhere: whose code comes first, what another interpreter needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ffnbench.plan.plan import THIS_INTERPRETER, Arm
from ffnbench.run.worker import variables_of


def test_an_arms_own_code_comes_before_the_users_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real interpreter, where all three folders have the module; a `src` that is a
    package itself is no folder.
    """
    for folder in ("theirs", "mine/src", "mine"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "which.py").write_text(f"print({folder!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    mine, command = tmp_path / "mine", [sys.executable, "-c", "import which"]
    arm = Arm(source=str(mine), env=(("X", "1"),))
    found = variables_of(arm)
    assert (found["PYTHONPATH"], found["X"]) == (
        f"{mine}:{mine}/src:{tmp_path}/theirs",
        "1",
    )
    said = []
    for gone in (None, mine / "which.py", mine / "src" / "which.py"):
        if gone:
            gone.unlink()
        done = subprocess.run(
            command,
            env=variables_of(arm),
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        said.append(done.stdout.strip())
    assert said == ["mine", "mine/src", "theirs"]
    (mine / "src" / "__init__.py").touch()
    assert variables_of(arm)["PYTHONPATH"] == f"{mine}:{tmp_path}/theirs"
    assert variables_of(THIS_INTERPRETER)["PYTHONPATH"] == f"{tmp_path}/theirs"
