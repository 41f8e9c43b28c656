"""What several test files share: a worker without a process, and the command line in this process or in its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from ffnbench import cli, messages
from ffnbench.api import measuring, preparing
from ffnbench.common import jsonable
from ffnbench.device.environment import about_machine, caches
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.messages import (
    Backends,
    DeviceFacts,
    Done,
    Failed,
    Greeting,
    OfCase,
    Opened,
    ReachedRoof,
    ReachedRoofs,
    Sampled,
    TakeSample,
    Values,
    WorkerRequest,
)
from ffnbench.plan import OWN, Arm, Backend, Case, Kind, Plan, Workload, control_of, kind_names
from ffnbench.report.columns import case_records
from ffnbench.report.frame import Frame
from ffnbench.report.writers import csv_text
from ffnbench.result import Agreement, FailureKind, Report, Roof, Run
from ffnbench.run import runner, world
from ffnbench.run.neighbours import machine_lock
from ffnbench.run.prober import Prober
from ffnbench.run.session import Session, WorkerLost

ROOT = Path(__file__).resolve().parents[1]
FACTS = {
    "torch": "2.0-fake",
    "torch_threads": 2,
    "blas": "fake",
    **about_machine(),
}
FACTS["caches"] = tuple(caches())
ADDED = {  # what a worker answers to a feature's requests, in answers.json of the folder of its tests
    name: answer
    for path in sorted(ROOT.glob("tests/extras/*/answers.json"))
    for name, answer in json.loads(path.read_text(encoding="utf-8")).items()
}

Seconds = Callable[[str, int, int], float]  # (label, worker, round) -> seconds


class FakeWorker:
    """Answers like a process that can't be forked, from a script: no process, no torch, no clock."""

    def __init__(self, launch: FakeLaunch, index: int) -> None:
        self.seconds, self.index, self.trouble, self.log = launch.seconds, index, launch.trouble, launch.log
        self.waited = launch.waited
        self.roofs, self.roof, self.told = launch.roofs, launch.roof, launch.told
        self.rounds: dict[str, int] = {}
        self.facts, self.device = launch.facts, launch.device
        self.closed = self.ended = False

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        return Greeting(**FACTS | self.facts)

    def fork(self, timeout_s: float) -> None:
        return None

    def rest(self, rests: bool) -> None:
        pass

    def ask(self, request: WorkerRequest[Any], timeout_s: float) -> Any:
        label = request.label if isinstance(request, OfCase) else None
        self.log.append((self.index, type(request), label))
        if self.ended:
            raise WorkerLost(FailureKind.CRASH, "the process ended (exit code 1)")
        problem = self.trouble.get((type(request), label))
        if callable(problem):
            problem = problem(self)
        if isinstance(problem, BaseException):
            raise problem
        if isinstance(problem, str):
            return Failed(kind=FailureKind(problem), message=f"{label} said no")
        if isinstance(problem, Failed):
            self.ended = problem.ends
        return self.answer(request) if problem is None else problem

    def answer(self, request: WorkerRequest[Any]) -> Any:
        """What a worker answers that is not in trouble."""
        match request:
            case messages.Open():
                return Opened(calls=request.calls or 3)
            case messages.TakeSample():
                number = self.rounds[request.label] = self.rounds.get(request.label, -2) + 1
                seconds = self.seconds(request.label, self.index, number)
                return Sampled(value=seconds, waited=self.waited, **self.told(request))
            case messages.MeasureMemory():
                return Values(values={"peak_bytes": 4096, "saved_bytes": None})
            case messages.MeasureSparsity():
                return Values(values={"zero_share": 0.5, "dead_share": 0.0})
            case messages.MeasureRouting():
                dense = "relu" in request.label or request.label == "swiglu"
                return Values(values={} if dense else {"expert_load_max": 1.25, "experts_hit": 8})
            case messages.DescribeDevice():
                return DeviceFacts(**self.device(request.device))
            case messages.ExploreRoofs():
                return ReachedRoofs(roofs=tuple(self.roofs(request.roofs) if self.roofs else ()))
            case messages.SampleRoof():
                return self.roof(request.roof, self.index)
            case messages.MeasureCeilings():
                return ReachedRoofs(roofs=tuple(ReachedRoof(roof=roof, seconds=0.001) for roof in request.roofs))
            case messages.ListBackends():
                return Backends(reasons={backend.value: "" for backend in Backend}, bfloat16={})
            case messages.MeasureTimer():
                return Failed(kind=FailureKind.UNSUPPORTED, message="a fake worker has no clock")
            case messages.Check():
                return Values(values={})
        if type(request).__name__ in ADDED:
            return jsonable.decode(request.answer, ADDED[type(request).__name__])
        return Done()

    def close(self) -> None:
        self.closed = True


