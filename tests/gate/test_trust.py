"""What a file from elsewhere may run: what is typed after --trust, and nothing else.
Code that runs leaves a marker.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, ProberHere, measure, prepare
from repositories import git

from ffnbench.common.errors import FfnbenchError
from ffnbench.gate.sides import checkout
from ffnbench.report.store import report_text

MODULE = """
from torch import nn

class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.down(self.up(x).relu())

class Other(Mlp): pass
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "MARKER"


def leaves(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()\n"


@pytest.fixture
def project(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose git tracks all files, which is no reason to run them."""
    folder = tmp_path / "project"
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "__init__.py").write_text(leaves(marker))
    for name in ("mine.py", "act.py", "own/mlp.py"):
        (folder / name).write_text(leaves(marker) + MODULE)
    (folder / "link.py").symlink_to("mine.py")
    git(folder, "init", "-q")
    commit(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def baseline(project, on_machine) -> Callable[..., Path]:
    """A baseline with any targets, each in an arm, written by hand as far as that is
    needed, and tracked by git.
    """

    def make(*targets: str, arm: dict | None = None) -> Path:
        on_machine(FakeLaunch())
        variants = ",".join(f"{name}=relu" for name in "abc"[: len(targets) + 1])
        request = dict(
            variants=variants, d_model=16, threads=1, match="none", metrics="latency"
        )
        data = json.loads(report_text(measure(prepare(**request), launch=FakeLaunch())))
        for case, target in zip(data["plan"]["cases"][1:], targets, strict=True):
            if ":" in target:
                case["ffn"] = {
                    "target": target,
                    "d_model": 16,
                    "d_ff": 64,
                    "arguments": [],
                }
            if arm:
                case["arm"] = {"python": "", "source": "", "env": [], "name": "", **arm}
        Path("base.json").write_text(json.dumps(data))
        commit(project)
        return Path("base.json")

    return make


@pytest.fixture
def check(on_machine, in_process) -> Callable[..., tuple[int, str]]:
    """`ffnbench check` by a machine that nobody may ask for a worker; exit code and
    stderr.
    """

    def never(*_: object) -> None:
        raise AssertionError("a worker was asked for")

    def run(*words: Path | str) -> tuple[int, str]:
        on_machine(never, never)
        return in_process("check", *words, "-q")[::2]

    return run


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--allow-empty", "-qm", "more")


def script(path: Path, marker: Path, then: str = "cat") -> str:
    """A program that leaves the marker, as git would be told to run it."""
    path.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(marker))}\n{then}\n")
    path.chmod(0o755)
    return shlex.quote(str(path))


# What may run


def test_code_of_a_baseline_runs_only_where_it_is_named(
    baseline, check, on_machine, in_process, marker
) -> None:
    baseline("mine.py:Mlp")
    for flags in ((), ("--exact-only",), ("--update",)):
        code, err = check("base.json", *flags)
        assert (code, err.splitlines()) == (2, [
            "error: 'base.json' names code that would run: mine.py:Mlp",
            "hint: if you trust it, add --trust mine.py:Mlp",
        ]), flags  # fmt: skip
        assert not marker.exists()
    on_machine(FakeLaunch(), ProberHere)
    words = ["check", "base.json", "--exact-only", "--trust", "mine.py:Mlp"]
    code, out, err = in_process(*words)
    assert code == 1, err  # it has biases, and the row was one of relu
    assert marker.exists()
    assert " ".join(out.split()).endswith(
        ": ffnbench check base.json --update --trust mine.py:Mlp"
    )


@pytest.mark.parametrize(
    "target",
    ["./mine.py:Mlp", "link.py:Mlp", "{here}/mine.py:Mlp", "mine:Mlp", "mine.py:Other"],
)
def test_a_name_is_trusted_letter_by_letter(
    project, baseline, check, marker, target: str
) -> None:
    """Neither by the file that it leads to, nor by the file or the name alone."""
    target = target.format(here=project)
    path = baseline(target)
    for typed in ("mine.py:Mlp", "mine.py", "Mlp", "*", target.upper(), f" {target}"):
        code, err = check(path, "--trust", typed)
        assert (code, f"--trust {shlex.quote(target)}" in err) == (2, True), err
    assert not marker.exists()


ARMS: list[tuple[dict, str]] = [
    ({"python": "/bin/sh"}, "python=/bin/sh"),
    ({"source": "own"}, "source=own"),
    ({"env": [["LD_PRELOAD", "/tmp/evil.so"]]}, "env=LD_PRELOAD:/tmp/evil.so"),
]


@pytest.mark.parametrize(("arm", "word"), ARMS)
def test_where_a_row_runs_is_code_too(baseline, check, arm: dict, word: str) -> None:
    code, err = check(baseline("mine.py:Mlp", arm=arm), "--trust", "mine.py:Mlp")
    assert (code, err.splitlines()[-1]) == (
        2,
        f"hint: if you trust it, add --trust {word}",
    )


def test_an_activation_of_somebody_elses_is_code_too(baseline, check, marker) -> None:
    path = baseline("relu")
    data = json.loads(path.read_text())
    own = {"target": "act.py:f", "formula": "", "flops": 1, "flops_backward": None}
    data["plan"]["cases"][0]["ffn"] |= {"activation": "act.py:f", "own": own}
    path.write_text(json.dumps(data))
    assert "--trust act.py:f" in check(path)[1]
    assert not marker.exists()


def test_a_saved_run_and_a_report_run_nothing_that_they_name(
    baseline, check, in_process
) -> None:
    path = baseline("mine.py:Mlp")
    assert check(path, path)[0] in (0, 2)
    assert in_process("report", path)[0] == 0


# git, and what a folder tells it to run


def everything_that_asks_git(project: Path, on_machine, in_process) -> None:
    """`env`, with changes of every kind to look at, and what `ab` looks for."""
    on_machine(FakeLaunch(), ProberHere)
    os.utime(project / "mine.py", (1, 1))
    assert in_process("env")[0] == 0
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.raises(FfnbenchError, match="no revision is called"),
    ):
        checkout(project, "nowhere", Path(folder, "place"))


SETTINGS = ("core.fsmonitor", "core.hooksPath", "filter.x.clean", "filter.a=b.clean")


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_program_of_a_folders_configuration_runs(
    project, on_machine, in_process, marker, tmp_path, setting: str
) -> None:
    driver = "a=b" if "a=b" in setting else "x"
    if "=" in driver:  # a name that no attribute can have stands for any by its section
        config = project / ".git" / "config"
        config.write_text(
            config.read_text()
            + f'[filter "{driver}"]\n\tclean = "touch {shlex.quote(str(marker))}; cat"\n'
        )
    (project / ".gitattributes").write_text(f"*.py filter={driver}\n")
    commit_without = ("-c", "filter.x.clean=")
    git(project, *commit_without, "add", ".")
    git(project, *commit_without, "commit", "-qm", "more")
    marker.unlink(missing_ok=True)
    if setting == "core.hooksPath":
        (hooks := tmp_path / "hooks").mkdir()
        for hook in (
            "post-index-change",
            "post-checkout",
            "pre-commit",
            "reference-transaction",
        ):
            script(hooks / hook, marker)
        git(project, "config", setting, str(hooks))
    elif "=" not in driver:
        git(
            project,
            "config",
            setting,
            script(tmp_path / "program", marker, then="exit 1"),
        )
    everything_that_asks_git(project, on_machine, in_process)
    assert not marker.exists()
    os.utime(project / "mine.py", (2, 2))
    subprocess.run(["git", "status"], cwd=project, capture_output=True)
    assert marker.exists()  # git itself runs it


def test_a_checkout_of_ab_runs_no_hook(project, tmp_path, marker) -> None:
    script(project / ".git" / "hooks" / "post-checkout", marker)
    script(project / ".git" / "hooks" / "post-index-change", marker)
    place, _ = checkout(project, "HEAD", tmp_path / "place")
    assert (place / "mine.py").is_file()
    assert not marker.exists()
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    assert marker.exists()
