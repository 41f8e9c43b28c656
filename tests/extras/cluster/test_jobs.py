"""Groups as jobs of submitit: nothing is lost or doubled, whatever becomes of a job, or
of the process that waits.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_machine import FakeLaunch
from paths import ROOT

from ffnbench.extras.cluster import jobs, submitting
from ffnbench.metrics import METRICS
from ffnbench.report.files.store import read_report
from ffnbench.result import FailureKind, Report

submitit = pytest.importorskip("submitit")
SWEEP = [
    "compare",
    "relu",
    "swiglu",
    "--d-model",
    "32,64",
    "--seq-len",
    "1,2,4",
    "--threads",
    "1",
]  # 6 groups
HOW = ["--workers", "3", "--rounds", "2"]
NO_TORCH = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'torch'\n"


class Jobs:
    """Submitit's files, written as it writes them, by jobs that are done in this
    process, each by what `becomes` of it: done, raises, dies, or runs on, and is done
    when it is looked at again; one that begins is not seen at the first look.
    """

    def __init__(self, becomes: Callable[[int], str] = lambda number: "done") -> None:
        self.becomes, self.numbers, self.running = (
            becomes,
            itertools.count(1),
            dict[str, Callable[[], None]](),
        )
        self.beginning: dict[str, Callable[[], None]] = {}
        self.submitted: list[Path] = []
        self.budgets: list[float] = []
        self.together = 0  # how many ran at once

    def submit(self, cluster: submitting.Cluster, folder: Path, job: jobs.CellJob):
        number = next(self.numbers)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / f"{number}_submitted.pkl").touch()
        self.submitted.append(folder)
        self.budgets.append(
            json.loads(job.asked)["plan"]["protocol"]["budget_s"] or 0.0
        )

        def ends(how: str) -> None:
            result = ("success", job()) if how != "raises" else ("error", NO_TORCH)
            (folder / f"{number}_0_result.pkl").write_bytes(pickle.dumps(result))

        match self.becomes(number):
            case "dies":
                (folder / f"{number}_0_log.err").write_text(
                    "slurmstepd: error: *** JOB CANCELLED DUE TO TIME LIMIT ***\nTerminated\nsrun: error: exit code 2\n"
                )
            case "runs":
                self.running[str(number)] = lambda: ends("done")
                self.together = max(self.together, len(self.running))
            case "begins":
                self.beginning[str(number)] = lambda: ends("done")
            case how:
                ends(how)
        return cluster.job(folder, str(number))

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            submitting.Cluster,
            "submit",
            lambda cluster, folder, job: self.submit(cluster, folder, job),
        )
        monkeypatch.setattr(
            submitting.Cluster,
            "alive",
            lambda cluster, known: self.alive(cluster, known),
        )
        monkeypatch.setattr(jobs, "JOB_POLL_S", {"local": 0.0, "slurm": 0.0})

    def alive(self, cluster: submitting.Cluster, known: dict) -> set[str]:
        alive = {job.job_id for job in known.values()} & self.running.keys()
        for number in alive:
            self.running.pop(number)()
        self.running |= self.beginning
        self.beginning.clear()
        return alive


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch):
    """Have jobs become that; gives what was submitted."""

    def use(becomes: Callable[[int], str] = lambda number: "done") -> Jobs:
        made = Jobs(becomes)
        made.stand_in(monkeypatch)
        return made

    return use


@pytest.fixture
def call(on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    return on_fakes


def exact(found: Report) -> set[tuple[object, ...]]:
    """All that does not depend on time: the rows, what they cost, what of them was
    measured and is exact.
    """
    names = {metric.name for metric in METRICS if metric.exact}
    of_cases = {(case.label, repr(case)) for case in found.plan.cases}
    return (
        of_cases | {(one.case, repr(one.cost)) for one in found.costs}
        | {(one.case, one.metric, one.value) for one in found.samples if one.metric in names}
    )  # fmt: skip


def latencies(found: Report) -> Counter[str]:
    return Counter(one.case for one in found.samples if one.metric == "latency")


def test_jobs_of_groups_end_as_one_run_does(call, submitted) -> None:
    assert call(*SWEEP, *HOW, "-o", "one.json")[0] == 0
    made = submitted(lambda number: "done" if number == 3 else "runs")
    assert call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")[0] == 0
    one, many = read_report("one.json"), read_report("jobs.json")
    assert len({*made.submitted}) == len(made.submitted) == 6
    assert made.together == 1
    assert exact(one) == exact(many)
    assert (
        latencies(one)
        == latencies(many)
        == dict.fromkeys({case.label for case in one.plan.cases}, 3 * 2)
    )
    assert [case.label for case in one.plan.cases] == [
        case.label for case in many.plan.cases
    ]
    assert not Path("jobs.json.jobs").exists()
    assert not Path("jobs.json.journal").exists()


def test_a_budget_is_that_of_all_machines(call, submitted) -> None:
    jobs = submitted()
    assert call(*SWEEP, "--budget", "60", "--on", "local", "-o", "jobs.json")[0] == 0
    assert jobs.budgets == [10.0] * 6
    found = read_report("jobs.json")
    assert (found.plan.protocol.budget_s, found.plan.protocol.looks) == (60, 1)
    assert 0 < (found.wall_s or 0) < 60 + 6 * 10


def test_a_job_that_is_lost_is_a_row_and_measured_by_resume(call, submitted) -> None:
    made = submitted(lambda number: {2: "dies", 3: "raises"}.get(number, "done"))
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")
    assert code == 3
    assert "2 of 6 groups were lost" in err
    found = read_report("jobs.json")
    assert Counter(one.kind for one in found.failures) == {FailureKind.LOST: 4}
    messages = {one.message for one in found.failures}
    assert messages == {
        "slurmstepd: error: *** JOB CANCELLED DUE TO TIME LIMIT ***", "ModuleNotFoundError: No module named 'torch'"
    }  # fmt: skip
    assert call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json", "--resume")[0] == 0
    assert len(made.submitted) == 6 + 2
    found = read_report("jobs.json")
    assert not found.failures
    assert latencies(found) == dict.fromkeys(
        {case.label for case in found.plan.cases}, 3 * 2
    )
    assert not Path("jobs.json.jobs").exists()


@pytest.mark.parametrize(
    "ends", [KeyboardInterrupt, MemoryError]
)  # by hand; at once, as by signal 9
def test_the_same_command_takes_up_the_jobs_of_one_that_ended(
    call, submitted, ends
) -> None:
    def becomes(number: int) -> str:
        if number == 4:
            raise ends
        return "done" if number < 3 else "runs"

    made = submitted(becomes)
    code, _, err = call(
        *SWEEP,
        *HOW,
        "--on",
        "slurm" if shutil.which("srun") else "local",
        "-o",
        "jobs.json",
    )
    assert code == (130 if ends is KeyboardInterrupt else 3)
    assert Path("jobs.json.jobs").exists()
    made.becomes = lambda number: "done"
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")
    assert (code, "--resume" in err) == (2, True)
    assert call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json", "--resume")[0] == 0
    found = read_report("jobs.json")
    assert latencies(found) == dict.fromkeys(
        {case.label for case in found.plan.cases}, 6
    )
    assert (
        Counter(made.submitted).most_common(1)[0][1] <= 2
    )  # the one that had begun as it ended
    assert len(made.submitted) <= 7


def test_the_lines_of_the_page_work_one_after_another(
    call, submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted()
    monkeypatch.setattr(submitting.Cluster, "executor", lambda cluster, folder: None)
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("ffnbench compare")]
    assert len(lines) == 2
    for line in lines:
        code, _, err = call(*line.split()[1:])
        assert code == 0, err
        assert Path("sweep.json").exists()


def test_without_slurm_and_without_submitit_one_line_and_a_hint(
    call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    code, _, err = call(*SWEEP, "--on slurm -o run.json")
    assert (code, "--on local" in err, "srun" in err) == (2, True, True)
    monkeypatch.setitem(sys.modules, "submitit", None)
    code, _, err = call(*SWEEP, "--on local -o run.json")
    assert (code, "pip install 'ffnbench[cluster]'" in err) == (2, True)


@pytest.mark.parametrize(
    ("field", "says", "hint"),
    [
        ("partitio=gpu", "", "did you mean 'partition'?"),
        (
            "partition=gpu",
            "sbatch: error: invalid partition specified: gpu",
            "`sinfo` shows",
        ),
        (
            "time=5",
            "sbatch: error: Plugin\n"
            + "\n".join(f"line {number} of it" for number in range(60)),
            "--slurm",
        ),
    ],
)
def test_what_submitit_says_is_shown_whole(
    call, monkeypatch: pytest.MonkeyPatch, tmp_path, field, says, hint
) -> None:
    """By a SLURM that refuses each job; what it does not refuse, submitit does, with a
    list of its fields.
    """
    for name in ("srun", "sbatch"):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat >&2 <<X\n{says}\nX\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, _, err = call(*SWEEP, "--on slurm -o run.json --slurm", field)
    *_, error, then = err.splitlines()
    assert (code, error.startswith("error: submitit: "), hint in then) == (
        2,
        True,
        True,
    ), err
    assert all(
        line in err
        for line in says.splitlines()
        or ["time (default: 5)", "gpus_per_node (default: None)"]
    )
    assert len(error) < 500
    assert not Path("run.json.jobs").exists()


def test_fields_are_json_or_text() -> None:
    given = (
        "partition=gpu,gpus_per_node=1,nodelist=n1,n2",
        'exclusive=false,setup=["module load cuda"],mem=4GB',
    )
    assert submitting.fields_of(given) == {
        "partition": "gpu", "gpus_per_node": 1, "nodelist": "n1,n2", "exclusive": False,
        "setup": ["module load cuda"], "mem": "4GB",
    }  # fmt: skip


def test_a_job_here_sees_the_gpus_of_who_submits_it(
    call, submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitit's local executor hides them all from jobs that ask for none."""
    seen: set[str | None] = set()

    def seconds(label: str, worker: int, number: int) -> float:
        seen.add(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return 0.01

    submitted()
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "local")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    called = jobs.CellJob.__call__

    def hidden(job: jobs.CellJob) -> str:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return called(job)

    monkeypatch.setattr(jobs.CellJob, "__call__", hidden)
    assert (
        call(
            *SWEEP, *HOW, "--on", "local", "-o", "jobs.json", launch=FakeLaunch(seconds)
        )[0]
        == 0
    )
    assert seen == {"3"}