class FakeLaunch:
    """Starts fake workers; remembers all of them and everything that they were asked."""

    def __init__(self, seconds: Seconds = lambda label, worker, number: 0.01, trouble: dict | None = None) -> None:
        self.seconds, self.trouble = seconds, trouble or {}
        self.waited: float | None = None  # share of every sample that its threads waited for a CPU
        self.roofs: Callable[[tuple[Roof, ...]], list[ReachedRoof]] | None = None  # (candidates) -> what is reached
        self.roof: Callable[[Roof, int], Sampled | Failed] = lambda roof, worker: Sampled(value=0.001, waited=0.0)
        self.told: Callable[[TakeSample], dict] = lambda request: {}  # fields of Sampled beside its seconds
        self.facts: dict[str, Any] = {}  # fields of its greeting beside FACTS
        self.device: Callable[[str], dict] = lambda name: {}  # fields of what it says of a device
        self.workers: list[FakeWorker] = []
        self.log: list[tuple[int, type, str | None]] = []  # worker, type of request, label

    def __call__(self, arm: object = None) -> FakeWorker:
        self.workers.append(FakeWorker(self, len(self.workers)))
        return self.workers[-1]


def with_control(plan: Plan) -> Plan:
    """A plan whose reference is measured twice, as `check` and `ab` do."""
    return replace(plan, cases=(*plan.cases, control_of(plan.cases, plan.reference)))


def in_the_second_worker(label: str, worker: int, number: int) -> float:
    """Seconds of a launch: Ctrl-C there."""
    if worker == 1 and number == 0:
        raise KeyboardInterrupt
    return 0.01


class KnownProber(Prober):
    """A prober that needs no process: it knows `mypkg.mlp` and what every module costs."""

    def within(self, arm: Arm) -> KnownProber:
        return KnownProber(1.0, arm) if arm != OWN else self

    def start(self) -> None:
        pass

    def refuse_without_torch(self) -> None:
        pass

    def origin(self, target: str) -> Path:
        file = {"mypkg.mlp": "mypkg/mlp.py", "mlp.py": "mlp.py"}.get(target.rpartition(":")[0])
        return Path(self._arm.source, file).resolve() if file else Path("/installed/elsewhere.py")

    def describe(self, target: str) -> None:
        return None

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        total = 3 * spec.d_model * spec.d_ff
        return Cost(
            params=total, params_active=total, params_formula=None, flops_forward=2 * total, flops_backward=4 * total,
            flops_elementwise=None, flops_elementwise_backward=None, weight_bytes=4 * total, counted=True,
        )  # fmt: skip

    def keep(self, case: Case, seed: int, folder: str) -> None:
        pass

    def hold(self, case: Case, seed: int, folder: str) -> Agreement:
        return Agreement(error=1e-7, tolerance=1e-4, exact_error=1e-16)


def committed_runs() -> list[Path]:
    """The runs under results/, but for those of a kind that a feature adds which is not there."""
    runs = []
    for path in sorted(ROOT.glob("results/**/*.json")):
        kind = json.loads(path.read_text(encoding="utf-8"))["plan"].get("kind") or Kind.COMPARE
        if kind in kind_names():
            runs.append(path)
    return runs


