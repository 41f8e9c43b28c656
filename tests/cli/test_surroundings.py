"""What lies around a command, in its folder and its environment: none of it is obeyed,
deleted or waited for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from shell import ffnbench

RUN = ROOT / "results" / "amd-epyc-2cpu" / "compare.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_picture_needs_no_configuration_of_matplotlibs(folder: Path) -> None:
    """Of the folder, of a variable or of the home. Who opened one of these pipes would
    wait for ever.
    """
    elsewhere, config = folder / "elsewhere", folder / "config"
    for place in (folder, elsewhere, config / "matplotlib"):
        (place / "stylelib").mkdir(parents=True)
        for file in ("matplotlibrc", "stylelib/mine.mplstyle"):
            os.mkfifo(place / file)
    env = {"MATPLOTLIBRC": str(elsewhere), "XDG_CONFIG_HOME": str(config)}
    words = ["report", str(RUN), "-o", "m.png", "-o", "m.svg"]
    done = ffnbench(*words, cwd=folder, env=env | {"MPLBACKEND": "nope"})
    assert (done.returncode, done.stderr) == (0, "wrote m.png, m.svg\n")
    assert (folder / "m.png").read_bytes().startswith(b"\x89PNG")


def test_in_python_matplotlib_stays_the_users(folder: Path) -> None:
    """Its settings are those that the user has, before and after a picture."""
    code = (
        "import matplotlib as m, ffnbench; m.use('pdf'); m.rcParams['lines.linewidth'] = 7\n"
        f"was = dict(m.rcParams); ffnbench.load({str(RUN)!r}).save('m.png')\n"
        "assert dict(m.rcParams) == was and m.get_backend() == 'pdf'"
    )
    python = [sys.executable, "-P", "-c", code]
    done = subprocess.run(python, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
    assert (folder / "m.png").read_bytes().startswith(b"\x89PNG")


# Folders of the user's


def test_a_folder_that_ffnbench_has_not_made_is_not_deleted(
    folder: Path, on_fakes
) -> None:
    (folder / "run.json.jobs").mkdir()
    code, _, err = on_fakes(
        "compare relu --d-model 16 --metrics memory --threads 1 -o run.json"
    )
    assert code == 0, err
    assert (folder / "run.json.jobs").is_dir()


# What is read, and written


PIPES = {
    "a folder of a model": (
        "model/config.json",
        "cost --preset model",
        2,
        "'model/config.json' is a pipe",
    ),
}


@pytest.mark.parametrize(("pipe", "line", "code", "says"), PIPES.values(), ids=PIPES)
def test_no_pipe_that_nobody_named_is_waited_for(
    folder: Path, pipe: str, line: str, code: int, says: str
) -> None:
    (folder / pipe).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / pipe)
    done = ffnbench(*line.split(), cwd=folder)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert (folder / pipe).is_fifo()
