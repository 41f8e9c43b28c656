"""What a file from elsewhere may run: nothing by itself, in a project its own code alone. Each attack that succeeds
leaves a marker.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import FakeLaunch, ProberHere, ffnbench
from test_ab import git

from ffnbench import api
from ffnbench.errors import FfnbenchError
from ffnbench.gate.checkouts import Repository
from ffnbench.report.files.store import report_text
from ffnbench.request import CompareRequest

MODULE = """
import functools, os, pathlib
from os import system
import helper
from helper import Foreign, made, wrapped
from torch import nn

class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.down(self.up(x).relu())
    class Inner(nn.Linear):
        def __init__(self, d_model):
            super().__init__(d_model, d_model)
    run = os.system

class Callable:
    def __call__(self, command):
        return os.system(command)
    def run(self, command):
        return os.system(command)

class Below(Mlp): pass
def make(d_model, d_ff): return Mlp(d_model, d_ff)
short = lambda d_model, d_ff: Mlp(d_model, d_ff)
alias = os.system
part = functools.partial(os.system)
instance = Callable()
bound = instance.run

@wrapped
def decorated(command): pass

def rebound(command): pass
globals()["rebound"] = os.system

def __getattr__(name):
    if name == "lazy":
        return os.system
    raise AttributeError(name)
"""
HELPER = """
import functools, os
class Foreign:
    def __init__(self, command):
        os.system(command)
made = lambda command: os.system(command)
def wrapped(function):
    @functools.wraps(function)
    def outer(command):
        return os.system(command)
    return outer
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "MARKER"


