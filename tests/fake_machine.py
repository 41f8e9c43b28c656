"""A machine without processes, torch and clocks, on which every command runs in
milliseconds.

Two things stand in for the real machine: `FakeLaunch` starts workers that answer from a
script, and `KnownProber` knows what code of the user's is. `tests/conftest.py:
on_machine` puts them where every command finds them; `run` and `measure_plan`
take them directly.

How to script a `FakeLaunch`:

- `FakeLaunch(seconds)`: a function of (label, worker, round) that gives the seconds of
  each sample. Worker and round count from 0; the round of the warm-up is -1.
  `random.Random(seed)` inside makes a machine that scatters.
- `FakeLaunch(trouble={("open", "gelu"): "oom"})`: what goes wrong, by the name of the
  job and the label of its case (None for a job that is about no case). The
  value is the name of a failure's kind, a `Failed`, an exception that `ask` raises
  (`lost("crash")`: the process is gone), another answer, or a function of the worker
  that gives one of these, or None where nothing is wrong this time.
- Its attributes, before the run: `waited`, `sample_fields`, `facts`, `device`, `rate`.
- After the run, `log` has every job, and `workers` every worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffnbench.api import measuring, preparing
from ffnbench.api.call import Call, calling
from ffnbench.app import commands
from ffnbench.app.command import command_line, flags_of, values_of
from ffnbench.common import jsonable
from ffnbench.device.environment import about_machine
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import THIS_INTERPRETER, Arm, Case, Plan, Probe, Workload
from ffnbench.record.messages import (
    ANSWERS,
    OF_CASE,
    DeviceFacts,
    Failed,
    Greeting,
    Opened,
    Rated,
    Sampled,
)
from ffnbench.record.result import Agreement, FailureKind, Report, Run
from ffnbench.run import runner, world
from ffnbench.run.prober import Prober
from ffnbench.run.worker import Worker, WorkerLost

FACTS = {
    "torch": "2.0-fake",
    "torch_threads": 2,
    "blas": "fake",
    **about_machine(),
}

Seconds = Callable[[str, int, int], float]  # (label, worker, round) -> seconds
Trouble = dict[tuple[str, str | None], Any]


class FakeWorker:
    """Answers like a process that can't be forked, from the script of its launch."""

    def __init__(self, launch: FakeLaunch, index: int) -> None:
        self.launch, self.index = launch, index
        self.rounds: dict[str, int] = {}
        self.closed = self.ended = False

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        return Greeting(**FACTS | self.launch.facts)

    def fork(self, timeout_s: float) -> bool:
        return False

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        label = arguments.get("label")
        self.launch.log.append((self.index, job, label))
        if self.ended:
            raise WorkerLost(FailureKind.CRASH, "the process ended (exit code 1)")
        problem = self.launch.trouble.get((job, label))
        if callable(problem):
            problem = problem(self)
        if isinstance(problem, BaseException):
            raise problem
        if isinstance(problem, str):
            return Failed(kind=FailureKind(problem), message=f"{label} said no")
        if isinstance(problem, Failed):
            self.ended = problem.ends_process
        return self.answer(job, **arguments) if problem is None else problem

    def answer(self, job: str, label: str = "", **arguments: Any) -> Any:
        """What a worker answers that is not in trouble."""
        launch = self.launch
        match job:
            case "open":
                return Opened(calls=arguments["calls"] or 3)
            case "sample":
                number = self.rounds[label] = self.rounds.get(label, -2) + 1
                seconds = launch.seconds(label, self.index, number)
                fields = launch.sample_fields(label)
                return Sampled(value=seconds, waited=launch.waited, **fields)
            case "check":
                return {}
            case "memory":
                return {"peak_bytes": 4096, "saved_bytes": None}
            case "sparsity":
                return {"zero_share": 0.5, "dead_share": 0.0}
            case "route":
                dense = "relu" in label or label == "swiglu"
                return {} if dense else {"expert_load_max": 1.25, "experts_hit": 8}
            case "device":
                return DeviceFacts(**launch.device(arguments["name"]))
            case "rate":
                products_s, copy_s = launch.rate(label, self.index)
                return Rated(products_s=products_s, copy_s=copy_s, waited=launch.waited)
            case "timer":
                return Failed(
                    kind=FailureKind.UNSUPPORTED, message="a fake worker has no clock"
                )
        return None

    def close(self) -> None:
        self.closed = True


class FakeLaunch:
    """Starts fake workers; remembers all of them and everything that they were
    asked.
    """

    def __init__(
        self,
        seconds: Seconds = lambda label, worker, number: 0.01,
        trouble: Trouble | None = None,
    ) -> None:
        self.seconds, self.trouble = seconds, trouble or {}
        self.waited: float | None = (
            None  # share of every sample that its threads waited for a CPU
        )
        # fields of Sampled by label, beside seconds and waits
        self.sample_fields: Callable[[str], dict] = lambda label: {}
        self.facts: dict[str, Any] = {}  # fields of its greeting beside FACTS
        self.device: Callable[[str], dict] = (
            lambda name: {}
        )  # fields of what it says of a device
        # (label, worker) -> seconds of bare products and of a copy
        self.rate: Callable[[str, int], tuple[float, float]] = lambda label, worker: (
            0.005,
            0.001,
        )
        self.workers: list[FakeWorker] = []
        self.log: list[tuple[int, str, str | None]] = []  # worker, job, label

    @property
    def trouble(self) -> Trouble:
        return self._trouble

    @trouble.setter
    def trouble(self, trouble: Trouble) -> None:
        """Refuse what no worker is ever asked: it would go unnoticed."""
        for job, label in trouble:
            if job not in ANSWERS or (job in OF_CASE) != isinstance(label, str):
                raise TypeError(f"no worker is asked for {job!r} of {label!r}")
        self._trouble = trouble

    def __call__(self, arm: object = None) -> FakeWorker:
        self.workers.append(FakeWorker(self, len(self.workers)))
        return self.workers[-1]