# What is taken up, and what is deleted


class Bomb:
    """What pickle makes of it is a file."""

    def __reduce__(self):
        return (open, ("MARKER", "w"))


def forged(folder: Path) -> None:
    """A folder as a run leaves it, whose results run code."""
    (folder / "0123456789abcdef").mkdir(parents=True)
    for name in ("1_submitted.pkl", "1_0_result.pkl"):
        (folder / "0123456789abcdef" / name).write_bytes(
            pickle.dumps(("success", Bomb()))
        )


@pytest.fixture
def left(call, submitted, tmp_path: Path) -> Path:
    """The folder of a run that ended when three of its six jobs were done."""

    def becomes(number: int) -> str:
        if number == 4:
            raise KeyboardInterrupt
        return "done"

    submitted(becomes)
    assert call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")[0] == 130
    return tmp_path / "jobs.json.jobs"


def armed(folder: Path) -> None:
    """Every result in it runs code when it is read."""
    results = list(folder.glob("*/*_result.pkl"))
    assert results
    for path in results:
        path.write_bytes(pickle.dumps(("success", Bomb())))


@pytest.mark.parametrize("flags", [[], ["--resume"]])
def test_a_folder_of_jobs_from_elsewhere_is_not_read_nor_deleted(
    call, submitted, tmp_path: Path, flags
) -> None:
    made = submitted()
    forged(tmp_path / "jobs.json.jobs")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json", *flags)
    assert (code, err.count("\n")) == (2, 2)
    assert "error: '" in err
    assert (
        "jobs.json.jobs' is the folder for the jobs, but no run of yours has made it\nhint: move it away"
        in err
    )
    assert {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == before
    assert not made.submitted


def test_a_pipe_in_the_place_of_the_folder_is_not_waited_for(
    call, submitted, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "jobs.json.jobs")
    made = submitted()
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")
    assert (code, "no run of yours has made it" in err) == (2, True), err
    assert (tmp_path / "jobs.json.jobs").is_fifo()
    assert not made.submitted


@pytest.mark.parametrize("how", ["another place", "a link", "another state"])
def test_what_this_users_run_has_not_made_there_is_refused(
    call, left: Path, monkeypatch, tmp_path: Path, how
) -> None:
    armed(left)
    name = "jobs.json"
    if how == "another place":
        left.rename("other.json.jobs")
        name = "other.json"
    elif how == "a link":
        left.rename("copy")
        left.symlink_to("copy")
    elif how == "another state":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", name, "--resume")
    assert (code, "no run of yours has made it" in err) == (2, True), err
    assert not Path("MARKER").exists()
    assert list(
        (tmp_path / ("copy" if how == "a link" else f"{name}.jobs")).glob(
            "*/*_result.pkl"
        )
    )


def test_jobs_that_could_never_be_taken_up_are_not_submitted(
    call, submitted, monkeypatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    made = submitted()
    code, _, err = call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")
    assert (code, err.count("\n"), "\nhint: XDG_STATE_HOME names" in err) == (
        2,
        2,
        True,
    ), err
    assert not made.submitted
    assert not Path("jobs.json.jobs").exists()


MLP = """
from torch import nn
class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.down(self.up(x).relu())
"""


def test_a_job_that_only_begins_is_not_lost(call, submitted) -> None:
    """Between its start and its command line a process can't be told from one that is
    gone.
    """
    submitted(lambda number: "begins")
    assert call(*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")[0] == 0


def test_modules_beside_the_user_are_none_of_submitits(tmp_path: Path) -> None:
    """A random.py and a types.py of the user's own; their package is found as it is
    without jobs.
    """
    for name in ("random", "types", "pickle", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')\n")
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mlp.py").write_text(MLP)
    words = "compare mypkg.mlp:Mlp --d-model 16 --threads 1 --metrics memory --on local -o jobs.json"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ffnbench", *words.split()], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not read_report(tmp_path / "jobs.json").failures


class TwoKinds:
    """Jobs by turns on a node with torch 2.0 and on one with 3.0."""

    def __init__(self) -> None:
        self.launch = FakeLaunch()

    def __call__(self, number: int) -> str:
        self.launch.facts = {"torch": "2.0" if number % 2 else "3.0"}
        return "done"


def test_a_file_has_rows_of_one_kind_of_machine(call, submitted) -> None:
    nodes = TwoKinds()
    made = submitted(nodes)
    on = (*SWEEP, *HOW, "--on", "local", "-o", "jobs.json")
    code, _, err = call(*on, launch=nodes.launch)
    assert (code, "3 of 6 groups were lost" in err) == (3, True), err
    found = read_report("jobs.json")
    assert found.environment.torch == "2.0"
    assert len(latencies(found)) == len(found.failures) == 6
    for failure in found.failures:
        assert re.search(
            r"torch 3\.0, others on .* torch 2\.0: --slurm constraint", failure.message
        )
    made.becomes = lambda number: "done"
    nodes.launch.facts = {"torch": "2.0"}
    assert call(*on, "--resume", launch=nodes.launch)[0] == 0
    found = read_report("jobs.json")
    assert latencies(found) == dict.fromkeys(
        {case.label for case in found.plan.cases}, 6
    )