def leaves(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository whose files are as harmless as they are tracked."""
    folder = tmp_path / "project"
    (folder / "own" / "deep").mkdir(parents=True)
    files = {"mine.py": MODULE, "helper.py": HELPER, "own/mlp.py": MODULE, "own/__init__.py": "",
             "own/deep/__init__.py": "", "own/deep/mlp.py": MODULE}  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    commit(folder)
    monkeypatch.chdir(folder)
    others = str(tmp_path.parent)  # folders of other tests, which may have modules of these names
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(others)])
    monkeypatch.delitem(sys.modules, "own", raising=False)  # of another test's folder
    before = {*sys.modules}
    yield folder
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def baseline(on_machine) -> Callable[..., Path]:
    """A baseline with any target, and its arm, written by hand as far as that is needed; tracked by nobody."""

    def make(target: str, path: str = "base.json", arm: dict | None = None, **arguments: str) -> Path:
        on_machine(FakeLaunch())
        request = CompareRequest(variants="relu,gelu", d_model=16, threads=1, match="none", metrics="latency")
        data = json.loads(report_text(api.measure(api.prepare(request), launch=FakeLaunch())))
        case = data["plan"]["cases"][1]
        if ":" in target:
            case["ffn"] = {"target": target, "d_model": 16, "d_ff": 64, "arguments": [*map(list, arguments.items())]}
        case |= {"arm": {"python": "", "source": "", "env": [], "name": "", **arm}} if arm else {}
        Path(path).write_text(json.dumps(data))
        return Path(path)

    return make


@pytest.fixture
def check(on_machine, in_process) -> Callable[..., tuple[int, str]]:
    """`ffnbench check`, everything that it loads loaded in this process; exit code and stderr."""

    def run(path: Path | str, *flags: str) -> tuple[int, str]:
        on_machine(FakeLaunch(), ProberHere)
        return in_process("check", path, "-q", *flags)[::2]

    return run


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "more")


def script(path: Path, marker: Path, then: str = "cat") -> str:
    """A program that leaves the marker, as git would be told to run it."""
    path.write_text(f"#!/bin/sh\ntouch {marker}\n{then}\n")
    path.chmod(0o755)
    return str(path)


# What may run


@pytest.mark.parametrize("target", ["mine.py:Mlp", "./mine.py:Mlp", "own.deep.mlp:Mlp"])
def test_a_projects_own_code_needs_no_word_once_git_tracks_the_baseline(project, baseline, check, target: str) -> None:
    path = baseline(target)
    code, err = check(path)
    assert (code, err.splitlines()) == (2, [
        f"error: {str(path)!r} runs code that is not in its git repository: {target}",
        f"hint: if you trust it: --trust {target}",
    ])  # fmt: skip
    assert "--trust" not in check(path, "--trust", target)[1]
    git(project, "add", "base.json")
    for flags in ((), ("--exact-only",)):
        assert "--trust" not in check("./base.json", *flags)[1]


def test_what_a_tracked_file_defines_is_run(project, baseline, check) -> None:
    for name in ("Mlp", "Mlp.Inner", "Below", "make", "short"):
        path = baseline(f"mine.py:{name}")
        commit(project)
        assert "--trust" not in check(path)[1], name


REACHED = (
    "os.system", "system", "alias", "part", "instance", "bound", "Mlp.run", "helper.Foreign", "Foreign", "made",
    "decorated", "rebound", "lazy", "Callable.__call__.__globals__", "functools.partial",
)  # fmt: skip
# what a tracked baseline can name, and has to be typed: the target, its arm, what --trust calls it
FOREIGN: list[tuple[str, dict, str]] = [
    *((f"mine.py:{name}", {}, "") for name in REACHED),
    *((target, {}, "") for target in ("own.mlp:os.system", "own.mlp:made", "torch.nn:Linear", "os:system", "hf:llama")),
    ("{outside}/mine.py:Mlp", {}, ""),
    ("../mine.py:Mlp", {}, ""),
    ("gelu", {"python": "/bin/sh"}, "python=/bin/sh"),
    ("gelu", {"source": "own"}, "source=own"),
    ("gelu", {"env": [["LD_PRELOAD", "/tmp/evil.so"]]}, "env=LD_PRELOAD:/tmp/evil.so"),
    ("mine.py:Mlp", {"source": "own"}, "source=own"),
]


def test_everything_else_is_asked_for_by_name(project, baseline, check, marker) -> None:
    (project.parent / "mine.py").write_text(MODULE + leaves(marker))
    for target, arm, word in FOREIGN:
        target = target.format(outside=project.parent)
        path = baseline(target, arm=arm, command=f"touch {marker}")
        commit(project)
        code, err = check(path)
        assert (code, f"hint: if you trust it: --trust {word or target}" in err) == (2, True), (target, err)
        assert not marker.exists(), target
        assert not git(project, "status", "--porcelain")
    for flags in ("--exact-only", "--append", "--update"):
        assert check(path, flags)[0] == 2


def test_an_activation_of_somebody_elses_is_code_too(project, baseline, check, marker) -> None:
    path, target = baseline("mine.py:Mlp"), f"{project.parent}/act.py:f"
    (project.parent / "act.py").write_text(leaves(marker))
    data = json.loads(path.read_text())
    own = {"target": target, "formula": "", "flops": 1, "flops_backward": None}
    data["plan"]["cases"][0]["ffn"] |= {"activation": target, "own": own}
    path.write_text(json.dumps(data))
    commit(project)
    assert f"--trust {target}" in check(path)[1]
    assert not marker.exists()


@pytest.mark.parametrize(
    "target", ["moved.py:Mlp", "own/moved.py:Mlp", "moved:Mlp", "own.moved:Mlp", "own.mlp.deep:Mlp"]
)
def test_what_is_not_there_is_said_not_to_be(project, baseline, check, target: str) -> None:
    """No word of the user's would bring it back. What a module hides that is no package is not there either."""
    path = baseline(target)
    (project / "own/mlp").mkdir()
    (project / "own/mlp/deep.py").write_text(MODULE)
    commit(project)
    code, err = check(path)
    assert (code, "--trust" in err) == (2, False)
    assert f"names {target}, and it is not there" in err


@pytest.mark.parametrize("target", ["__main__:run", ".mlp:Mlp", ":Mlp", "..:Mlp", "sys:exit", "zipimport:zipimporter"])
def test_names_of_no_file_are_refused_in_one_line(project, baseline, check, target: str) -> None:
    path = baseline(target)
    commit(project)
    code, err = check(path)
    assert (code, err.count("\n")) == (2, 2), err


# Files that are not what they seem. Each changes a project whose baseline names `own.deep.mlp:Mlp` and is committed.


def untracked_package(project: Path, evil: str) -> None:
    git(project, "rm", "-q", "--cached", "own/__init__.py")  # a package's own file runs too


def link_out_of_the_tree(project: Path, evil: str) -> None:
    (project / "own/deep/mlp.py").unlink()
    (project / "own/deep/mlp.py").symlink_to(project.parent / "outside.py")
    (project.parent / "outside.py").write_text(evil + MODULE)


def links_with_other_neighbours(project: Path, evil: str) -> None:
    (project / "own").rename(project / "real")
    (project / "own" / "deep").mkdir(parents=True)
    for name in ("__init__.py", "deep/__init__.py", "deep/mlp.py"):
        (project / "own" / name).symlink_to(project / "real" / name)


def package_ahead(project: Path, evil: str) -> None:
    (project / "own/deep/mlp").mkdir()
    (project / "own/deep/mlp/__init__.py").write_text(evil + MODULE)


def extension_ahead(project: Path, evil: str) -> None:
    (project / f"own/deep/mlp{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_text(evil)


def of_another_tree(project: Path, evil: str) -> None:
    git(project, "init", "-q", "own")
    (project / "base.json").rename(project / "own" / "base.json")
    (project / "base.json").symlink_to("own/base.json")
    git(project / "own", "add", "base.json")


DISGUISES = [untracked_package, link_out_of_the_tree, links_with_other_neighbours, package_ahead, extension_ahead,
             of_another_tree]  # fmt: skip


@pytest.mark.parametrize("disguise", DISGUISES, ids=lambda one: one.__name__)
def test_what_only_seems_to_be_tracked_is_not_run(project, baseline, check, marker, disguise: Callable) -> None:
    path = baseline("own.deep.mlp:Mlp")
    commit(project)
    assert "--trust" not in check(path)[1]
    disguise(project, leaves(marker))
    assert "--trust own.deep.mlp:Mlp" in check(path)[1]
    assert not marker.exists()


def test_a_name_that_is_another_modules_in_the_process_that_loads_it(project, baseline, check, marker) -> None:
    """git tracks ./codecs.py; what a process has under that name is the standard library's."""
    (project / "codecs.py").write_text("def open(filename, mode): pass\n")
    path = baseline("codecs:open", filename=str(marker), mode="w")
    commit(project)
    assert check(path)[0] == 2
    assert not marker.exists()


def test_a_repository_that_claims_the_files_of_others(tmp_path, project, baseline, check, marker) -> None:
    """Its configuration puts its working tree elsewhere, so that its index holds what it likes."""
    (tmp_path / "tool.py").write_text(f"def run(d_model, d_ff): {leaves(marker)}")
    path = baseline(f"{tmp_path}/tool.py:run", path=f"{project}/base.json")
    git(tmp_path, "--git-dir", str(project / ".git"), "--work-tree", str(tmp_path), "add", "tool.py", str(path))
    git(project, "config", "core.worktree", str(tmp_path))
    assert check(path)[0] == 2
    assert not marker.exists()


def test_a_saved_run_and_a_report_run_nothing_that_they_name(project, baseline, on_machine, in_process) -> None:
    path = baseline("mine.py:Mlp")

    def never(*_: object) -> None:
        raise AssertionError("a worker was asked for")

    on_machine(never, never)
    assert in_process("check", path, path)[0] in (0, 2)
    assert in_process("report", path)[0] == 0


# git, and what a folder tells it to run


def test_looking_for_a_file_runs_no_code_and_asks_no_program_of_the_folders(project, baseline, marker) -> None:
    """With the real command: neither the packages above a module, nor what the folder's git is configured to run."""
    path = baseline("own.deep.mlp:Mlp")
    (project / "own" / "deep" / "__init__.py").write_text(leaves(marker))
    git(project, "config", "core.fsmonitor", script(project / "monitor", marker))
    done = ffnbench("check", str(path), cwd=project, env={"HOME": os.devnull})
    assert (done.returncode, "not in its git repository" in done.stderr) == (2, True)
    assert not marker.exists()


def everything_that_asks_git(project: Path, on_machine, in_process) -> None:
    """`check` of what it refuses and `env`, the latter with changes of every kind to look at."""
    on_machine(FakeLaunch(), ProberHere)
    os.utime(project / "mine.py", (1, 1))
    assert in_process("check", "base.json", "-q")[0] == 2
    assert in_process("env")[0] == 0
    Repository(project)


SETTINGS = ("core.fsmonitor", "core.hooksPath", "filter.x.clean", "filter.x.process", "filter.a=b.clean")


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_program_of_a_folders_configuration_runs(
    project, baseline, on_machine, in_process, marker, tmp_path, setting: str
) -> None:
    baseline("/tmp/no.py:M")
    driver = "a=b" if "a=b" in setting else "x"
    if "=" in driver:  # a name that no attribute can have stands for any by its section
        config = project / ".git" / "config"
        config.write_text(config.read_text() + f'[filter "{driver}"]\n\tclean = "touch {marker}; cat"\n')
    (project / ".gitattributes").write_text(f"*.py filter={driver}\n")
    commit_without = ("-c", "filter.x.clean=", "-c", "filter.x.process=")
    git(project, *commit_without, "add", ".")
    git(project, *commit_without, "commit", "-qm", "more")
    marker.unlink(missing_ok=True)
    if setting == "core.hooksPath":
        (hooks := tmp_path / "hooks").mkdir()
        for hook in ("post-index-change", "post-checkout", "pre-commit", "reference-transaction"):
            script(hooks / hook, marker)
        git(project, "config", setting, str(hooks))
    elif "=" not in driver:
        git(project, "config", setting, script(tmp_path / "program", marker, then="exit 1"))
    everything_that_asks_git(project, on_machine, in_process)
    assert not marker.exists()
    os.utime(project / "mine.py", (2, 2))
    subprocess.run(["git", "status"], cwd=project, capture_output=True)
    assert marker.exists()  # git itself runs it


def test_nothing_is_fetched_from_a_clone_that_is_partial(
    project, tmp_path, baseline, on_machine, in_process, marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline("/tmp/no.py:M")
    git(project, "config", "uploadpack.allowFilter", "true")
    (project / "mine.py").write_text("once")
    commit(project)
    first = git(project, "rev-parse", "HEAD")
    (project / "mine.py").write_text("changed")
    commit(project)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{project}", str(clone))
    (clone / "mine.py").write_text("changed again")
    git(clone, "config", "remote.origin.uploadpack", script(tmp_path / "program", marker, then='git-upload-pack "$@"'))
    monkeypatch.chdir(clone)
    with Repository(clone) as found, pytest.raises(FfnbenchError, match="can't be checked out") as caught:
        found.checkout(first)
    assert "lacks files" in caught.value.hint
    for pack in (clone / ".git" / "objects" / "pack").iterdir():
        pack.unlink()  # nothing is there at all: whatever asks for an object would fetch it
    everything_that_asks_git(clone, on_machine, in_process)
    assert not marker.exists()
    subprocess.run(["git", "status"], cwd=clone, capture_output=True)
    assert marker.exists()


def test_a_checkout_of_ab_runs_no_hook(project, tmp_path, marker) -> None:
    script(project / ".git" / "hooks" / "post-checkout", marker)
    script(project / ".git" / "hooks" / "post-index-change", marker)
    with Repository(project) as found:
        assert (found.checkout(found.commit("HEAD")) / "mine.py").is_file()
    assert not marker.exists()
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    assert marker.exists()
