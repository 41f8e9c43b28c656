"""The workflows of docs/ci.md: what they are made of is checked, and their ffnbench lines are run, workers faked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from conftest import FakeLaunch, KnownProber, two_sides

from ffnbench import api
from ffnbench.cli import run
from ffnbench.report.files.store import report_text
from ffnbench.request import CompareRequest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```(yaml|bash)\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.DOTALL)
WORKFLOWS = [yaml.safe_load(body) for kind, body in BLOCKS if kind == "yaml"]
SCRIPTS = [body for kind, body in BLOCKS if kind == "bash"]


def steps_of(workflow: dict) -> list[dict]:
    return [step for job in workflow.get("jobs", {}).values() for step in job["steps"]]


def shell_lines(workflow: dict) -> list[str]:
    """Lines of GitHub's `run`, and of GitLab's `script`."""
    texts = [step["run"] for step in steps_of(workflow) if "run" in step]
    for job in workflow.values():
        texts += job.get("script", []) if isinstance(job, dict) else []
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


LINES = [line for workflow in WORKFLOWS for line in shell_lines(workflow)]
CHECKS = [line for line in LINES if line.startswith("ffnbench check")]
ABS = [line for line in LINES if line.startswith("ffnbench ab")]


def test_there_are_workflows() -> None:
    assert len(WORKFLOWS) >= 2
    assert len(SCRIPTS) >= 1
    assert len(CHECKS) >= 3
    assert len(ABS) >= 1


@pytest.mark.parametrize("workflow", [w for w in WORKFLOWS if "jobs" in w])
def test_a_github_workflow_is_one(workflow: dict) -> None:
    assert workflow["name"]
    assert workflow[True]  # YAML 1.1 reads the key `on` as true
    for job in workflow["jobs"].values():
        assert job["runs-on"]
    for step in steps_of(workflow):
        assert ("run" in step) != ("uses" in step), step
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_names_exists(line: str) -> None:
    for word in shlex.split(line):
        if word.startswith("results/") or word == "constraints.txt":
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("line", CHECKS)
def test_a_check_of_a_workflow_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_machine) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "ci").mkdir(parents=True)
    request = CompareRequest(variants="relu,gelu,swiglu", precision=0.5, metrics="latency", threads=1)
    saved = api.measure(api.prepare(request), launch=FakeLaunch())
    (tmp_path / "results" / "ci" / "baseline.json").write_text(report_text(saved))
    on_machine(FakeLaunch())
    arguments = shlex.split(line)[1:]
    assert run(arguments) == 0
    for flag, value in pairwise(arguments):
        if flag == "-o":
            assert (tmp_path / value).stat().st_size


@pytest.mark.parametrize("line", ABS)
def test_an_ab_of_a_workflow_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_machine) -> None:
    monkeypatch.chdir(tmp_path)
    two_sides(tmp_path)
    on_machine(FakeLaunch(), KnownProber)
    assert run(shlex.split(line.replace("${{ github.base_ref }}", "main"))[1:]) == 0
    assert (tmp_path / "ab.xml").stat().st_size


def test_uploaded_files_are_written() -> None:
    """What a job keeps is what one of its commands writes."""
    for workflow in WORKFLOWS:
        said = " ".join(shell_lines(workflow))
        kept = [p for step in steps_of(workflow) for p in str(step.get("with", {}).get("path", "")).split()]
        for job in workflow.values():
            if isinstance(job, dict) and "artifacts" in job:
                kept += job["artifacts"]["reports"].values()
        assert kept
        assert all(path in said for path in kept), kept


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)])
def test_the_plain_shell_tells_the_exit_codes_apart(script: str, code: int, ends: int, tmp_path: Path) -> None:
    """A stand-in for ffnbench that ends with each code in turn."""
    stand_in = tmp_path / "ffnbench"
    stand_in.write_text(f"#!/bin/sh\nexit {code}\n")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ends
    said = {0: "nothing regressed", 1: "regressed: see report.md"}.get(code, "could not be run")
    assert said in done.stdout
