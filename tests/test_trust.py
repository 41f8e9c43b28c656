"""What a file from elsewhere may run: nothing by itself, and in a project its own code alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import FakeLaunch, KnownProber, ProberHere, ffnbench

from ffnbench import api, cli
from ffnbench.gate import named_files
from ffnbench.report.files.store import report_text
from ffnbench.request import CompareRequest

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("it-ran").touch()
from torch import nn
class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.down(self.up(x).relu())
"""


class AnyProber(KnownProber):
    """As if every module had been looked at."""

    def origin(self, target: str) -> Path:
        return Path("nowhere")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments], cwd=folder, check=True, capture_output=True
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a module by path and one in a package, both of which tell when they run."""
    folder = tmp_path / "project"
    (folder / "own" / "deep").mkdir(parents=True)
    for name in ("kern.py", "own/__init__.py", "own/deep/__init__.py", "own/deep/mlp.py"):
        (folder / name).write_text(EVIL)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def baseline(project: Path, on_machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A baseline of a variant, as somebody hands it over: not tracked, and named by nobody here."""

    def make(variant: str) -> Path:
        monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "of somebody else"))
        on_machine(FakeLaunch(), AnyProber)
        request = CompareRequest(variants=f"relu,it={variant}", d_model=16, threads=1, match="none", precision=0.5,
                                 metrics="latency")  # fmt: skip
        path = project / "base.json"
        path.write_text(report_text(api.measure(api.prepare(request), launch=FakeLaunch())))
        monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "state"))
        return path

    return make


@pytest.fixture
def check(on_machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`ffnbench check` in this process; gives exit code and stderr."""

    def run(*arguments: object, quiet: bool = True) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ffnbench", "check", *(["-q"] if quiet else []), *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code or 0, capsys.readouterr().err

    return run


TARGETS = ["kern.py:Mlp", "./kern.py:Mlp", "own.deep.mlp:Mlp"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_projects_own_code_needs_no_word(project: Path, baseline, check, target: str) -> None:
    path = baseline(target)
    code, err = check(path)
    assert (code, err.splitlines()) == (2, [
        f"error: {str(path)!r} names code that git does not track beside it: {target}",
        f"hint: if it may run here: --trust {target}",
    ])  # fmt: skip
    git(project, "add", "base.json")
    assert check(path)[0] == 0
    assert check("./base.json", "--exact-only")[0] == 0


def test_what_is_not_tracked_is_asked_for_file_by_file(project: Path, baseline, check) -> None:
    path = baseline("own.deep.mlp:Mlp")
    git(project, "add", "base.json")
    assert check(path)[0] == 0
    git(project, "rm", "-q", "--cached", "own/__init__.py")  # a package's own file runs too
    assert check(path)[0] == 2
    assert check(path, "--exact-only")[0] == 2
    git(project, "add", "own/__init__.py")
    (project / "own" / "deep" / "mlp.py").rename(project / "elsewhere.py")
    (project / "own" / "deep" / "mlp.py").symlink_to(project.parent / "outside.py")
    (project.parent / "outside.py").write_text(EVIL)
    assert check(path)[0] == 2  # git tracks the name, and it leads out of the tree


@pytest.mark.parametrize("target", ["kern.py:Mlp", "own.deep.mlp:Mlp"])
def test_a_baseline_of_another_tree_vouches_for_nothing_here(
    project: Path, tmp_path: Path, baseline, check, target: str
) -> None:
    path, other = baseline(target), tmp_path / "other"
    other.mkdir()
    path = path.rename(other / "base.json")
    git(other, "init", "-q")
    git(other, "add", ".")
    assert check(path)[0] == 2


# what a file can name, and what has to be typed for it
FOREIGN = {
    "torch.nn:Linear": "torch.nn:Linear",
    "os:system": "os:system",
    "hf:llama": "hf:llama",
    "/tmp/kern.py:Mlp": "/tmp/kern.py:Mlp",
    "../kern.py:Mlp": "../kern.py:Mlp",
    "gelu@python=/bin/sh": "python=/bin/sh",
    "gelu@source=own": "source=own",
    "gelu@env=LD_PRELOAD:/tmp/evil.so": "env=LD_PRELOAD:/tmp/evil.so",
    "kern.py:Mlp@source=own": "source=own",
}


@pytest.mark.parametrize("variant", [v for v in FOREIGN if not v.startswith("hf:")])
def test_everything_else_is_asked_for_by_name(project: Path, baseline, check, variant: str) -> None:
    path = baseline(variant)
    git(project, "add", "base.json")
    before = sorted(project.rglob("*"))
    for flags in ((), ("--exact-only",), ("--append",), ("--update",)):
        code, err = check(path, *flags)
        assert code == 2
        assert f"--trust {FOREIGN[variant]}" in err
    assert sorted(project.rglob("*")) == before


def test_a_model_of_transformers_and_an_activation_are_code_too(project: Path, baseline, check) -> None:
    """Such plans need a worker to be made, so the file is edited."""
    data = json.loads(baseline("kern.py:Mlp").read_text())
    git(project, "add", ".")
    spec = data["plan"]["cases"][1]["ffn"]
    spec["target"] = "hf:llama"
    (project / "base.json").write_text(json.dumps(data))
    assert "--trust hf:llama" in check(project / "base.json")[1]
    own = {"target": "/tmp/act.py:f", "formula": "", "flops": 1, "flops_backward": None}
    data["plan"]["cases"][0]["ffn"] |= {"activation": "/tmp/act.py:f", "own": own}
    (project / "base.json").write_text(json.dumps(data))
    code, err = check(project / "base.json")
    assert code == 2
    assert "--trust /tmp/act.py:f --trust hf:llama" in err


def test_a_saved_run_and_a_report_run_nothing_that_they_name(project: Path, baseline, on_machine, check) -> None:
    path = baseline("kern.py:Mlp")

    def never(*_: object) -> None:
        raise AssertionError("a worker was asked for")

    on_machine(never, never)
    assert check(path, path, quiet=False)[0] in (0, 2)
    assert ffnbench("report", str(path), cwd=project).returncode == 0
    assert not list(project.rglob("it-ran"))


def test_looking_for_a_file_runs_no_code_and_asks_no_program_of_the_folders(project: Path, baseline) -> None:
    """With the real command: neither the packages above a module, nor what the folder's git is configured to run."""
    path = baseline("own.deep.mlp:Mlp")
    (project / "own" / "deep" / "__init__.py").write_text(EVIL + "# changed")
    script = project / "monitor"
    script.write_text(f"#!/bin/sh\ntouch {project}/it-ran\n")
    script.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(script))
    done = ffnbench("check", str(path), cwd=project, env={"HOME": os.devnull})
    assert done.returncode == 2
    assert "git does not track" in done.stderr
    assert not list(project.rglob("it-ran"))


