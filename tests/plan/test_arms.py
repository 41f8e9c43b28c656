"""Cases that run elsewhere: whose code comes first, what another interpreter needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import planned

from ffnbench.common import jsonable
from ffnbench.device.environment import about_torch
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import THIS_INTERPRETER, Arm, Plan
from ffnbench.run.worker import BOOT, variables_of


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


def plan_of(variants: str, **options: object) -> Plan:
    return planned(variants=variants, match="none", workers=3, rounds=2, **options)


def test_variables_that_may_be_secrets_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    found = about_torch()
    assert "secret" not in repr(found)
    assert ("OMP_PROC_BIND", "close") in found["variables"]
    assert found["torch"].startswith("2.")


NOT_NEEDED = (
    "typer",
    "click",
    "rich",
    "pandas",
    "matplotlib",
    "scipy",
    "numpy",
    "pygments",
    "yaml",
)


@pytest.mark.slow
def test_a_worker_needs_torch_and_the_standard_library_alone(tmp_path: Path) -> None:
    """All its jobs, where everything else that ffnbench depends on can't be
    imported.
    """
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef act(x): return x.tanh()\nclass M(nn.Linear):\n    def __init__(self, d_model, d_ff): super().__init__(d_model, d_model)\n"
    )
    mine, act = f"{tmp_path}/mine.py:M", f"{tmp_path}/mine.py:act"
    plan = plan_of("relu", d_model=8, seq_len=4)
    ours = plan.with_device("cpu")
    [case] = ours.cases
    spec = ImportedSpec(target=mine, d_model=8, d_ff=8)
    of_case = {"case": case, "seed": 0, "folder": str(tmp_path)}
    asked = [
        ("begin", {"plan": ours}),
        ("open", {"label": "relu", "calls": None}),
        ("sample", {"label": "relu", "calls": 2}),
        ("memory", {"label": "relu"}),
        ("sparsity", {"label": "relu"}),
        ("describe", {"target": act}),
        ("locate", {"target": act}),
        ("count", {"spec": spec, "workload": case.workload}),
        ("save_output", of_case),
        ("compare_output", of_case),
    ]
    lines = [
        json.dumps(
            {"number": number, "job": job, "arguments": jsonable.encode(arguments)}
        )
        for number, (job, arguments) in enumerate(asked)
    ]
    code = (
        f"import sys, runpy; sys.modules.update(dict.fromkeys({NOT_NEEDED!r}));"
        f"runpy.run_path({str(BOOT)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], input="".join(line + "\n" for line in lines),
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    hello, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert "greeting" in hello, done.stderr
    assert not [answer for answer in answers if "failed" in answer], answers
    assert len(answers) == len(asked)
    assert answers[-1]["answer"]["error"] == 0.0
