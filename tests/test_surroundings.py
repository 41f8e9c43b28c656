"""What lies around a command, in its folder and its environment: none of it is obeyed, deleted or waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, ffnbench

RUN = ROOT / "results" / "amd-epyc-2cpu" / "compare.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A script of the user's that stands elsewhere."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip


# matplotlib's configuration


@pytest.mark.parametrize("kind", ["nonsense", "undecodable", "endless"])
@pytest.mark.parametrize("where", ["folder", "variable", "home"])
def test_a_picture_needs_no_configuration_of_matplotlibs(folder: Path, where: str, kind: str) -> None:
    env = {"XDG_CONFIG_HOME": str(folder / "config")}
    place = {"folder": folder, "variable": folder / "elsewhere", "home": folder / "config" / "matplotlib"}[where]
    place.mkdir(parents=True, exist_ok=True)
    if where == "variable":
        env |= {"MATPLOTLIBRC": str(place), "MPLBACKEND": "nope"}
    (place / "stylelib").mkdir()
    for file in (place / "matplotlibrc", place / "stylelib" / "mine.mplstyle"):
        if kind == "endless":
            os.mkfifo(file)
        else:
            file.write_bytes(b"figure.dpi: \xff\xfe" if kind == "undecodable" else b"figure.dpi: __import__('os')\n")
    done = ffnbench("report", str(RUN), "-o", "m.png", "-o", "m.html", cwd=folder, env=env)
    assert (done.returncode, done.stderr) == (0, "wrote m.png, m.html\n")
    assert (folder / "m.png").read_bytes().startswith(b"\x89PNG")


def test_in_python_matplotlib_stays_the_users(folder: Path) -> None:
    """Loaded already, or by ffnbench: its settings are those that the user has, before and after a picture."""
    (folder / "matplotlibrc").write_bytes(b"figure.dpi: \xff")
    (folder / "mine").mkdir()
    (folder / "mine" / "matplotlibrc").write_text("figure.dpi: 33\n")
    draw = f"import os, ffnbench; ffnbench.load({str(RUN)!r}).plot('m.png')\n"
    told = "import matplotlib as m; print(m.rcParams['figure.dpi'], m.get_backend(), os.environ['MPLBACKEND'])"
    done = python(draw + told, MATPLOTLIBRC=str(folder / "mine"), MPLBACKEND="svg")
    assert (done.stdout, done.stderr) == ("33.0 svg svg\n", "")
    before = "import os; os.chdir('mine'); import matplotlib as m; m.use('pdf'); m.rcParams['lines.linewidth'] = 7.0\n"
    before += "was = dict(m.rcParams); os.chdir('..')\n"
    done = python(before + draw + "print(dict(m.rcParams) == was, m.get_backend(), m.rcParams['lines.linewidth'])")
    assert (done.stdout, done.stderr) == ("True pdf 7.0\n", "")
    assert (folder / "m.png").read_bytes().startswith(b"\x89PNG")


# Folders of the user's


LINES = (
    "compare relu --d-model 16 --metrics memory --threads 1",
    "train relu --d-model 32 --threads 1 --steps 6 --seeds 1 --layers 1 --context 16 --batch 2",
)


@pytest.mark.parametrize("line", LINES)
def test_a_folder_that_ffnbench_has_not_made_is_not_deleted(folder: Path, on_fakes, line: str) -> None:
    mine = folder / "run.json.checkpoints"
    (mine / "deep").mkdir(parents=True)
    (folder / "run.json.jobs").mkdir()
    names = {"notes.txt", "model.pt", "deep/0123456789abcdef.pt"}
    for name in (*names, "0123456789abcdef.pt"):  # the last is of an earlier run
        (mine / name).write_text("mine")
    code, _, err = on_fakes(line, "-o run.json")
    assert code == 0, err
    left = {str(path.relative_to(mine)) for path in mine.rglob("*")}
    assert left == {*names, "deep"}
    assert (folder / "run.json.jobs").is_dir()


# What is read


def test_a_history_waits_for_no_pipe(folder: Path) -> None:
    """Beside two runs of one row on one machine: a pipe, a link to one, a folder, a broken link, a device."""
    runs = folder / "runs"
    runs.mkdir()
    for name in ("compare.json", "compare-again.json"):
        shutil.copy(RUN.with_name(name), runs)
    os.mkfifo(runs / "pipe.json")
    (runs / "link.json").symlink_to("pipe.json")
    (runs / "folder.json").mkdir()
    (runs / "broken.json").symlink_to("nowhere")
    (runs / "zero.json").symlink_to("/dev/zero")
    done = ffnbench("history", "runs", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "left out, as they are no runs: broken.json, folder.json, link.json, pipe.json, zero.json" in done.stderr
