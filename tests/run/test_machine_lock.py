"""Two runs on one machine: the second one waits for its turn, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from ffnbench.run import world
from ffnbench.run.world import machine_lock

HOLD = """
import sys
from ffnbench.run.world import machine_lock
with machine_lock(print):
    print("mine", flush=True)
    sys.stdin.readline()
"""
COMPARE = "compare --d-model 32 --threads 1 --metrics latency --quick"


def lock_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder is in this one; gives where a lock is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    (folder / "ffnbench").mkdir(mode=0o700)
    return folder / "ffnbench" / f"measuring-{os.uname().nodename}"


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process that measures, until it is killed: it gives nothing back
    itself.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_the_second_of_two_begins_when_the_first_has_ended_however_that_was(
    holder, on_fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is killed when this one has begun to wait for it."""
    monkeypatch.setattr(world.time, "sleep", lambda seconds: holder.kill())
    code, out, err = on_fakes(COMPARE)
    assert code == 0
    assert f"waiting: another run of ffnbench (process {holder.pid})" in err
    assert "another run" not in out
    assert holder.wait() < 0


@pytest.mark.parametrize(
    "trouble", ["a folder", "a file above", "no home", "a link", "others write"]
)
def test_where_there_can_be_no_lock_a_run_is_made(
    tmp_path: Path, monkeypatch, trouble: str
) -> None:
    place = lock_in(tmp_path, monkeypatch)
    if trouble == "a folder":
        place.mkdir()
    elif trouble == "a file above":
        place.parent.rmdir()
        place.parent.touch()
    elif trouble == "no home":
        (tmp_path / "home").touch()
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    elif trouble == "a link":
        (tmp_path / "planted").write_text("mine")
        place.symlink_to(tmp_path / "planted")
    elif trouble == "others write":
        place.parent.chmod(0o777)
    with machine_lock(pytest.fail):
        pass
    assert trouble != "a link" or (tmp_path / "planted").read_text() == "mine"


@pytest.mark.parametrize("relative", ["", "state", "./state", "~/state"])
def test_a_path_that_is_not_absolute_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    """As the XDG Base Directory Specification 0.8 says of its variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", relative)
    with machine_lock(pytest.fail):
        pass
    assert os.listdir(tmp_path) == ["home"]
