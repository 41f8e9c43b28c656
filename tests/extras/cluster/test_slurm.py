"""A SLURM of one node, started for these tests alone, and submitit's local executor:
jobs that really measure.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import ROOT
from test_jobs import exact

from ffnbench.report.files.store import read_report
from ffnbench.result import FailureKind

pytestmark = pytest.mark.slow
NEEDED = ("slurmctld", "slurmd", "munged", "munge", "squeue")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
KillWait=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
SWEEP = [
    "compare", "relu", "swiglu", "--d-model", "32,48,64,80", "--seq-len", "1,2,4,8,16,32", "--threads", "1",
    "--metrics", "memory,sparsity", "--workers", "3", "--rounds", "2", "-q",
]  # fmt: skip
GROUPS = 4 * 6


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.2)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A SLURM of this machine, in a folder of its own, on ports of its own."""
    if os.getuid() or (missing := [one for one in NEEDED if shutil.which(one) is None]):
        pytest.skip(
            "needs root"
            if os.getuid()
            else f"{missing[0]} is not installed: apt-get install slurm-wlm munge"
        )
    folder = tmp_path / "slurm"
    for one in (folder / "state", folder / "spool", Path("/run/munge")):
        one.mkdir(parents=True, exist_ok=True)
    shutil.chown("/run/munge", "munge")
    started = []
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
        started.append(
            subprocess.Popen(
                ["munged", "--foreground"], user="munge", stderr=subprocess.DEVNULL
            )
        )
        until(
            lambda: (
                not subprocess.run(
                    ["munge", "-n"], capture_output=True, check=False
                ).returncode
            )
        )
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0)), other.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    text = CONF.format(host=host, ports=ports, folder=folder, cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    for name in ("slurmctld", "slurmd"):
        with (folder / f"{name}.out").open("w") as out:
            started.append(subprocess.Popen([name, "-D"], stdout=out, stderr=out))
    try:
        until(
            lambda: (
                b"idle"
                in subprocess.run(
                    ["sinfo", "-h"], capture_output=True, check=False
                ).stdout
            )
        )
        yield folder
    finally:
        subprocess.run(["scancel", "--user=root"], check=False)
        until(
            lambda: (
                not subprocess.run(
                    ["squeue", "-h"], capture_output=True, check=False
                ).stdout
            )
        )
        for process in reversed(started):
            process.terminate()
            process.wait(30)


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


def results(folder: Path) -> list[Path]:
    return sorted(folder.glob("all.json.jobs/*/*_result.pkl"))


def running(folder: Path, on: str) -> str:
    """The number of a job that has begun, and has no result."""
    logs = sorted(
        folder.glob("all.json.jobs/*/*_0_log.err"),
        key=lambda path: path.stat().st_mtime,
    )
    numbers = [
        log.name.partition("_")[0]
        for log in logs
        if not log.with_name(log.name.replace("log.err", "result.pkl")).exists()
    ]
    if on == "slurm":
        told = subprocess.run(
            ["squeue", "-h", "-t", "R", "-o", "%A"],
            capture_output=True,
            text=True,
            check=True,
        )
        numbers = [number for number in numbers if number in told.stdout.split()]
    return numbers[-1] if numbers else ""


def process_of(number: str) -> int:
    """The process that measures a job which runs here: a child of the one that has its
    number.
    """
    children = Path(f"/proc/{number}/task/{number}/children")
    until(lambda: children.read_text().split())
    return int(children.read_text().split()[0])


def next_of(folder: Path, on: str, *before: str) -> str:
    """The number of a job that has begun and is none of these."""
    until(lambda: running(folder, on) not in ("", *before), 120)
    number = running(folder, on)
    (log,) = folder.glob(f"all.json.jobs/*/{number}_0_log.out")
    until(lambda: "Loading pickle" in log.read_text())
    time.sleep(0.5)  # it listens to signals from then on
    return number


def attached(
    run: Callable[..., subprocess.Popen[str]], folder: Path, *on: str
) -> subprocess.Popen[str]:
    """The command again, when it has looked for jobs."""
    lock = folder / "all.json.jobs" / "lock"
    before, again = lock.stat().st_mtime_ns, run(*SWEEP, *on, "--resume")
    until(lambda: lock.stat().st_mtime_ns > before)
    time.sleep(2)
    return again


def ends_as(folder: Path, whole: str) -> None:
    """All groups once, and each as it is found without jobs."""
    found, one = read_report(folder / "all.json"), read_report(folder / whole)
    assert not found.failures
    assert len(one.plan.groups) == GROUPS
    assert exact(found) == exact(one)
    assert len(found.samples) == len(one.samples)
    assert not (folder / "all.json.jobs").exists()


def lost_of(folder: Path) -> set[tuple[str, str]]:
    failures = read_report(folder / "all.json").failures
    return {
        (one.case.partition("@")[2], one.message)
        for one in failures
        if one.kind is FailureKind.LOST
    }


@pytest.mark.slurm
def test_nothing_is_lost_or_doubled_on_slurm(run, slurm: Path, tmp_path: Path) -> None:
    _, err = (whole := run(*SWEEP, "-o", "one.json")).communicate()
    assert whole.returncode == 0, err
    on = ("--on", "slurm", "--slurm", "max_num_timeout=0,time=5", "-o", "all.json")
    parent = run(*SWEEP, *on)
    until(lambda: results(tmp_path) or parent.poll() is not None, 120)
    assert parent.poll() is None, parent.communicate()
    subprocess.run(
        ["scancel", "--signal=KILL", killed := next_of(tmp_path, "slurm")], check=True
    )
    parent.kill()
    parent.communicate()
    second = attached(run, tmp_path, *on)
    subprocess.run(
        ["scancel", cancelled := next_of(tmp_path, "slurm", killed)], check=True
    )
    late = next_of(tmp_path, "slurm", killed, cancelled)
    subprocess.run(
        ["scancel", "--signal=USR2", late], check=True
    )  # as SLURM tells a job that its time is over
    _, err = second.communicate()
    lost = lost_of(tmp_path)
    assert (second.returncode, 2 <= len(lost) <= 3) == (3, True), err
    assert any("CANCELLED" in message for _, message in lost), lost
    assert any("timed-out too many times" in message for _, message in lost), lost
    _, err = (third := run(*SWEEP, *on, "--resume")).communicate()
    assert third.returncode == 0, err
    ends_as(tmp_path, "one.json")


@pytest.mark.slurm
def test_what_slurm_refuses_is_told_in_its_own_words(
    run, slurm: Path, tmp_path: Path
) -> None:
    _, err = (
        refused := run(
            *SWEEP, "--on", "slurm", "--slurm", "partition=gpu", "-o", "all.json"
        )
    ).communicate()
    assert (refused.returncode, err.count("\n")) == (2, 2), err
    assert "invalid partition specified: gpu" in err
    _, err = (
        unknown := run(
            *SWEEP, "--on", "slurm", "--slurm", "queue=gpu", "-o", "all.json"
        )
    ).communicate()
    *_, error, hint = err.splitlines()  # below the list of what there is
    assert (unknown.returncode, "'queue'" in error, hint.startswith("hint: ")) == (
        2,
        True,
        True,
    ), err
    assert not (tmp_path / "all.json.jobs").exists()


def test_nothing_is_lost_or_doubled_here(run, tmp_path: Path) -> None:
    _, err = (whole := run(*SWEEP, "-o", "one.json")).communicate()
    assert whole.returncode == 0, err
    on = ("--on", "local", "-o", "all.json")
    parent = run(*SWEEP, *on)
    until(lambda: results(tmp_path) or parent.poll() is not None, 120)
    assert parent.poll() is None, parent.communicate()
    os.kill(process_of(killed := next_of(tmp_path, "local")), signal.SIGKILL)
    next_of(tmp_path, "local", killed)
    parent.kill()
    parent.communicate()
    second = attached(run, tmp_path, *on)
    os.kill(int(cancelled := next_of(tmp_path, "local", killed)), signal.SIGTERM)
    os.kill(
        process_of(next_of(tmp_path, "local", killed, cancelled)), signal.SIGUSR2
    )  # preempted: it comes back
    _, err = second.communicate()
    assert (second.returncode, len(lost_of(tmp_path))) == (3, 1), err
    _, err = (third := run(*SWEEP, *on, "--resume")).communicate()
    assert third.returncode == 0, err
    ends_as(tmp_path, "one.json")