def test_what_its_user_has_named_before_is_trusted_by_its_path(
    tmp_path: Path, on_machine, in_process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without git: the file that was named, and of another file nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder := tmp_path)
    for name in ("mod.py", "near.py"):
        (folder / name).write_text(f"import os\n{EVIL}class Other(Mlp): pass\n")
    on_machine(FakeLaunch(), ProberHere)
    assert in_process("cost", "--d-model", 16, "--variants", "relu,mine=mod.py:Mlp", "-o", "base.json")[0] == 0
    assert in_process("check", "base.json", "-q")[0] == 0
    text = (folder / "base.json").read_text()

    def named(target: str) -> Path:
        (folder / "other.json").write_text(text.replace("mod.py:Mlp", target))
        return folder / "other.json"

    assert in_process("check", named("./mod.py:Other"), "-q")[0] == 0
    for target in ("near.py:Mlp", "mod.py:nn.Linear", "mod:Mlp.__init__.__globals__"):
        code, _, err = in_process("check", named(target), "-q")
        assert (code, f"--trust {target}" in err) == (2, True)
    assert in_process("check", named("near.py:Mlp"), "-q", "--trust", "near.py:Mlp")[0] == 0
    assert in_process("check", named("near.py:Mlp"), "-q")[0] == 0  # that was a command line too
    facts = {row["fact"]: row["value"] for row in json.loads(in_process("env", "--format", "json")[1])}
    assert facts["code that was named"].startswith(f"{tmp_path}/state/ffnbench/named (")
    lines = (tmp_path / "state" / "ffnbench" / "named").read_text().splitlines()
    assert f"{tmp_path}/mod.py:Mlp" in lines


@pytest.mark.parametrize("state", ["a file", "read-only", "of others", "a pipe", "a folder", "no text", "too long"])
def test_a_state_file_that_is_not_this_users_alone_names_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    path = tmp_path / "ffnbench" / "named"
    path.parent.mkdir()
    line = f"{tmp_path}/mod.py:M"
    path.write_text(f"{line}\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert named_files.known() == [line]
    if state == "a file":
        monkeypatch.setenv("XDG_STATE_HOME", str(path))
    elif state == "read-only":
        path.unlink()
        monkeypatch.setenv("XDG_STATE_HOME", "/proc/self")
    elif state == "of others":
        path.chmod(0o666)
    elif state == "no text":
        path.write_bytes(b"\0" * (5 << 20))
    elif state == "too long":
        path.write_text(f"{line}\n" * 200_000)
    else:
        path.unlink()
        os.mkfifo(path) if state == "a pipe" else path.mkdir()
    named_files.remember(["/x/y.py:M"])
    assert named_files.known() == []


def test_lines_of_many_writers_are_all_there_and_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: named_files.remember([f"/x/{number}.py:M", "/x/a\nb.py:M"]), range(100)))
    assert sorted(named_files.known()) == sorted(f"/x/{number}.py:M" for number in range(100))
    assert (tmp_path / "ffnbench" / "named").stat().st_mode & 0o777 == 0o600
    named_files.remember(f"/{'x' * 900}/{number}.py:M" for number in range(6000))
    assert named_files.known()[-1].endswith("/5999.py:M")
    assert (tmp_path / "ffnbench" / "named").stat().st_size < 1 << 20
