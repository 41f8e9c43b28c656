"""Real worker processes and user code that is hostile by accident: the tool stays
upright.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_machine import KnownProber, planned
from paths import ROOT

from ffnbench.api.measuring import measure_plan
from ffnbench.api.preparing import Prepared
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import Workload, cost_of
from ffnbench.record.messages import Failed
from ffnbench.record.result import CaseCost, FailureKind
from ffnbench.run.prober import Prober
from ffnbench.run.worker import Worker, WorkerLost
from ffnbench.run.world import World
from ffnbench.worker import peak_memory
from ffnbench.worker import subject as subjects

HOSTILE = str(ROOT / "tests" / "hostile.py")
SMALL = Workload(
    batch=1, seq_len=32, dtype="float32", device="cpu", mode="forward", threads=1
)


@pytest.fixture(scope="module")
def prober():
    """One worker for all that only ask."""
    with Prober(timeout_s=60) as prober:
        yield prober


class Patient(Worker):
    """Takes the plan's word for how long Hangs may take; on a busy machine the others
    take what they need.
    """

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        if arguments.get("label") != "Hangs":
            timeout_s = 120.0
        return super().ask(job, timeout_s, **arguments)


def test_trouble_is_a_row_and_the_others_go_on(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way to fail at once, in one run: nothing is lost and each row says what
    happened.
    """
    names = (
        "Chatty",
        "Raises",
        "Exits",
        "Dies",
        "Hangs",
        "Greedy",
        "Drifts",
        "NotFinite",
        "Plain",
    )
    variants = ",".join(["relu", *(f"{HOSTILE}:{name}" for name in names)])
    request = dict(
        variants=variants,
        d_model=16,
        d_ff=32,
        seq_len=32,
        workers=3,
        rounds=3,
        threads=1,
    )
    plan = planned(**request, probe=prober)
    costs = tuple(
        CaseCost(case=case.label, cost=cost_of(case, prober)) for case in plan.cases
    )
    assert {found.cost.params for found in costs} == {
        2 * 16 * 32,
        2 * 16 * 32 + 32 + 16,
    }
    hasty = replace(plan, protocol=replace(plan.protocol, warmup_s=1e-3, timeout_s=1.0))
    report = measure_plan(Prepared(plan=hasty, costs=costs), World(launch=Patient))
    failures = {f.case: (f.kind.value, f.message) for f in report.failures}
    assert set(failures) == set(names) - {"Chatty", "Plain"}
    for name, says in (("Raises", "ValueError: two lines"), ("Exits", "SystemExit: 1")):
        assert failures[name][0] == "crash"
        assert re.fullmatch(rf"{says} \(\S*hostile.py, line \d+\)", failures[name][1])
    assert failures["Dies"][1].startswith("the process ended (exit code 7)")
    assert failures["Hangs"] == ("timeout", "no answer within 1 s")
    assert failures["Greedy"][0] == "oom"
    assert "GiB at once" in failures["Greedy"][1]
    assert failures["Drifts"][0] == "mismatch"
    assert (
        "the output differs from the module's own in float64 by"
        in failures["Drifts"][1]
    )
    assert failures["NotFinite"] == ("mismatch", "the output is not finite")
    for label in ("relu", "Chatty", "Plain"):
        made = [
            one
            for one in report.samples
            if (one.case, one.metric) == (label, "latency")
        ]
        assert (
            len(made) == 9
        )  # beside other work a row may be busy, and its samples are kept
        assert report.estimate(label, "peak_bytes") is not None


def spec(name: str, d_ff: int = 48, **arguments: object) -> ImportedSpec:
    return ImportedSpec(
        target=f"{HOSTILE}:{name}",
        d_model=16,
        d_ff=d_ff,
        arguments=tuple(arguments.items()),
    )


@pytest.mark.parametrize(
    ("target", "says", "hint"),
    [
        (f"{HOSTILE}:Plian", "has no 'Plian'", "did you mean 'Plain'"),
        (f"{HOSTILE}:not_a_module", "returned int, not an nn.Module", ""),
        (f"{HOSTILE}:an_instance", "is an instance of Plain", ""),
        (f"{HOSTILE}:broken", "raised RuntimeError: no GPU here", ""),
        (f"{HOSTILE}:Needy", "needs 'heads'", "@heads="),
        (f"{HOSTILE}:Configured", "reads config.special", "@special="),
        (
            f"{HOSTILE}:BadShape",
            r"returns shape \(1, 32, 48\) for an input of \(1, 32, 16\)",
            "keeps the shape",
        ),
        (f"{HOSTILE}:Tuple", "returns tuple, not a tensor", "hidden states"),
        (
            "no.such.module:X",
            "cannot import 'no.such.module': ModuleNotFoundError",
            "installed",
        ),
        ("math:floor", "raised TypeError", ""),
    ],
)
def test_user_code_that_cannot_serve_is_one_clear_error(
    prober: Prober, target: str, says: str, hint: str
) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        prober.count(ImportedSpec(target=target, d_model=16, d_ff=48), SMALL)
    assert hint in caught.value.hint
    assert caught.value.hint
    assert caught.value.exit_code == 2


