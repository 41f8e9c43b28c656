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

from ffnbench import cli
from ffnbench.api import measuring, preparing
from ffnbench.device.environment import about_machine
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import OWN, Arm, Backend, Case, Plan, Workload
from ffnbench.report.columns import case_records
from ffnbench.report.frame import Frame
from ffnbench.report.writers import csv_text
from ffnbench.result import Agreement, Report, Run
from ffnbench.run import runner, world
from ffnbench.run.neighbours import machine_lock
from ffnbench.run.prober import Prober
from ffnbench.run.session import Session, WorkerLost

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # `exam`, and the scripts beside it
FACTS = {
    "version": "2.0-fake",
    "threads": 2,
    "blas": "fake",
    "gpus": 0,
    "gpu": None,
    "gpu_memory_bytes": None,
    "cuda": None,
    **about_machine(),
}
ADDED = {  # what a worker answers that is asked for a feature's verb, in answers.json of the folder of its tests
    verb: answer
    for path in sorted(ROOT.glob("tests/extras/*/answers.json"))
    for verb, answer in json.loads(path.read_text(encoding="utf-8")).items()
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

    def greeting(self, timeout_s: float = 0.0) -> dict:
        return FACTS | self.facts

    def fork(self, timeout_s: float) -> None:
        return None

    def rest(self, rests: bool) -> None:
        pass

    def ask(self, request: dict, timeout_s: float) -> dict:
        self.log.append((self.index, request["do"], request.get("label")))
        problem = self.trouble.get((request["do"], request.get("label")))
        if self.ended:
            raise WorkerLost("crash", "the process ended (exit code 1)")
        if callable(problem):
            problem = problem(self)
        if isinstance(problem, BaseException):
            raise problem
        if isinstance(problem, dict):  # an answer of its own
            self.ended = problem.get("ends", False)
            return problem
        if problem is not None:
            return {"failure": problem, "message": f"{request['label']} said no"}
        if request["do"] == "open":
            return {"calls": request["calls"] or 3}
        if request["do"] == "sample":
            label = request["label"]
            number = self.rounds[label] = self.rounds.get(label, -2) + 1
            return {"value": self.seconds(label, self.index, number), "waited": self.waited, **self.told(request)}
        if request["do"] == "device":
            return self.device(request["device"])
        if request["do"] == "explore" and self.roofs is not None:
            return {"found": self.roofs(request["roofs"])}
        if request["do"] == "backends":
            return {"backends": {backend.value: "" for backend in Backend}}
        if request["do"] == "ceilings":
            return {"found": [{"roof": roof, "seconds": 0.001, "disturbed": False} for roof in request["roofs"]]}
        if request["do"] == "roof":
            return self.roof(request["roof"], self.index)
        if request["do"] in ADDED:
            return dict(ADDED[request["do"]])
        if request["do"] == "memory":
            return {"peak_bytes": 4096, "saved_bytes": None}
        if request["do"] == "sparsity":
            return {"zero_share": 0.5, "dead_share": 0.0}
        if request["do"] == "route":
            dense = "relu" in request["label"] or request["label"] == "swiglu"
            return {"expert_load_max": None if dense else 1.25, "experts_hit": None if dense else 8}
        return {}

    def close(self) -> None:
        self.closed = True


class FakeLaunch:
    """Starts fake workers; remembers all of them and everything that they were asked."""

    def __init__(self, seconds: Seconds = lambda label, worker, number: 0.01, trouble: dict | None = None) -> None:
        self.seconds, self.trouble = seconds, trouble or {}
        self.waited: float | None = None  # share of every sample that its threads waited for a CPU
        self.roofs: Callable[[list], list] | None = None  # (candidates) -> what exploring finds
        self.roof: Callable[[dict, int], dict] = lambda roof, worker: {"value": 0.001, "waited": 0.0}
        self.told: Callable[[dict], dict] = lambda request: {}  # what a sample tells beside its seconds
        self.facts: dict[str, Any] = {}  # what its greeting says beside FACTS
        self.device: Callable[[str], dict] = lambda name: {}  # what it says of a device
        self.workers: list[FakeWorker] = []
        self.log: list[tuple[int, str, str | None]] = []

    def __call__(self, arm: object = None) -> FakeWorker:
        self.workers.append(FakeWorker(self, len(self.workers)))
        return self.workers[-1]


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

    def torch_or_error(self) -> dict:
        return {}

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

    def greeting(self, timeout_s: float = 0.0) -> dict:
        return FACTS

    def ask(self, request: dict, timeout_s: float) -> dict:
        import torch  # which not every test needs

        from ffnbench.worker.loop import answer_to
        from ffnbench.worker.probe_jobs import job_of

        torch.set_num_threads(1)
        return answer_to(job_of(request["do"]), request)

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
    return WorkerLost(kind, message)


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
