"""The measuring itself, from the parent: workers one after another, rounds shuffled, nothing lost on the way.

Workers are started as many at a time as there are CPUs, so that importing torch takes half the wait; but only one
ever measures, and never while another starts. A case that fails is dropped and told; a worker that dies is
replaced without the case that killed it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ffnbench import jsonable
from ffnbench.bench.channel import Message
from ffnbench.bench.clock import RunClock
from ffnbench.bench.environment import describe, usable_cpus, usable_memory
from ffnbench.bench.machine_noise import Watch
from ffnbench.bench.memory_limits import check_fits
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.bench.worker_group import Launch, Worker, sides_of, start_for
from ffnbench.errors import FfnbenchError, Unfinished, termination_as_interruption
from ffnbench.metrics import COMPILE, LATENCY, METRICS, Metric
from ffnbench.plan import Note, Plan
from ffnbench.result import Environment, Failure, FailureKind, Progress, Run, Sample, Side, Timer
from ffnbench.stats.enough import Answered, limit_met, rounds_wanted, scatter, workers_wanted

RESTARTS = 3
Listener = Callable[[Progress], None]


def run(
    plan: Plan,
    *,
    on_progress: Listener = lambda _: None,
    launch: Launch = Session,
    now: Callable[[], float] = time.monotonic,
    describe: Callable[[dict[str, Any]], Environment] = describe,
    answered: Answered | None = None,
) -> Run:
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends with what was measured by then.

    A worker that is lost is replaced. Raises FfnbenchError where the plan asks for a device that is not there or for
    more memory than there is, Unfinished where nothing can be measured at all. `answered` is asked at the looks of a
    run with a precision whether the question is answered; by itself that is when the precision is reached. `launch`,
    `now` and `describe` are the world outside: simulations and tests bring their own.
    """
    runner = _Runner(plan, on_progress, launch, now, describe, answered)
    watch = Watch()
    start = now()
    interrupted, stopped = False, ""
    try:
        with termination_as_interruption():
            runner.measure(watch.note_clock)
    except KeyboardInterrupt:
        interrupted = True
    except Unfinished as problem:
        if not runner.samples:
            raise
        stopped = problem.message  # what was measured by then is an answer of its own
    finally:
        runner.close()
    noise = watch.notes(max(case.workload.threads for case in plan.cases))
    return Run(
        plan=runner.plan,
        samples=tuple(runner.samples),
        failures=tuple(runner.failures),
        warnings=(*runner.warnings, *(Note(label="", text=text) for text in noise)),
        environment=runner.environment,
        interrupted=interrupted,
        stopped=stopped,
        wall_s=now() - start,
        limit=runner.limit if plan.protocol.precision is not None else "",
        timer=runner.timer,
        sides=runner.sides,
    )


class _CaseFailed(Exception):
    """An answer that says that a case failed."""


