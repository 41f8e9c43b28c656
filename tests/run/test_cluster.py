"""Groups as jobs that really measure, on a SLURM of one script: sbatch starts a job, of
which one runs at a time, squeue lists those that live, scancel ends one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

from ffnbench.record.result import FailureKind
from ffnbench.report.store import read_report

pytest.importorskip("submitit")

SLURM = """#!{python}
import glob, os, signal, subprocess, sys
os.chdir({folder!r})
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
pids = {{path[:-4]: int(open(path).read()) for path in glob.glob("*.pid")}}
if name == "sbatch":
    id = str(len(pids))
    script = open(words[0]).read()
    env = dict(os.environ, SLURM_JOB_ID=id, SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1", SLURM_NODEID="0",
               SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_JOB_NODELIST="here")
    job = subprocess.Popen(["flock", "node", "bash", "-c", script], env=env, start_new_session=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    open(f"{{id}}.pid", "w").write(str(job.pid))
    print("Submitted batch job", id)
elif name == "squeue":
    for id, pid in pids.items():
        if subprocess.run(["pgrep", "-g", str(pid)], stdout=subprocess.DEVNULL).returncode == 0:
            print(id)
elif name == "scancel":
    subprocess.run(["pkill", "-TERM", "-g", str(pids[words[-1]])])
else:
    files = {{}}
    while words[0].startswith("--"):
        word = words.pop(0)
        if word in ("--output", "--error"):
            files[word] = open(words.pop(0).replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", "0"), "w")
    raise SystemExit(subprocess.run(words, stdout=files["--output"], stderr=files["--error"]).returncode)
"""
# the command, which looks at its jobs more often
MAIN = """
from ffnbench.__main__ import main
from ffnbench.api import cluster
cluster.POLL_S, cluster.FILE_LATE_S = 0.2, 0.5
main()
"""


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.2)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """The command in a process of its own, with SLURM; no other run on this machine is
    waited for.
    """
    programs, jobs = tmp_path / "bin", tmp_path / "slurm"
    programs.mkdir()
    jobs.mkdir()
    for name in ("sbatch", "squeue", "scancel", "srun"):
        script = programs / name
        script.write_text(SLURM.format(python=sys.executable, folder=str(jobs)))
        script.chmod(0o755)

    def start(*words: str) -> subprocess.Popen[str]:
        here = {
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words], cwd=tmp_path, env={**os.environ, **here}, text=True,
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


def begun(folder: Path) -> list[Path]:
    """The logs of the jobs that have begun, the first one first."""
    logs = folder.glob("all.json.jobs/*_0_log.out")
    found = [log for log in logs if "Loading pickle" in log.read_text()]
    return sorted(found, key=lambda log: log.stat().st_mtime)


def alive(folder: Path) -> list[str]:
    """The jobs that live."""
    queue = subprocess.run([folder / "bin" / "squeue"], capture_output=True, text=True)
    return queue.stdout.split()


def test_groups_measured_by_jobs_are_those_of_one_run(run, tmp_path: Path) -> None:
    ends(run(*sweep("1,16"), "-o", "one.json"), 0)
    ends(run(*sweep("1,16"), "--on", "slurm:time=3", "-o", "all.json"), 0)
    assert exact(tmp_path / "all.json") == exact(tmp_path / "one.json")
    assert not (tmp_path / "all.json.jobs").exists()


@pytest.mark.slow
def test_an_interruption_cancels_jobs_and_resume_goes_on(run, tmp_path: Path) -> None:
    words = (*sweep("1,2,4,8"), "--on", "slurm", "-o", "all.json")
    parent = run(*words)
    until(lambda: len(begun(tmp_path)) >= 2)
    until(lambda: (tmp_path / "all.json").exists())
    parent.send_signal(signal.SIGINT)
    ends(parent, 130)
    until(lambda: not alive(tmp_path))
    ends(run(*words, "--resume"), 0)
    ends(run(*sweep("1,2,4,8"), "-o", "one.json"), 0)
    assert exact(tmp_path / "all.json") == exact(tmp_path / "one.json")
    assert not (tmp_path / "all.json.jobs").exists()


@pytest.mark.slow
def test_a_job_that_is_killed_is_a_lost_group_that_resume_measures(
    run, tmp_path: Path
) -> None:
    words = (*sweep("1,2"), "--on", "slurm", "-o", "all.json")
    parent = run(*words)
    until(lambda: begun(tmp_path))
    number = begun(tmp_path)[0].name.partition("_")[0]
    group = int((tmp_path / "slurm" / f"{number}.pid").read_text())
    os.killpg(group, signal.SIGKILL)
    assert "1 of 2 groups were lost" in ends(parent, 3)
    failures = read_report(tmp_path / "all.json").failures
    assert {failure.kind for failure in failures} == {FailureKind.LOST}
    ends(run(*words, "--resume"), 0)
    assert len({case for case, _ in exact(tmp_path / "all.json")}) == 4
