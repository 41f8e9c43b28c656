"""`--launch`: processes of another machine, which a command leads to. The fake ssh does what the real one does: it
joins its words with spaces, and a shell takes them apart, elsewhere and with nothing of this environment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

BASE = shutil.which("python3", path=f"{sys.base_prefix}/bin") or sys.executable  # without this environment's packages
COMPARE = ("compare", "relu,gelu", "--d-model", 64, "--seq-len", 16)
OLD = 'import sys; sys.version_info, sys.version = (3, 8, 1), "3.8.1"'
SSH = """#!/bin/sh
shift  # the host
echo "Welcome, it is {}"
cd "{there}" && exec env -i PATH=/usr/bin:/bin HOME="{there}" TMPDIR="{there}/tmp" {more} sh -c "$*"
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    (folder / "tmp").mkdir(parents=True)
    return folder


@pytest.fixture
def ssh(tmp_path: Path, there: Path):
    def make(more: str = "") -> Path:
        return script(tmp_path / "ssh", SSH.replace("{there}", str(there)).replace("{more}", more))

    return make


@pytest.fixture
def played(ssh, tmp_path: Path) -> str:
    """A machine of seven CPUs, which is a script."""
    python = script(tmp_path / "python", f"#!/bin/sh\nexec {sys.executable} {ROOT}/tests/there.py\n")
    more = f"NODE=node7 FORK={os.getpid()} PYTHONPATH={ROOT}:{ROOT}/tests"
    return f"{ssh(more)} node7 {python}"


def test_the_other_side_tells_what_it_is_and_nothing_here_is_asked_or_signalled(
    played: str, tmp_path: Path, in_process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its forks have the number of this very process: to signal one here would end the test."""
    signalled: list[int] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda number, sign: signalled.append(number))
    code, _, err = in_process(*COMPARE, "--workers", 3, "--rounds", 2, "--launch", played, "-o", tmp_path / "run.json")
    assert code == 0, err
    saved = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (saved["environment"]["cpu"], saved["environment"]["usable_cpus"]) == ("Their CPU", 7)
    assert saved["environment"]["memory_bytes"] == 1 << 40
    assert saved["environment"]["git_commit"] is None
    assert saved["around"]["others_cpus"] is None
    assert {case["workload"]["threads"] for case in saved["plan"]["cases"]} == {7}
    assert len({sample["worker"] for sample in saved["samples"]}) == 3
    assert not signalled


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ("no-such-command host", "'no-such-command' can't be started"),
        ("sh -c 'echo no route to host >&2; exit 255'", "(exit code 255); its last output: no route to host"),
        ("sh -c 'exit 0'", "ended (exit code 0)"),
        ("ssh 'host", "is no command: No closing quotation"),
    ],
)
def test_a_command_that_leads_nowhere_is_one_line_and_a_hint(launch: str, says: str, in_process) -> None:
    code, out, err = in_process(*COMPARE, "--launch", launch)
    assert (code, out) == (2, "")
    assert says in err
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]


def test_what_is_sent_runs_there_with_python_alone_and_leaves_nothing(ssh, there: Path, in_process) -> None:
    """That torch is missing is said by the worker's own code, which can only have come over the wire."""
    code, _, err = in_process(*COMPARE, "--launch", f"{ssh()} host {BASE} ")
    assert code == 2
    assert "a worker could not start: ModuleNotFoundError: No module named 'torch'" in err
    assert f"host {BASE} -m torch.utils.collect_env` work?" in err
    assert list((there / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (f"#!/bin/sh\nexec {BASE} -c '{OLD}; '\"$3\"\n", "is Python 3.8.1"),
        ("#!/bin/sh\nexit 127\n", "(exit code 127); its last output: Welcome, it is {}"),
    ],
)  # fmt: skip
def test_an_interpreter_that_will_not_do(python: str, says: str, ssh, tmp_path: Path, in_process) -> None:
    code, _, err = in_process(*COMPARE, "--launch", f"{ssh()} host {script(tmp_path / 'python3.8', python)}")
    assert code == 2
    assert says in err


def test_an_arm_and_another_machine_exclude_each_other(played: str, in_process) -> None:
    code, _, err = in_process("compare", "relu,gelu@env=A:1", "--launch", played)
    assert code == 2
    assert "--launch starts all elsewhere" in err


@pytest.mark.slow
def test_two_machines_are_not_taken_for_one(played: str, tmp_path: Path, in_process) -> None:
    """The command leads to another node each time, and the connection is lost after the first."""
    once = tmp_path / "once"
    ssh_ = Path(played.split()[0])
    lost = f"if [ -e {once} ]; then NODE=node8; else NODE=node7; touch {once}; fi\n"
    text = (
        ssh_.read_text(encoding="utf-8").replace("shift", f"{lost}shift").replace("NODE=node7 FORK", "NODE=$NODE FORK")
    )
    script(ssh_, text)
    from ffnbench.errors import Unfinished
    from ffnbench.run.elsewhere import Elsewhere

    there = Elsewhere(played)
    there._connection.close()
    worker = there.launch()
    try:
        with pytest.raises(Unfinished, match="led to node7 first, and to node8 now"):
            worker.greeting()
    finally:
        there.close()


MINE = """import os, torch
class Mine(torch.nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = torch.nn.Linear(d_model, d_ff), torch.nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""


@pytest.mark.slow
def test_a_real_run_elsewhere_has_the_exact_figures_of_one_here(ssh, there: Path, tmp_path: Path, in_process) -> None:
    """Its module stands there alone; nothing is left there, and the environment's variables have not travelled."""
    (there / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    found = {}
    for name, more in {"there": ("--launch", f"{ssh()} host {sys.executable}"), "here": ()}.items():
        variants = "relu,gelu,mine=" + ("mine.py:Mine" if more else f"{tmp_path}/mine.py:Mine")
        arguments = ("compare", variants, "--quick", "--d-model", 64, "--seq-len", 16, "-o", tmp_path / f"{name}.json")
        code, _, err = in_process(*arguments, *more)
        assert code == 0, err
        saved = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        exact = [
            (one["case"], one["metric"], one["value"]) for one in saved["samples"] if one["metric"] == "peak_bytes"
        ]
        found[name] = (saved["environment"]["fingerprint"], [cost["cost"] for cost in saved["costs"]], exact)
    assert found["here"] == found["there"]
    assert list((there / "tmp").glob("ffnbench-*")) == []
    code, _, err = in_process("compare", "relu,nowhere.py:M", "--launch", f"{ssh()} host {sys.executable}")
    assert code == 2
    assert "there is no file 'nowhere.py'" in err
    assert "--launch looks for it there" in err


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "all of it"])
def test_what_is_lost_there_is_a_note_and_the_run_goes_on(victim: str, ssh, there: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ffnbench", *map(str, COMPARE), "--workers", "5", "--rounds", "2", "-o"]
    words += [f"{tmp_path}/run.json", "--launch", f"{ssh()} host {sys.executable}"]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stderr is not None
    for line in run.stderr:
        if line.startswith("process 2"):
            mark = f"{there}/tmp/ffnbench-" if victim == "worker" else "exec(input())"
            listed = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
            os.kill(int([one for one in listed.splitlines() if mark in one][-1].split()[0]), signal.SIGKILL)
            break
    run.communicate()
    assert run.returncode == 0
    saved = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert any("was lost" in note["text"] for note in saved["warnings"])
    assert len({sample["worker"] for sample in saved["samples"] if sample["metric"] == "latency"}) >= 5