def lost(kind: str, message: str = "gone") -> WorkerLost:
    """What is raised where a worker does not answer any more."""
    return WorkerLost(FailureKind(kind), message)


def interrupted_in_the_second_worker(label: str, worker: int, number: int) -> float:
    """Seconds of a launch: Ctrl-C there."""
    if worker == 1 and number == 0:
        raise KeyboardInterrupt
    return 0.01


class KnownProber(Prober):
    """A prober that needs no process: it knows `mypkg.mlp` and what every module
    costs.
    """

    def within(self, arm: Arm) -> KnownProber:
        return KnownProber(1.0, arm) if arm != THIS_INTERPRETER else self

    def start(self) -> None:
        pass

    def refuse_without_torch(self) -> None:
        pass

    def origin(self, target: str) -> Path:
        name = target.rpartition(":")[0]
        files = {"mypkg.mlp": "mypkg/mlp.py"}
        file = name if name.endswith(".py") else files.get(name)
        return (
            Path(self._arm.source, file).resolve()
            if file
            else Path("/installed/elsewhere.py")
        )

    def describe(self, target: str) -> None:
        return None

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        total = 3 * spec.d_model * spec.d_ff
        return Cost(
            params=total,
            params_active=total,
            params_formula=None,
            flops_forward=2 * total,
            flops_backward=4 * total,
            flops_elementwise=None,
            weight_bytes=4 * total,
            counted=True,
        )

    def save_output(self, case: Case, seed: int, folder: str) -> None:
        pass

    def compare_output(self, case: Case, seed: int, folder: str) -> Agreement:
        return Agreement(error=1e-7, tolerance=1e-4, exact_error=1e-16)


class InThisProcess:
    """Answers what a worker's process would of modules and activations, by the same
    jobs.
    """

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        return Greeting(**FACTS)

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        import torch  # which not every test needs

        from ffnbench.worker.jobs import answer_to

        torch.set_num_threads(1)
        return answer_to(job, jsonable.encode(arguments))

    def close(self) -> None:
        pass


class ProberHere(Prober):
    """Looks at modules and activations in this process; what an arm has is known."""

    def within(self, arm: Arm) -> Prober:
        return KnownProber(1.0, arm) if arm != THIS_INTERPRETER else self

    def start(self) -> InThisProcess:
        return InThisProcess()


class Planning(Call):
    """A call that ends with its plan, before anything is counted or measured."""

    asks: Probe

    def probe(self, *how: Any, **more: Any) -> Any:
        return self.asks

    def measure(self, plan: Plan, probe: Any, **how: Any) -> Plan:
        return self.told(plan)

    def count(self, plan: Plan, probe: Any, *machines: Any, **how: Any) -> Plan:
        return self.told(plan)


class Preparing(Planning):
    """A call that ends with the costs of its plan."""

    def measure(self, plan: Plan, probe: Any, **how: Any) -> preparing.Prepared:
        return preparing.with_costs(self.told(plan), probe, **how)

    def count(self, plan: Plan, probe: Any, *machines: Any, **how: Any) -> Any:
        return self.measure(plan, probe, lenient=how.get("lenient", True))


def asked(call: Call, command: Any, flags: dict[str, Any]) -> Any:
    """What a call gives of a command that Python asks."""
    of_function = flags_of(command)
    line = command_line(command.__name__, of_function, flags)
    call.command = line
    with calling(call):
        return command(**values_of(of_function, flags))


def planned(
    variants: Any = None,
    *,
    probe: Probe | None = None,
    command: Any = commands.compare,
    **flags: Any,
) -> Plan:
    """The plan of a command, on one thread unless the flags say otherwise."""
    call = Planning(command="")
    call.asks = probe or Probe()
    return asked(call, command, _with_variants(command, variants, flags))


def prepare(
    variants: Any = None,
    *,
    prober: Any = Prober,
    command: Any = commands.compare,
    **flags: Any,
) -> preparing.Prepared:
    """A command planned and its costs counted, on a machine of which nothing is
    known.
    """
    call = Preparing(command="")
    with prober(300.0) as call.asks:
        return asked(call, command, _with_variants(command, variants, flags))


def _with_variants(command: Any, variants: Any, flags: dict[str, Any]) -> dict:
    if command is not commands.cost:
        flags.setdefault("threads", 1)
    if variants is not None:
        first = next(iter(inspect.signature(command).parameters))
        flags[first] = variants
    return flags


def measure(
    prepared: preparing.Prepared, launch: object = Worker, **how: Any
) -> Report:
    """What was prepared, measured by these workers."""
    return measuring.measure_plan(prepared, world.World(launch=launch), **how)


def run(plan: Plan, launch: object = Worker, **how: Any) -> Run:
    """A plan measured by these workers; `now` and `describe` are of the world."""
    outside = {}
    for name in ("now", "describe"):
        value = how.pop(name, None)
        if value:
            outside[name] = value
    return runner.run_workers(plan, world.World(launch=launch, **outside), **how)
