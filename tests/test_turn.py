"""Two runs on one machine: the second one says so, or waits for its turn."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import ROOT, FakeLaunch

from ffnbench import api, cli
from ffnbench.report.files.store import load
from ffnbench.request import CompareRequest
from ffnbench.run.lock import turn

HOLD = """
import sys, tempfile
from ffnbench.run.lock import turn
with turn(False, print):
    print("mine", flush=True)
    sys.stdin.readline()
"""


class Holder:
    """Another process that measures, until it is told to end or is killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "mine\n"

    def end(self) -> None:
        self.process.kill()  # it gives nothing back itself
        self.process.communicate()


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    holder = Holder()
    yield holder
    holder.end()


@pytest.fixture
def compare(on_machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A `compare` with faked workers; gives exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        on_machine(FakeLaunch())
        words = ["compare", "--d-model", "32", "--threads", "1", "--metrics", "latency", "--quick", *arguments]
        monkeypatch.setattr(sys, "argv", ["ffnbench", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, " ".join(out.split()), err

    return run


def test_the_second_of_two_says_so_in_the_log_the_table_and_the_file(holder, compare, tmp_path: Path) -> None:
    code, out, err = compare("-o", tmp_path / "a.json")
    assert code == 0
    assert f"another run of ffnbench (process {holder.process.pid}) measures on this machine now; --wait" in err
    assert f"another run of ffnbench (process {holder.process.pid}) measured on this machine" in out
    assert any("another run of ffnbench" in note.text for note in load(tmp_path / "a.json").warnings)
    holder.end()
    _, out, err = compare("-o", tmp_path / "b.json")
    assert "another run" not in out + err


def test_with_wait_it_begins_when_the_other_has_ended_however_that_was(holder, compare) -> None:
    timer = threading.Timer(1.2, holder.process.kill)
    timer.start()
    code, out, err = compare("--wait")
    timer.join()
    assert code == 0
    assert f"waiting: another run of ffnbench (process {holder.process.pid})" in err
    assert "another run" not in out
    assert holder.process.wait() < 0


def test_nobody_waits_for_a_run_of_its_own_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told: list[str] = []
    for _ in range(2):
        with turn(True, told.append) as beside:
            assert beside == ""
    assert not told
    with turn(True, told.append), turn(False, told.append) as beside:
        assert str(os.getpid()) in beside
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("trouble", ["a folder", "nowhere", "a link"])
def test_where_there_can_be_no_lock_a_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "x" if trouble == "nowhere" else tmp_path))
    place = tmp_path / f"ffnbench-measuring-{os.getuid()}"
    if trouble == "a folder":
        place.mkdir()
    elif trouble == "a link":
        (tmp_path / "planted").write_text("mine")
        place.symlink_to(tmp_path / "planted")
    with turn(True, print) as beside:
        assert beside == ""
    assert trouble != "a link" or (tmp_path / "planted").read_text() == "mine"


def test_python_calls_are_told_in_the_report(holder) -> None:
    request = CompareRequest(variants="relu,swiglu", d_model=32, threads=1, metrics="latency", quick=True)
    report = api.measure(api.prepare(request), launch=FakeLaunch())
    assert "another run of ffnbench" in report.warnings[0].text