@dataclass(slots=True)
class _Runner:
    plan: Plan
    on_progress: Listener
    launch: Launch
    now: Callable[[], float]
    describe: Callable[[dict[str, Any]], Environment]
    answered: Answered | None
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    environment: Environment | None = None
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()
    limit: str = ""
    _ready: list[Worker] = field(default_factory=list)
    _current: Worker | None = None
    _calls: dict[str, int] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _whole: int = 0
    _weighed: set[tuple[str, str]] = field(default_factory=set)
    _clock: RunClock = field(init=False)

    def __post_init__(self) -> None:
        workers = self.plan.protocol.workers if self._timed else 1  # exact metrics alone need one process
        self._clock = RunClock(self.now, workers, self.plan.protocol.rounds)

    @property
    def _timed(self) -> bool:
        return "latency" in self.plan.metrics

    def measure(self, after_worker: Callable[[], None] = lambda: None) -> None:
        """One worker after another, until a limit is met. Each has a number of its own, those that are lost too."""
        index = 0
        while self._alive() and not self.limit:
            self._current = self._take()
            try:
                self._one_worker(self._current, index)
                after_worker()
            except WorkerLost as lost:
                self._lose(index, lost)
            else:
                self._whole += 1
                self._clock.worker_done()
            finally:
                self._current.close()
            self.limit = self._limit()
            index += 1

    def close(self) -> None:
        """End every process."""
        for worker in (self._current, *self._ready):
            if worker is not None:
                worker.close()

    def _alive(self) -> list[str]:
        failed = {failure.case for failure in self.failures}
        return [case.label for case in self.plan.cases if case.label not in failed]

    def _limit(self) -> str:
        """Which limit is met; along the way, how much the rest of the run should be."""
        if not self._timed:
            return "workers" if self._whole else ""
        protocol, pace = self.plan.protocol, self._clock.pace()
        alive = self._alive()
        left = replace(self.plan, cases=tuple(case for case in self.plan.cases if case.label in alive))
        found = scatter(left, self.samples)
        self._clock.rounds = rounds_wanted(protocol, found, pace)
        self._clock.workers = max(self._whole + 1, workers_wanted(protocol, found, pace))
        return limit_met(left, self.samples, self._clock.elapsed_s, pace, self._clock.rounds, self.answered)

    def _take(self) -> Worker:
        """The next started worker; starts as many as will be needed, up to one process a CPU, when none is left."""
        if not self._ready:
            self._tell("starting workers")
            needed = max(1, self._clock.workers - self._whole)
            at_once = max(1, usable_cpus() // len(self.plan.arms))
            self._ready += [start_for(self.plan, self.launch) for _ in range(min(needed, at_once))]
            for place, worker in enumerate(self._ready):
                facts = self._started(place, worker)
            if self.environment is None:
                self.environment = self.describe(facts)
                self.sides = sides_of(facts.get("arms", []))
                self.plan = self.plan.with_device("cuda" if facts["gpus"] else "cpu")
                _check_devices(self.plan, facts)
                check_fits(self.plan, usable_memory())
        return self._ready.pop(0)

    def _started(self, place: int, worker: Worker) -> dict[str, Any]:
        """Wait for a worker's start; one that dies on the way is started again a few times."""
        for left in reversed(range(RESTARTS)):
            try:
                return worker.greeting()
            except WorkerLost as lost:
                worker.close()
                if not left:
                    raise Unfinished(f"a worker could not start: {lost}", "try `python -c 'import torch'`") from lost
                worker = self._ready[place] = start_for(self.plan, self.launch)
        raise AssertionError

    def _one_worker(self, worker: Worker, index: int) -> None:
        """Open every case, one round unrecorded, the recorded rounds, the checks, and in the first worker the bytes."""
        answer = self._ask(
            worker, "", {"do": "plan", "plan": jsonable.encode(self.plan), "memory_bytes": usable_memory()}
        )
        if self.timer is None and "timer" in answer:
            self.timer = jsonable.decode(Timer, answer["timer"])
        for label in self._alive():
            self._open(worker, label, index)
        if self._timed:
            self._rounds(worker, index)
            for label in self._alive():
                self._try(worker, label, {"do": "verify", "label": label})
        for job, metrics in self._exact_jobs().items():
            for label in [label for label in self._alive() if (label, job) not in self._weighed]:
                self._once(worker, label, job, metrics, index)
                self._weighed.add((label, job))

    def _exact_jobs(self) -> dict[str, list[Metric]]:
        """What a worker is asked once for each case, with the metrics that the answer holds."""
        jobs: dict[str, list[Metric]] = {}
        for metric in METRICS:
            if metric.exact and metric.job and metric.group in self.plan.metrics:
                jobs.setdefault(metric.job, []).append(metric)
        return jobs

    def _open(self, worker: Worker, label: str, index: int) -> None:
        """Build and warm up a case in this worker; what compiling it took is a sample of its own."""
        doing = "compiling" if self.plan.case(label).workload.compiled else "warming up"
        self._tell(f"{self._which()}  {doing} {label}")
        opened = self._try(worker, label, {"do": "open", "label": label, "calls": self._calls.get(label)})
        if not opened:
            return
        self._calls[label] = opened["calls"]
        if COMPILE in opened:
            self._keep(label, COMPILE, index, opened[COMPILE])
            cut = Note(label=label, text=f"compiled as {opened['graphs']} graphs, with Python between them")
            if opened["graphs"] > 1 and cut not in self.warnings:
                self.warnings.append(cut)

    def _keep(self, label: str, metric: str, index: int, value: float) -> None:
        """A sample of which a worker makes one."""
        self.samples.append(Sample(case=label, metric=metric, worker=index, round=0, order=0, value=value, calls=1))

    def _rounds(self, worker: Worker, index: int) -> None:
        """One round of practice, then as many as are wanted; the first worker finds out how many that is."""
        self._round(worker, index, -1)
        self._clock.rounds_begin()
        number = 0
        while number < self._clock.rounds:
            self._round(worker, index, number)
            number += 1
            if not self._whole and number == self.plan.protocol.rounds:
                found = scatter(self.plan, self.samples)
                self._clock.rounds = rounds_wanted(self.plan.protocol, found, self._clock.pace())

    def _round(self, worker: Worker, index: int, number: int) -> None:
        """One sample of every case, in an order that depends on nothing but seed, worker and round. -1 is practice."""
        order = self._alive()
        random.Random(f"{self.plan.protocol.seed}/{index}/{number}").shuffle(order)
        if self.plan.protocol.reversed:
            order.reverse()
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
        self._tell(f"{self._which()}  round {number + 1}/{self._clock.rounds}", number + 1)

    def _which(self) -> str:
        return f"worker {self._whole + 1}/{max(self._clock.workers, self._whole + 1)}"

    def _once(self, worker: Worker, label: str, job: str, metrics: list[Metric], index: int) -> None:
        """Exact metrics need one process only; where they can't be had, the row keeps its latency."""
        try:
            answer = self._ask(worker, label, {"do": job, "label": label})
        except _CaseFailed as problem:
            text = f"{metrics[0].group} could not be measured: {problem.args[0]}"
            self.warnings.append(Note(label=label, text=text))
            return
        for metric in metrics:
            if (value := answer[metric.name]) is not None:
                self._keep(label, metric.name, index, value)

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
        """What a lost worker had measured stays, and counts if it made its fewest rounds (verdict.whole_rounds).

        The case that it was busy with is dropped at its second loss, or where it hung before any worker was whole:
        a single death may be the worker's own, and a hang would cost the whole timeout again.
        """
        label = lost.label if isinstance(lost, _Lost) else ""
        self._losses[label] += 1
        hung = lost.kind == FailureKind.TIMEOUT.value and not self._whole
        if label and (hung or self._losses[label] > 1):
            self._fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(f"workers are lost again and again: {lost}", "`ffnbench env` tells what else runs here")
        else:
            self.warnings.append(Note(label=label, text=f"worker {index + 1} was lost: {lost}"))

    def _fail(self, label: str, kind: str, message: str) -> None:
        self.failures.append(Failure(case=label, kind=FailureKind(kind), message=message))

    def _tell(self, text: str, round_: int = 0) -> None:
        self.on_progress(self._clock.progress(self._whole, round_, text))


class _Lost(WorkerLost):
    """A worker lost while it was busy with a case."""

    def __init__(self, label: str, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.label = label


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
