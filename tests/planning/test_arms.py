"""Cases that run elsewhere: the grammar of an arm, the group of its workers, and what
another interpreter needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, FakeWorker, prepare, run
from made_up_runs import with_control

from ffnbench.common.errors import FfnbenchError
from ffnbench.device.environment import about_torch
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.messages import (
    Begin,
    CompareOutput,
    Count,
    Describe,
    Greeting,
    Locate,
    MeasureMemory,
    MeasureSparsity,
    Open,
    SaveOutput,
    TakeSample,
    WorkerRequest,
    encode_request,
)
from ffnbench.plan import CONTROL, THIS_INTERPRETER, Arm, Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.variant_text import parse_variant
from ffnbench.report.words import side_lines
from ffnbench.request import CompareRequest
from ffnbench.result import Side
from ffnbench.run.prober import Prober
from ffnbench.run.worker_pool import start_processes
from ffnbench.run.worker_process import BOOT, interpreter_of, variables_of


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("swiglu@env=A", "cannot read the variable 'A'"), ("swiglu@env=A=1", "cannot read the variable 'A=1'"),
        ("swiglu@env=1A:2", "cannot read the variable"), ("swiglu@python=a@python=b", "is given twice"),
        ("swiglu@python=", "cannot read '@python='"), ("swiglu@pyhton=a", "unknown key 'pyhton'"),
    ],
)  # fmt: skip
def test_arms_that_are_none(text: str, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        parse_variant(text)
    assert caught.value.hint


def test_where_an_arm_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_of(THIS_INTERPRETER) == sys.executable
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert interpreter_of(Arm(python=str(link))) == str(
        link
    )  # a virtual environment is known by its link
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    with pytest.raises(FfnbenchError) as caught:
        interpreter_of(Arm(python=str(tmp_path / "env")))
    assert str(tmp_path / "env" / "bin" / "python") in caught.value.hint


def test_an_arms_own_code_comes_before_the_users_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real interpreter, where all three folders have the module; a `src` that is a
    package itself is no folder.
    """
    for folder in ("theirs", "mine/src", "mine"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "which.py").write_text(f"print({folder!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    mine, command = tmp_path / "mine", [sys.executable, "-c", "import which"]
    arm = Arm(source=str(mine), env=(("X", "1"),))
    found = variables_of(arm)
    assert (found["PYTHONPATH"], found["X"]) == (
        f"{mine}:{mine}/src:{tmp_path}/theirs",
        "1",
    )
    said = []
    for gone in (None, mine / "which.py", mine / "src" / "which.py"):
        if gone:
            gone.unlink()
        done = subprocess.run(
            command,
            env=variables_of(arm),
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        said.append(done.stdout.strip())
    assert said == ["mine", "mine/src", "theirs"]
    (mine / "src" / "__init__.py").touch()
    assert variables_of(arm)["PYTHONPATH"] == f"{mine}:{tmp_path}/theirs"
    assert variables_of(THIS_INTERPRETER)["PYTHONPATH"] == f"{tmp_path}/theirs"


def plan_of(variants: str, **options: object) -> Plan:
    return plan_compare(
        CompareRequest(variants=variants, match="none", workers=3, rounds=2, **options)
    )


class Launched(FakeLaunch):
    """Remembers the arms of its workers and which plan each was given."""

    def __init__(self) -> None:
        super().__init__()
        self.arms: list[Arm] = []
        self.plans: list[tuple[Arm, list[str]]] = []

    def __call__(self, arm: Arm = THIS_INTERPRETER):
        worker = super().__call__(arm)
        self.arms.append(arm)
        real = worker.ask

        def ask(request: WorkerRequest, timeout_s: float) -> object:
            if isinstance(request, Begin):
                self.plans.append((arm, [case.label for case in request.plan.cases]))
            return real(request, timeout_s)

        worker.ask = ask
        worker.greeting = lambda timeout_s: Greeting(
            torch=f"2.{len(arm.env)}", blas="mkl"
        )
        return worker


def test_a_group_is_one_worker_to_the_runner() -> None:
    plan = with_control(plan_of("relu,gelu=gelu@env=A:1,silu=silu@env=A:1"))
    launch = Launched()
    done = run(plan, launch=launch)
    away = Arm(env=(("A", "1"),))
    assert launch.arms[:3] == [THIS_INTERPRETER, away, Arm(name=CONTROL)]
    assert launch.plans[:3] == [
        (THIS_INTERPRETER, ["relu"]),
        (away, ["gelu", "silu"]),
        (Arm(name=CONTROL), [CONTROL]),
    ]
    asked = {
        (launch.arms[index], label)
        for index, do, label in launch.log
        if do is TakeSample
    }
    assert asked == {
        (THIS_INTERPRETER, "relu"),
        (away, "gelu"),
        (away, "silu"),
        (Arm(name=CONTROL), CONTROL),
    }
    assert {s.case for s in done.samples if s.metric == "latency"} == {
        "relu",
        "gelu",
        "silu",
        CONTROL,
    }
    assert all(worker.closed for worker in launch.workers)
    assert done.sides == (
        Side(name="relu", cases=("relu",), differing=(("torch", "2.0"), ("A", "none"))),
        Side(
            name="gelu, silu",
            cases=("gelu", "silu"),
            differing=(("torch", "2.1"), ("A", "1")),
        ),
    )
    assert side_lines(done.sides) == [
        "torch: 2.0 (relu), 2.1 (gelu, silu)",
        "A: none (relu), 1 (gelu, silu)",
    ]


def test_a_group_that_can_not_be_complete_leaves_nobody_behind() -> None:
    launch = FakeLaunch()

    def start(arm: Arm):
        if arm.env:
            raise FfnbenchError("no")
        return launch(arm)

    with pytest.raises(FfnbenchError, match="no"):
        start_processes(plan_of("relu,gelu@env=A:1"), start)
    assert [worker.closed for worker in launch.workers] == [True]


def test_variables_that_may_be_secrets_are_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    found = about_torch()
    assert "secret" not in repr(found)
    assert ("OMP_PROC_BIND", "close") in found["variables"]
    assert found["torch"].startswith("2.")


NOT_NEEDED = (
    "typer",
    "click",
    "rich",
    "pandas",
    "matplotlib",
    "scipy",
    "numpy",
    "pygments",
    "yaml",
)


@pytest.mark.slow
def test_a_worker_needs_torch_and_the_standard_library_alone(tmp_path: Path) -> None:
    """All its jobs, where everything else that ffnbench depends on can't be
    imported.
    """
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef act(x): return x.tanh()\nclass M(nn.Linear): pass\n"
    )
    mine, act = f"{tmp_path}/mine.py:M", f"{tmp_path}/mine.py:act"
    plan = plan_of("relu", d_model=8, seq_len=4)
    ours = plan.with_device("cpu")
    [case] = ours.cases
    spec = ImportedSpec(target=mine, d_model=8, d_ff=8)
    asked = [
        Begin(plan=ours),
        Open(label="relu", calls=None),
        TakeSample(label="relu", calls=2),
        MeasureMemory(label="relu"),
        MeasureSparsity(label="relu"),
        Describe(target=act),
        Locate(target=act),
        Count(spec=spec, workload=case.workload),
        SaveOutput(case=case, seed=0, folder=str(tmp_path)),
        CompareOutput(case=case, seed=0, folder=str(tmp_path)),
    ]
    lines = [
        json.dumps(encode_request(request, number))
        for number, request in enumerate(asked)
    ]
    code = (
        f"import sys, runpy; sys.modules.update(dict.fromkeys({NOT_NEEDED!r}));"
        f"runpy.run_path({str(BOOT)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], input="".join(line + "\n" for line in lines),
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    hello, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert "greeting" in hello, done.stderr
    assert not [answer for answer in answers if "failed" in answer], answers
    assert len(answers) == len(asked)
    assert answers[-1]["answer"]["error"] == 0.0


@pytest.mark.parametrize(
    ("variants", "says", "hint"),
    [
        (
            "relu,gelu@python=nowhere/python",
            "there is no interpreter 'nowhere/python'",
            "another environment",
        ),
        ("relu,gelu@source=nowhere", "there is no folder 'nowhere'", "checkout"),
        (
            "relu,gelu@python=/bin/ls",
            "@python=/bin/ls: a worker could not start: it printed",
            "import torch",
        ),
    ],
)
def test_an_arm_that_is_not_there_is_found_before_measuring(
    variants: str, says: str, hint: str
) -> None:
    with pytest.raises(FfnbenchError) as caught:
        prepare(CompareRequest(variants=variants, quick=True))
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_the_processes_of_all_arms_end_with_the_prober() -> None:
    started: list[FakeWorker] = []

    def launch(arm: Arm) -> FakeWorker:
        started.append(FakeWorker(FakeLaunch(), len(started)))
        return started[-1]

    with Prober(1.0, launch=launch) as prober:
        prober.start()
        prober.within(Arm(source="/elsewhere")).start()
    assert [worker.closed for worker in started] == [True, True]
