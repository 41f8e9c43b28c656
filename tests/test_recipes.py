"""What the documents tell a stranger to type works in a repository of their own, with a
module of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_machine import FakeLaunch, ProberHere
from gate_world import edited, machine, measured, saved
from paths import ROOT
from repositories import git

from ffnbench.app.main import run_command_line

CI, PAGE = (
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("ci.md", "kernel-writer.md")
)


def block_below(heading: str) -> dict:
    """The first block of YAML below a heading of docs/ci.md."""
    below = CI.partition(f"\n### {heading}\n")[2]
    return yaml.safe_load(re.search(r"```yaml\n(.*?)```", below, re.DOTALL)[1])


HOOK = block_below("A pre-commit hook")
(OUR_HOOK,) = yaml.safe_load(
    (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
)
EXACT = re.findall(
    r"^(?:ffnbench|git) .*",
    CI.partition("### A committed baseline")[2].partition("\n### ")[0],
    re.MULTILINE,
)
TEST_FILE = re.search(r"```py\n(# test_ffn\.py\n.*?)```", CI, re.DOTALL)[1]
MODULE = re.search(r"```py\n(# mlp\.py\n.*?)```", PAGE, re.DOTALL)[1]
OWN = MODULE.replace("Mine", "SwiGLU")
WORK = "        return self.down("


@pytest.fixture
def typed(tmp_path: Path):
    """A line in a shell of its own, in a folder, with ffnbench installed and real
    workers.
    """
    (tmp_path / "bin").mkdir()
    for name, module in (
        ("ffnbench", "ffnbench"),
        ("pytest", "pytest -p no:cacheprovider"),
    ):
        (tmp_path / "bin" / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n'
        )
        (tmp_path / "bin" / name).chmod(0o755)
    who = {
        f"GIT_{role}_{what}": "n@x"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, "GIT_ALLOW_PROTOCOL": "file", **who, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
                   "PYTHONDONTWRITEBYTECODE": "1", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}  # fmt: skip

    def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )  # fmt: skip

    return typed


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository of somebody's with `mypkg.mlp:SwiGLU`, and a remote branch that is
    as old as the working tree.
    """
    folder = tmp_path / "own"
    (folder / "mypkg").mkdir(parents=True)
    (folder / "mypkg" / "__init__.py").touch()
    (folder / "mypkg" / "mlp.py").write_text(OWN)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    return folder


def works_twice(folder: Path) -> None:
    """The same output for twice the work."""
    path = folder / "mypkg" / "mlp.py"
    path.write_text(
        OWN.replace(
            WORK,
            WORK.replace("return ", "") + "F.silu(self.gate(x)) * self.up(x))\n" + WORK,
        )
    )


def test_a_committed_baseline_and_the_hook_pass_what_is_unchanged_and_fail_real_extra_work(
    own: Path, typed
) -> None:
    for line in EXACT:
        done = typed(line, own)
        assert done.returncode == 0, done.stderr
    (hook,) = HOOK["repos"][0]["hooks"]
    assert hook["entry"] == EXACT[-1]
    ours = " ".join((OUR_HOOK["entry"], *OUR_HOOK["args"]))
    assert hook["entry"].startswith(f"{ours} --trust ")
    *_, for_gitlab = block_below("GitLab")["ffn"]["script"]
    assert typed(for_gitlab, own).returncode == 0
    assert "<testsuite" in (own / "junit.xml").read_text()
    works_twice(own)
    done = typed(hook["entry"], own)
    assert done.returncode == 1, done.stderr
    assert re.search(r"flops_forward +REGRESSED", done.stdout)


def test_a_repository_adds_ffnbench_and_takes_its_workflow(
    own: Path, typed, tmp_path: Path
) -> None:
    """With a copy of this repository that has the workflow alone, beside their own."""
    workflow = Path(".github/workflows/ffn-ab.yml")
    origin = tmp_path / "origin"
    (origin / workflow).parent.mkdir(parents=True)
    (origin / workflow).write_bytes((ROOT / workflow).read_bytes())
    git(origin, "init", "-q")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    git(tmp_path, "clone", "-q", str(origin), "ffnbench")
    (own / workflow).parent.mkdir(parents=True)
    for line in re.findall(r"^(?:git submodule|cp) .*", CI, re.MULTILINE):
        done = typed(line, own)
        assert done.returncode == 0, done.stderr
    assert (own / workflow).read_bytes() == (ROOT / workflow).read_bytes()


def test_pytest_shows_every_row_of_a_check_that_fails(tmp_path: Path, typed) -> None:
    """It cuts the repr of an object at 240 characters, and a table is longer."""
    names = ("relu", "gelu", "silu", "swiglu", "geglu", "reglu", "bilinear")
    assert (
        typed(
            f"ffnbench cost {','.join(names)} --d-model 64 -o ffn.json", tmp_path
        ).returncode
        == 0
    )
    saved = json.loads((tmp_path / "ffn.json").read_text())
    for one in saved["costs"]:
        one["cost"]["params"] += 1
    (tmp_path / "ffn.json").write_text(json.dumps(saved))
    (tmp_path / "test_ffn.py").write_text(TEST_FILE)
    done = typed("pytest -k costs", tmp_path)
    assert done.returncode == 1
    for name in names:
        assert re.search(rf"{name} +params +REGRESSED", done.stdout), name


