"""The .json of a run while it is measured: a whole result, whatever moment it is killed
at.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from fake_machine import FakeLaunch
from real_process import SWIGLU_SLOWER, process

from ffnbench.api.saved_runs import load_shown
from ffnbench.report import files as run_file
from ffnbench.report.store import read_report

COMPARE = [
    "compare",
    "--variants",
    "relu,swiglu",
    "--d-model",
    "32",
    "--threads",
    "1",
    "--metrics",
    "latency",
]


@pytest.fixture
def call(on_machine, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A command in this process and this folder, workers faked; gives exit code,
    stdout, stderr.
    """
    monkeypatch.chdir(tmp_path)

    def run(
        *arguments: object, launch: FakeLaunch | None = None
    ) -> tuple[int, str, str]:
        on_machine(launch or FakeLaunch())
        return in_process(*arguments)

    return run


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written after every worker."""
    monkeypatch.setattr(run_file, "EVERY_S", 0)
    monkeypatch.setattr(run_file, "TIMES_WRITING", 0)


FEW = ["--workers", 3, "--rounds", 10, "-o", "a.json"]


def test_the_file_is_written_every_five_seconds_at_most(
    call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And seldom where writing takes long: by a clock that each writing turns."""
    now, writings = [0.0], []

    def write(path: Path, content: bytes) -> None:
        writings.append(now[0])
        now[0] += 0.2

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def seconds(label: str, worker: int, number: int) -> float:
        now[0] += 0.05  # 1.1 s a worker
        return 0.01

    monkeypatch.setattr(run_file, "replace_file", write)
    monkeypatch.setattr(run_file, "time", Clock)
    flags = ["--workers", 30, "--rounds", 10, "-o", "a.json"]
    assert call(*COMPARE, *flags, launch=FakeLaunch(seconds))[0] == 0
    between = [later - one for one, later in itertools.pairwise(writings)]
    assert len(between) >= 2
    assert all(10.2 <= each < 11.4 for each in between[:-1])  # the last one is the end


def killed_at(sample: int, *flags: str, folder: Path) -> None:
    process(*COMPARE, *flags, folder=folder, kill_at=sample, seconds=SWIGLU_SLOWER)


def test_a_killed_run_is_shown_by_report_and_ended_by_resume(
    call, tmp_path: Path
) -> None:
    """Whole is what the workers before it measured: 3 of 5."""
    flags = ["-o", "a.json", "--workers", "5", "--rounds", "20"]
    killed_at(150, *flags, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert load_shown("a.json").comparisons
    code, out, err = call("report", "a.json", "-o", "b.json")
    assert (code, "differ" in err) == (0, False)
    assert "interrupted" in " ".join(out.split())
    assert "1.3" in out
    assert len(latencies("b.json")) == 3 * 2 * 20
    assert call(*COMPARE, *flags, "--resume")[0] == 0
    assert not read_report("a.json").interrupted
    assert len(latencies("a.json")) == 5 * 2 * 20


def latencies(path: str) -> list[float]:
    samples = read_report(path).samples
    return [one.value for one in samples if one.metric == "latency"]


def test_a_run_that_is_killed_at_once_leaves_what_was_there(
    call, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text("mine")
    killed_at(10, "-o", "a.json", "--workers", "5", "--rounds", "20", folder=tmp_path)
    assert (tmp_path / "a.json").read_text() == "mine"


def test_a_full_disk_costs_no_run_and_no_file(
    call, at_once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before it was full stays, and the answer is shown."""
    real, written = run_file.replace_file, []

    def twice(path: Path, content: bytes) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(content)
        real(path, content)

    monkeypatch.setattr(run_file, "replace_file", twice)
    code, out, err = call(*COMPARE, *FEW)
    assert (code, "swiglu" in out) == (3, True)
    assert err.count("note: cannot write 'a.json': No space left on device") == 1
    assert "error: cannot write 'a.json': No space left on device" in err
    assert (tmp_path / "a.json").read_bytes() == written[1]
    assert len(latencies("a.json")) == 2 * 2 * 10
