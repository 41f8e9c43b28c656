"""Groups as jobs that really measure: by submitit's local executor, and on a SLURM of
one node that is started for these tests alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from paths import ROOT

from ffnbench.record.result import FailureKind
from ffnbench.report.store import read_report

pytest.importorskip("submitit")


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.2)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """The command in a process of its own; no other run on this machine is waited
    for.
    """

    def start(*words: str) -> subprocess.Popen[str]:
        here = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.Popen(
            [sys.executable, "-m", "ffnbench", *words], cwd=tmp_path, env={**os.environ, **here}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    return start


def sweep(lengths: str) -> list[str]:
    """A command of a group for each length; none of its answers depends on time."""
    words = f"compare relu swiglu --d-model 32 --seq-len {lengths} --threads 1"
    return f"{words} --metrics memory --workers 3 --rounds 2 -q".split()


def exact(path: Path) -> dict[tuple[str, str], set[float]]:
    """What was measured of each row."""
    report = read_report(path)
    assert not report.failures
    values: dict[tuple[str, str], set[float]] = {}
    for sample in report.samples:
        values.setdefault((sample.case, sample.metric), set()).add(sample.value)
    assert len(values) == len(report.plan.cases) * len({name for _, name in values})
    return values


def ends(process: subprocess.Popen[str], code: int) -> str:
    _, err = process.communicate()
    assert process.returncode == code, err
    return err


def begun(folder: Path, number: int) -> str:
    """The number of the job that was the n-th to begin to measure."""

    def logs() -> list[Path]:
        found = folder.glob("all.json.jobs/*_0_log.out")
        loaded = [log for log in found if "Loading pickle" in log.read_text()]
        return sorted(loaded, key=lambda log: log.stat().st_mtime)

    until(lambda: len(logs()) >= number, 120)
    time.sleep(0.5)  # it listens to signals from then on
    return logs()[number - 1].name.partition("_")[0]


def processes_of(folder: Path) -> list[bytes]:
    """The command lines of the jobs of a folder that live here."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [line for line in found if bytes(folder / "all.json.jobs") in line]


def test_groups_measured_by_jobs_are_those_of_one_run(run, tmp_path: Path) -> None:
    ends(run(*sweep("1,16"), "-o", "one.json"), 0)
    ends(run(*sweep("1,16"), "--on", "local", "-o", "all.json"), 0)
    assert exact(tmp_path / "all.json") == exact(tmp_path / "one.json")
    assert not (tmp_path / "all.json.jobs").exists()


def goes_on_after_an_interruption(run, folder: Path, *on: str) -> None:
    """Ctrl-C while the second group is measured; --resume measures what is left."""
    words = (*sweep("1,2,4,8"), *on, "-o", "all.json")
    parent = run(*words)
    begun(folder, 2)
    until(lambda: (folder / "all.json.jobs" / "0.json").exists() or parent.poll())
    parent.send_signal(signal.SIGINT)
    ends(parent, 130)
    until(lambda: not processes_of(folder))
    ends(run(*words, "--resume"), 0)
    ends(run(*sweep("1,2,4,8"), "-o", "one.json"), 0)
    assert exact(folder / "all.json") == exact(folder / "one.json")
    assert not (folder / "all.json.jobs").exists()


@pytest.mark.slow
def test_an_interruption_cancels_jobs_here_and_resume_goes_on(
    run, tmp_path: Path
) -> None:
    goes_on_after_an_interruption(run, tmp_path, "--on", "local")


@pytest.mark.slow
def test_a_job_that_is_killed_is_a_lost_group_that_resume_measures(
    run, tmp_path: Path
) -> None:
    words = (*sweep("1,2"), "--on", "local", "-o", "all.json")
    parent = run(*words)
    os.kill(int(begun(tmp_path, 1)), signal.SIGKILL)
    assert "1 of 2 groups were lost" in ends(parent, 3)
    failures = read_report(tmp_path / "all.json").failures
    assert {failure.kind for failure in failures} == {FailureKind.LOST}
    ends(run(*words, "--resume"), 0)
    assert len({case for case, _ in exact(tmp_path / "all.json")}) == 4