def two_sides(folder: Path) -> None:
    """A repository with the package and the revisions that the documents speak of."""
    (folder / "mypkg").mkdir()
    (folder / "mypkg" / "mlp.py").touch()
    for arguments in ("init -q", "add mypkg", "-c user.name=n -c user.email=e@x commit -qm one", "tag v1.0",
                      "update-ref refs/remotes/origin/main HEAD"):  # fmt: skip
        subprocess.run(["git", *arguments.split()], cwd=folder, check=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of tests/test_goldens.py alone."""
    parser.addoption("--regenerate", action="store_true", help="write tests/golden anew; then read its diff")


def pytest_configure(config: pytest.Config) -> None:
    """Folders for temporary files and for state of these tests alone: what else there is is none of theirs."""
    os.environ.setdefault(
        "PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()
    )  # paths of the tests stay as short as they were
    folder = tempfile.mkdtemp(prefix="ffnbench-tests-")
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
    settings.register_profile("the same each time", derandomize=True, deadline=None, database=None)
    settings.load_profile("the same each time")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread for torch in this process: on a shared machine the threads of small operations wait for each other."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def clock() -> list[Callable[[], float]]:
    """The clock of the fake machine, which a test may replace."""
    return [time.monotonic]


@pytest.fixture
def on_machine(monkeypatch: pytest.MonkeyPatch, clock: list):
    """Put workers and probers that are not real where every command finds them: the one seam."""

    def put(launch: object = Session, prober: object = Prober) -> None:
        fake = world.World(launch=launch, prober=prober, now=clock[0])

        def this_machine(wait: bool = False) -> world.World:
            return replace(fake, lock=partial(machine_lock, wait=wait))

        monkeypatch.setattr(world, "this_machine", this_machine)

    return put


class InThisProcess:
    """Answers what a worker's process would of modules and activations, by the same jobs."""

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        return Greeting(**FACTS)

    def ask(self, request: WorkerRequest[Any], timeout_s: float) -> Any:
        import torch  # which not every test needs

        from ffnbench.worker.answers import answer_to

        torch.set_num_threads(1)
        return answer_to(request)

    def close(self) -> None:
        pass


class ProberHere(Prober):
    """Looks at modules and activations in this process; what an arm has is known."""

    def within(self, arm: Arm) -> Prober:
        return KnownProber(1.0, arm) if arm != OWN else self

    def start(self) -> InThisProcess:
        return InThisProcess()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A command in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ffnbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


@pytest.fixture
def made_up_clock(clock: list) -> None:
    """A clock of what is measured: each look at it is 5 ms later, so that no budget is waited for."""
    ticks = itertools.count(step=0.005)
    clock[0] = lambda: next(ticks)


@pytest.fixture
def on_fakes(on_machine, in_process, made_up_clock):
    """A command in this process, workers faked; gives exit code, stdout in one line, stderr. Words are cut at spaces.

    Its clock is made up.
    """

    def run(*arguments: object, launch: object = None, prober: object = KnownProber) -> tuple[int, str, str]:
        on_machine(launch or FakeLaunch(), prober)
        code, out, err = in_process(*(word for one in arguments for word in str(one).split(" ")))
        return code, " ".join(out.split()), err

    return run


def prepare(request: Any, **how: Any) -> preparing.Prepared:
    """A request planned and priced, on a machine of which nothing is known."""
    return preparing.prepare(request, world.World(), **how)


def measure(prepared: preparing.Prepared, launch: object = Session, **how: Any) -> Report:
    """What was prepared, measured by these workers."""
    return measuring.measure(prepared, world.World(launch=launch), **how)


def run(plan: Plan, launch: object = Session, **how: Any) -> Run:
    """A plan measured by these workers; `now`, `describe` and `watch` are of the world."""
    outside = {name: how.pop(name) for name in ("now", "describe", "watch") if how.get(name)}
    how.pop("now", None)
    return runner.run(plan, world.World(launch=launch, **outside), **how)


def cells(frame: Frame) -> list[list[str]]:
    """The texts of a frame, row by row."""
    return [list(row) for row in zip(*(column.texts for column in frame.shown()), strict=True)]


def below(title: str, frame: Frame) -> list[str]:
    """The cells below a title."""
    return next(list(column.texts) for column in frame.shown() if title in (column.title, column.name))


def titles(frame: Frame) -> list[str]:
    """What its columns are called."""
    return [column.title for column in frame.columns]


def csv_of(report: Report) -> str:
    """The csv of a report, by the contract."""
    return csv_text(case_records(report))


@pytest.fixture
def fake_launch() -> type[FakeLaunch]:
    return FakeLaunch


def lost(kind: str, message: str = "gone") -> WorkerLost:
    return WorkerLost(FailureKind(kind), message)


def ffnbench(*arguments: str, columns: int = 80, cwd: Path | None = None, env: dict[str, str] | None = None):
    """The real command in its own process, output captured, so stdout is a pipe."""
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "ffnbench", *arguments],
        capture_output=True, text=True, timeout=300, cwd=cwd or ROOT, env=environment,
    )  # fmt: skip


def listen() -> None:
    """For a child process: an interruption is heard, even where the tests themselves run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
