"""The measuring itself, from the parent: workers one after another, rounds shuffled, nothing lost on the way.

Workers are started as many at a time as there are CPUs, so that importing torch takes half the wait; but only one
ever measures, and never while another starts. A case that fails is dropped and told; a worker that dies is
replaced without the case that killed it.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ffnbench import jsonable
from ffnbench.bench.environment import available_memory, describe, usable_cpus
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.bench.wire import Message
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.plan import LATENCY, METRIC_GROUPS, Note, Plan
from ffnbench.result import Environment, Failure, FailureKind, Progress, Run, Sample

RESTARTS = 3
ONCE = {"memory": "weigh", "sparsity": "look"}  # which job gives the metrics of a group
Listener = Callable[[Progress], None]


class Worker(Protocol):
    """What the runner needs of a worker; the tests' fake one has no process and no torch."""

    def facts(self) -> dict[str, Any]: ...
    def ask(self, request: Message, timeout_s: float) -> Message: ...
    def close(self) -> None: ...


Launch = Callable[[], Worker]


def run(plan: Plan, *, on_progress: Listener = lambda _: None, launch: Launch = Session) -> Run:
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends with what was measured by then.

    A worker that is lost is replaced. Raises FfnbenchError where the plan asks for a device that is not there,
    Unfinished where nothing can be measured at all.
    """
    runner = _Runner(plan, on_progress, launch)
    start = time.monotonic()
    interrupted, stopped = False, ""
    try:
        with _terminate_as_interrupt():
            runner.measure()
    except KeyboardInterrupt:
        interrupted = True
    except Unfinished as problem:
        if not runner.samples:
            raise
        stopped = problem.message  # what was measured by then is an answer of its own
    finally:
        runner.close()
    return Run(
        plan=runner.plan,
        samples=tuple(runner.samples),
        failures=tuple(runner.failures),
        warnings=tuple(runner.warnings),
        environment=runner.environment,
        interrupted=interrupted,
        stopped=stopped,
        wall_s=time.monotonic() - start,
    )


@contextmanager
def _terminate_as_interrupt() -> Any:
    """A polite kill saves what was measured, as Ctrl-C does. Signals belong to the main thread; elsewhere, nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _CaseFailed(Exception):
    """An answer that says that a case failed."""