class Twice(torch.nn.Module):
    """Calls its down projection for each half of the tokens, and overwrites what went
    in.
    """

    def __init__(self, *, by_name: bool = False) -> None:
        super().__init__()
        self.down, self.by_name = torch.nn.Linear(4, 2), by_name

    def forward(self, x):
        hidden = torch.tensor(
            [[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]], dtype=x.dtype
        )
        first = self.down(input=hidden[:1]) if self.by_name else self.down(hidden[:1])
        second = self.down(hidden[1])
        hidden.fill_(1.0)
        return torch.stack((first[0], second))[None] + 0 * x


class Around(Twice):
    """Uses the weight of its projection, never the projection."""

    def forward(self, x):
        return torch.nn.functional.linear(x.new_zeros(1, 2, 4), self.down.weight)


def test_sparsity_is_the_share_over_all_calls_of_the_projection() -> None:
    work = Workload(
        batch=1, seq_len=2, dtype="float32", device="cpu", mode="forward", threads=1
    )
    for by_name in (False, True):
        subject = subjects.subject_of(Twice(by_name=by_name), work, 2, 0)
        assert peak_memory.sparsity(subject) == (3 / 8, 1 / 4)
    with pytest.raises(FfnbenchError, match="never called as a module"):
        peak_memory.sparsity(subjects.subject_of(Around(), work, 2, 0))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os._exit(9)", r"the process ended \(exit code 9\)"),
        ("for n in range(64):\n    try:\n        os.write(n, b'[1]\\n')\n    except OSError:\n        pass",
         "instead of an answer"),
    ],
)  # fmt: skip
def test_an_import_that_ends_its_process_or_writes_into_open_files(
    tmp_path: Path, code: str, says: str
) -> None:
    (tmp_path / "deadly.py").write_text(f"import os\n{code}\n")
    with Prober(60) as prober, pytest.raises(FfnbenchError, match=says):
        prober.describe(f"{tmp_path}/deadly.py:X")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_worker_takes_no_more_memory_than_it_was_given() -> None:
    """512 MiB are there: 1 GiB fails as an error of that case, although nothing is
    written to it; the next one runs.
    """
    variants = f"{HOSTILE}:Hungry,{HOSTILE}:Plain"
    request = dict(
        variants=variants,
        d_model=16,
        d_ff=32,
        seq_len=32,
        match="none",
        threads=1,
        device="cpu",
    )
    plan, given = planned(**request, probe=KnownProber()), 2**29
    worker = Worker()
    try:
        worker.ask("begin", 60, plan=plan, memory_bytes=given)
        soft, _ = resource.prlimit(worker._process.pid, resource.RLIMIT_DATA)
        hungry, plain = (
            worker.ask("open", 60, label=case.label, calls=1) for case in plan.cases
        )
    finally:
        worker.close()
    assert soft != resource.RLIM_INFINITY
    assert hungry == Failed(
        kind=FailureKind.OOM, message="it tried to allocate 1.00 GiB at once"
    )
    assert plain.calls == 1


def test_no_worker_outlives_a_parent_that_was_killed() -> None:
    code = (
        "from ffnbench.run.worker import Worker\ns = Worker(); s.greeting()\n"
        "print(s._process.pid, flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and Path(f"/proc/{worker}").exists():
        status = Path(f"/proc/{worker}/status")
        if status.exists() and "Z (zombie)" in status.read_text():
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


CHILD = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path(__file__).with_name("child").write_text(str(child.pid))

def f(x):
    return x
"""


def running(number: int) -> bool:
    """Whether a process goes on; one that has ended and that nobody waits for does
    not.
    """
    try:
        return (
            Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            not in "ZX"
        )
    except OSError:
        return False


def test_what_user_code_has_started_ends_with_its_worker(tmp_path: Path) -> None:
    (tmp_path / "kern.py").write_text(CHILD)
    with Prober(timeout_s=60) as prober:
        prober.describe(f"{tmp_path}/kern.py:f")
        child = int((tmp_path / "child").read_text())
        assert running(child)
    deadline = time.monotonic() + 5
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(child)


def test_a_worker_killed_from_outside_is_told_apart() -> None:
    worker = Worker()
    worker.greeting()
    os.killpg(worker._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match=r"killed \(signal 9\)") as caught:
        worker.ask("timer", 10)
    assert caught.value.kind is FailureKind.OOM
    worker.close()