BISECT = re.findall(r"^git bisect .*", CI, re.MULTILINE)


def test_git_bisect_finds_the_commit_that_made_a_module_slower(
    own: Path, typed, tmp_path: Path
) -> None:
    """Eight commits after v1.0, of which the fifth adds 15 % to the time. The times are
    made up, so that no load of this machine counts.
    """
    on_fakes = ROOT / "tests" / "ffnbench_on_fakes.py"
    (tmp_path / "bin" / "ffnbench").write_text(
        f'#!/bin/sh\nexec {sys.executable} {on_fakes} "$@"\n'
    )
    git(own, "tag", "v1.0")
    for number in range(1, 9):
        seconds = 0.004 if number < 5 else 0.0046
        text = f"{OWN}\nSECONDS = {seconds}\n# commit {number}\n"
        (own / "mypkg" / "mlp.py").write_text(text)
        git(own, "commit", "-qam", f"change {number}")
    start, run, reset = BISECT
    assert typed(start, own).returncode == 0
    done = typed(run, own)
    assert done.returncode == 0, done.stderr
    slow = git(own, "rev-parse", ":/change 5")
    assert f"{slow} is the first bad commit" in done.stdout
    assert typed(reset, own).returncode == 0


def test_the_line_for_git_bisect_skips_what_is_neither_good_nor_slow(
    typed, tmp_path: Path
) -> None:
    line = BISECT[1].removeprefix("git bisect run ")
    codes = {}
    for code in (0, 1, 2, 3, 4, 130):
        (tmp_path / "bin" / "ffnbench").write_text(f"#!/bin/sh\nexit {code}\n")
        codes[code] = typed(line, tmp_path).returncode
    # git stops at a code above 127, as of an interruption
    assert codes == {0: 0, 1: 1, 2: 125, 3: 125, 4: 125, 130: 130}


STEPS = [
    line
    for body in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in body.splitlines()
]


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_command_for_kernel_writers_does_what_it_says(
    real, tmp_path, typed, monkeypatch, capsys, on_machine
) -> None:
    """In the order of the page; with workers that are faked, or real."""
    on_machine(FakeLaunch(), ProberHere)
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("mlp.py").write_text(MODULE)
    for line in STEPS:
        command, code = re.fullmatch(r"(.*?)(?:  # exit code (\d).*)?", line).groups()
        # a changed module needs a process
        if command.startswith("ffnbench ") and not (real or code):
            exit_code = run_command_line(shlex.split(command)[1:])
            printed = "".join(capsys.readouterr())
        else:
            done = typed(command, folder)
            exit_code, printed = done.returncode, done.stdout + done.stderr
        assert exit_code == int(code or 0), (line, printed)


def test_pandas_follows_saved_runs_over_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve runs, of which swiglu is slower by 5 % from the eighth on."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    section = page.partition("## Runs over time")[2]
    snippet = re.search(r"```py\n(.*?)```", section, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for day in range(1, 13):
        launch = machine({"gelu": 1.02, "swiglu": 1.05 if day > 7 else 1.0}, seed=day)
        run = saved(Path(f"runs/{day}.json"), measured(launch, workers=5, rounds=4))
        created = f"2026-03-{day:02}T06:00:00+00:00"
        edited(run, lambda data, created=created: data.update(created=created))
    found: dict[str, Any] = {}
    exec(compile(snippet, "docs/python.md", "exec"), found)
    ratios = found["ratios"]
    assert list(ratios.index.day) == list(range(1, 13))
    assert list(ratios["gelu"]) == pytest.approx([1.02] * 12, abs=0.01)
    assert list(ratios["swiglu"]) == pytest.approx([1.0] * 7 + [1.05] * 5, abs=0.01)
    assert Path("runs.png").read_bytes().startswith(b"\x89PNG")


FORMS = (ROOT / "docs" / "forms.md").read_text(encoding="utf-8")
FUSED = re.search(r"```py\n(# fused\.py\n.*?)```", FORMS, re.DOTALL)[1]
PRINTED = re.search(r"```text\n\$ ffnbench (.*?)\n(.*?)```", FORMS, re.DOTALL)


@pytest.mark.slow
def test_modules_of_others_are_proven_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process
) -> None:
    """With real workers; errors are those of a machine, and all are roundings."""
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    Path("fused.py").write_text(FUSED)
    code, out, err = in_process(*shlex.split(PRINTED[1]))
    assert code == 0, err
    of_machine = re.compile(r"\de-7|CPU x\d+| +$", re.MULTILINE)
    printed, shown = (of_machine.sub("", text) for text in (out, PRINTED[2]))
    assert printed.strip() == shown.strip()