@dataclass(slots=True)
class _Runner:
    plan: Plan
    on_progress: Listener
    launch: Launch
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    environment: Environment | None = None
    _ready: list[Worker] = field(default_factory=list)
    _current: Worker | None = None
    _calls: dict[str, int] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _clock: _Clock = field(init=False)

    def __post_init__(self) -> None:
        self._clock = _Clock(self._workers(), self.plan.protocol.rounds)

    def measure(self) -> None:
        """All workers, one after another."""
        for index in range(self._workers()):
            while self._alive():
                self._current = self._take(index)
                try:
                    self._one_worker(self._current, index)
                    break
                except WorkerLost as lost:
                    self._lose(index, lost)
                finally:
                    self._current.close()

    def close(self) -> None:
        """End every process."""
        for worker in (self._current, *self._ready):
            if worker is not None:
                worker.close()

    def _workers(self) -> int:
        """Exact metrics alone need one process."""
        return self.plan.protocol.workers if "latency" in self.plan.metrics else 1

    def _alive(self) -> list[str]:
        failed = {failure.case for failure in self.failures}
        return [case.label for case in self.plan.cases if case.label not in failed]

    def _take(self, index: int) -> Worker:
        """The next started worker; starts a batch when none is left."""
        if not self._ready:
            self._tell("starting workers", index)
            self._ready += [self.launch() for _ in range(min(self._workers() - index, usable_cpus()))]
            for place, worker in enumerate(self._ready):
                facts = self._started(place, worker)
            if self.environment is None:
                self.environment = describe(facts)
                self.plan = self.plan.with_device("cuda" if facts["gpus"] else "cpu")
                _check_devices(self.plan, facts)
        return self._ready.pop(0)

    def _started(self, place: int, worker: Worker) -> dict[str, Any]:
        """Wait for a worker's start; one that dies on the way is started again a few times."""
        for left in reversed(range(RESTARTS)):
            try:
                return worker.facts()
            except WorkerLost as lost:
                worker.close()
                if not left:
                    raise Unfinished(f"a worker could not start: {lost}", "try `python -c 'import torch'`") from lost
                worker = self._ready[place] = self.launch()
        raise AssertionError

    def _one_worker(self, worker: Worker, index: int) -> None:
        """Open every case, one round unrecorded, the recorded rounds, the checks, and in the first worker the bytes."""
        protocol = self.plan.protocol
        self._ask(worker, "", {"do": "plan", "plan": jsonable.encode(self.plan), "memory_bytes": available_memory()})
        for label in self._alive():
            self._tell(f"worker {index + 1}/{self._workers()}  warming up {label}", index)
            if answer := self._try(worker, label, {"do": "open", "label": label, "calls": self._calls.get(label)}):
                self._calls[label] = answer["calls"]
        if "latency" in self.plan.metrics:
            for number in range(-1, protocol.rounds):
                self._round(worker, index, number)
            for label in self._alive():
                self._try(worker, label, {"do": "verify", "label": label})
        if index == 0:
            for group in [g for g in ONCE if g in self.plan.metrics]:
                for label in self._alive():
                    self._once(worker, label, group)
        self._clock.worker_done(index)

    def _round(self, worker: Worker, index: int, number: int) -> None:
        """One sample of every case, in an order that depends on nothing but seed, worker and round. -1 is practice."""
        protocol = self.plan.protocol
        order = self._alive()
        random.Random(f"{protocol.seed}/{index}/{number}").shuffle(order)
        for place, label in enumerate(order):
            answer = self._try(worker, label, {"do": "sample", "label": label, "calls": self._calls[label]})
            if answer and number >= 0:
                self.samples.append(
                    Sample(
                        case=label,
                        metric=LATENCY,
                        worker=index,
                        round=number,
                        order=place,
                        value=answer["value"],
                        calls=self._calls[label],
                    )
                )
        if number >= 0:
            self._clock.round_done()
        self._tell(
            f"worker {index + 1}/{protocol.workers}  round {number + 1}/{protocol.rounds}", index, max(0, number + 1)
        )

    def _once(self, worker: Worker, label: str, group: str) -> None:
        """Exact metrics need one process only; where they can't be had, the row keeps its latency."""
        try:
            answer = self._ask(worker, label, {"do": ONCE[group], "label": label})
        except _CaseFailed as problem:
            self.warnings.append(Note(label=label, text=f"{group} could not be measured: {problem.args[0]}"))
            return
        for metric in METRIC_GROUPS[group]:
            if (value := answer[metric]) is not None:
                self.samples.append(Sample(case=label, metric=metric, worker=0, round=0, order=0, value=value, calls=1))

    def _try(self, worker: Worker, label: str, request: Message) -> Message | None:
        """Ask; a failed case is noted and answers None."""
        try:
            return self._ask(worker, label, request)
        except _CaseFailed as problem:
            self._fail(label, problem.args[1], str(problem.args[0]))
            return None

    def _ask(self, worker: Worker, label: str, request: Message) -> Message:
        try:
            answer = worker.ask(request, self.plan.protocol.timeout_s)
        except WorkerLost as lost:
            raise _Lost(label, lost.kind, str(lost)) from lost
        if "failure" in answer:
            raise _CaseFailed(answer["message"], answer["failure"])
        return answer

    def _lose(self, index: int, lost: WorkerLost) -> None:
        """Drop what a lost worker had measured: its replacement starts afresh.

        The case that it was busy with is dropped as well, unless that case ran through in an earlier worker and
        this is its first loss: then the worker, not the case, is to blame.
        """
        label = lost.label if isinstance(lost, _Lost) else ""
        self.samples = [sample for sample in self.samples if sample.worker != index]
        self._losses[label] += 1
        if label and (index == 0 or self._losses[label] > 1):
            self._fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(f"workers are lost again and again: {lost}", "`ffnbench env` tells what else runs here")
        else:
            self.warnings.append(Note(label=label, text=f"worker {index + 1} was lost and replaced: {lost}"))

    def _fail(self, label: str, kind: str, message: str) -> None:
        self.failures.append(Failure(case=label, kind=FailureKind(kind), message=message))

    def _tell(self, text: str, worker: int, round_: int = 0) -> None:
        self.on_progress(replace(self._clock.progress(worker, round_), text=text))


class _Lost(WorkerLost):
    """A worker lost while it was busy with a case."""

    def __init__(self, label: str, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.label = label


class _Clock:
    """How far the run is and how long it will take, from the rounds and workers done so far."""

    def __init__(self, workers: int, rounds: int) -> None:
        self.workers, self.rounds = workers, rounds
        self.start = self.worker_start = self.last = time.monotonic()
        self.round_s: list[float] = []
        self.worker_s: list[float] = []

    def round_done(self) -> None:
        now = time.monotonic()
        self.round_s.append(now - self.last)
        self.last = now

    def worker_done(self, index: int) -> None:
        now = time.monotonic()
        self.worker_s.append(now - self.worker_start)
        self.worker_start = self.last = now

    def progress(self, worker: int, round_: int) -> Progress:
        """Share done by rounds; time left by the mean worker, or by the mean round within the first one."""
        self.last = time.monotonic()
        share = (worker + round_ / self.rounds) / self.workers
        eta = None
        if self.worker_s:
            mean = sum(self.worker_s) / len(self.worker_s)
            eta = max(0.0, mean * (self.workers - worker) - (self.last - self.worker_start))
        elif len(self.round_s) >= 3:
            spent = self.last - self.start
            mean = sum(self.round_s) / len(self.round_s)
            eta = mean * (self.rounds - round_) + (self.workers - 1) * (spent + mean * (self.rounds - round_))
        return Progress(done=share, text="", eta_s=eta)


def _check_devices(plan: Plan, facts: dict[str, Any]) -> None:
    """Fail before anything is built where a device is not there."""
    for case in plan.cases:
        kind, _, index = case.workload.device.partition(":")
        if kind == "cuda" and int(index or 0) >= facts["gpus"]:
            have = f"has {facts['gpus']} CUDA device(s)" if facts["gpus"] else "sees no CUDA device"
            raise FfnbenchError(
                f"device {case.workload.device!r} was asked for, but torch {facts['version']} {have}",
                "use --device cpu, or install a CUDA build of torch on a machine with a GPU",
            )
