"""The measuring itself, from the parent: one worker after another, rounds shuffled, nothing lost on the way.

A worker is a process with a block of rounds; where it comes from is worker_pool.py's. Only one ever measures. A case
that fails is dropped and told; a worker that dies is replaced without the case that killed it.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ffnbench.backends import BACKENDS
from ffnbench.common.errors import Unfinished, termination_as_interruption
from ffnbench.messages import (
    A,
    Begin,
    Check,
    DeviceFacts,
    Failed,
    Greeting,
    MeasureMemory,
    MeasureRouting,
    MeasureSparsity,
    MeasureTimer,
    OfCase,
    Open,
    TakeSample,
    Values,
    WorkerRequest,
)
from ffnbench.metrics import LATENCY, METRICS, Metric
from ffnbench.plan import Plan
from ffnbench.result import CaseCost, Environment, FailureKind, Progress, Run, Sample, Side, Timer
from ffnbench.run.ceiling_samples import RoofSamples
from ffnbench.run.neighbours import Watch
from ffnbench.run.record import RunRecord
from ffnbench.run.resources import Devices
from ffnbench.run.schedule import Schedule, Tally
from ffnbench.run.session import WorkerLost
from ffnbench.run.worker_pool import RESTARTS, Worker, WorkerPool
from ffnbench.run.world import World
from ffnbench.stats.rounds import RoundTable, is_clean
from ffnbench.stats.stopping import StopRule, stop_rule

ATTEMPTS = 4  # of a sample in one round, while others leave the CPUs alone now and then
OPENED = [metric for metric in METRICS if metric.job == "open"]  # what opening a case tells
CHECKED = [metric for metric in METRICS if metric.job == "check"]  # what checking it tells
# what a worker is asked for exact metrics, by their job
EXACT_JOBS: dict[str, type[OfCase[Values]]] = {
    "memory": MeasureMemory,
    "sparsity": MeasureSparsity,
    "route": MeasureRouting,
}


def run(
    plan: Plan,
    world: World,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    journal: Callable[[object], None] = lambda _: None,
    stop: StopRule | None = None,
    weights: str = "",
    costs: tuple[CaseCost, ...] = (),
    pool: WorkerPool | None = None,
    spent_s: float = 0.0,
    bound_s: float = math.inf,
) -> Run:
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends with what was measured by then.

    Raises FfnbenchError where the plan asks for a device that is not there or for more memory than there is, Unfinished
    where nothing can be measured at all. `progress` and `journal` are told of everything as it comes. `stop` says when
    the run ends; by itself that is what the protocol states. `weights` is a folder with the weights that every case
    takes over. Without `costs` nothing is known of ceilings. `pool` is where workers come from, for several runs that
    share it and end it. `spent_s` of the budget are over. The protocol's fewest workers are made whatever they take,
    but nothing goes beyond `bound_s` of it.
    """
    source, record = pool or WorkerPool(plan, world.launch, world.now), RunRecord(plan, journal)
    schedule = Schedule(world.now, plan.protocol, spent_s=spent_s, bound_s=bound_s)
    source.plan, source.wait_s = plan, schedule.wait_s
    runner = _Runner(
        record,
        source,
        schedule,
        RoofSamples(record, costs, world.now),
        progress=progress,
        describe=world.describe,
        stop=stop or stop_rule(plan.protocol),
        weights=weights,
        salts=random.Random(plan.protocol.seed),
    )
    watch, start = world.watch(), world.now()
    interrupted, stopped = False, ""
    try:
        with termination_as_interruption():
            runner.measure()
    except KeyboardInterrupt:
        interrupted = True
    except Unfinished as problem:
        if schedule.over:
            runner.limit = "budget"
        elif not record.samples:
            raise
        else:
            stopped = problem.message  # what was measured by then is an answer of its own
    finally:
        if pool is None:
            source.close()
    return runner.run(watch, interrupted=interrupted, stopped=stopped, wall_s=world.now() - start)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run is: the worker's number, its starter's, and the round; -1 is practice."""

    worker: int
    starter: int
    round: int = -1

    def at(self, order: int) -> dict[str, int]:
        """As a sample has it."""
        return {"worker": self.worker, "starter": self.starter, "round": self.round, "order": order}


class _CaseFailed(Exception):
    """An answer that says that a case failed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class _Lost(WorkerLost):
    """A worker lost while it was busy with a case. `known`: it has said itself that the case has broken its device."""

    def __init__(self, label: str, kind: FailureKind, message: str, *, known: bool = False) -> None:
        super().__init__(kind, message)
        self.label, self.known = label, known


@dataclass(slots=True)
class _Known:
    """What one worker has found out of a case and the next does not find out again."""

    calls: int | None = None
    seconds: list[float] = field(default_factory=list)  # of every sample

    @property
    def lasts_s(self) -> float:
        """Seconds that a sample takes at least, as far as that is known."""
        return (self.calls or 0) * min(self.seconds, default=0.0)


@dataclass(slots=True)
class _Runner:
    """The loop, over four things: what was found, where workers come from, when they end, and ceilings."""

    record: RunRecord
    source: WorkerPool
    schedule: Schedule
    roofs: RoofSamples
    progress: Callable[[Progress], None]
    describe: Callable[[Greeting, DeviceFacts | None], Environment]
    stop: StopRule
    weights: str
    salts: random.Random  # of the inputs of samples
    environment: Environment | None = None
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()
    limit: str = ""
    devices: Devices = field(default_factory=Devices)
    _known: dict[str, _Known] = field(default_factory=lambda: defaultdict(_Known))
    _measured: set[tuple[str, str]] = field(default_factory=set)  # of a case: an exact metric, or the job for some
    _losses: Counter[str] = field(default_factory=Counter)
    _explored: bool = False
    _quiet: bool = True  # whether a sample of the last round was clean

    @property
    def plan(self) -> Plan:
        """The plan, its device known."""
        return self.record.plan

    @property
    def _timeout_s(self) -> float:
        return self.schedule.wait_s(self.plan.protocol.timeout_s)

    @property
    def _timed(self) -> bool:
        return "latency" in self.plan.metrics

    def measure(self) -> None:
        """One worker after another, until a limit is met. Each has a number of its own, those that are lost too."""
        self._tell("starting")
        greeting = self.source.greeting()
        self.sides = greeting.sides
        index = 0
        while self.record.alive and not self.limit:
            starter, worker = self.source.next(self.plan.protocol.workers - self.schedule.whole)
            self.schedule.worker_begins()
            try:
                if self.environment is None:
                    self._find_devices(worker, greeting)
                self._one_worker(worker, _Place(index, starter))
            except WorkerLost as lost:
                if not self.schedule.over:
                    self._lose(index, lost)
            else:
                self.schedule.worker_done()
            finally:
                worker.close()
            self._look()
            index += 1

    def run(self, watch: Watch, **how: Any) -> Run:
        """All that was found, and `how` it ended."""
        return Run(
            plan=self.record.plan,
            samples=tuple(self.record.samples),
            failures=tuple(self.record.failures),
            warnings=tuple(self.record.notes),
            environment=self.environment,
            limit=self.limit if self.plan.protocol.precision is not None else "",
            timer=self.timer,
            sides=self.sides,
            around=watch.around(),
            roofs=tuple(self.record.roofs),
            inputs=tuple(self.record.inputs.values()),
            devices=self.devices.seen,
            **how,
        )

    def _look(self) -> None:
        """Between two workers: how much the next one makes, and whether there is one."""
        if not self._timed:  # exact metrics alone need one process
            self.limit = "workers" if self.schedule.whole else ""
            return
        table = RoundTable(self.record.left, self.record.samples)
        self.schedule.look(table)
        self.limit = self.schedule.limit(table, self.stop)

    def _find_devices(self, worker: Worker, greeting: Greeting) -> None:
        """Where all is measured."""
        plan, gpu, notes = self.devices.find(self.plan, greeting, worker, self._timeout_s)
        self.record.plan, self.environment = plan, self.describe(greeting, gpu)
        self.record.caches = greeting.caches
        self.record.journal(self.environment)
        self.record.journal(plan)
        for text in notes:
            self.record.note("", text)

    def _one_worker(self, worker: Worker, place: _Place) -> None:
        """Open every case, one round unrecorded, the recorded rounds, and what is exact once in a run."""
        block = f"{self.plan.protocol.seed}/{place.worker}"
        self._ask(worker, Begin(plan=self.plan, block=block))
        if self._timed and self.timer is None:
            self.timer = self._ask_of_reference(worker, MeasureTimer())
        for label in self.record.alive:
            self._open(worker, label, place.worker)
        if self._timed:
            if not self._explored:
                self._explored = True
                start = self.schedule.now()
                self.roofs.begin(partial(self._ask_of_reference, worker), self.devices.room(self.plan))
                self.schedule.beside(self.schedule.now() - start)
            self._rounds(worker, place)
        for label in self.record.alive:
            self._check(worker, label, place.worker)
        for job in EXACT_JOBS:
            for label in self.record.alive:
                self._exactly(worker, label, job, place.worker)

    def _open(self, worker: Worker, label: str, index: int) -> None:
        """Build and warm up a case in this worker; what compiling and packing took are samples of their own."""
        doing, known = BACKENDS[self.plan.case(label).workload.backend].doing, self._known[label]
        self._tell(f"{self._which}  {doing} {label}")
        calls = known.calls if self._timed else 1  # which warms nothing up
        opened = self._try(
            worker, Open(label=label, calls=calls, checked=known.calls is not None, weights=self.weights)
        )
        if opened is None:
            return
        known.calls = opened.calls
        if opened.inputs:
            self.record.reads(label, opened.inputs, opened.input_bytes)
        for metric in OPENED:
            again = not metric.exact or (label, metric.name) not in self._measured
            if again and (value := opened.values.get(metric.name)) is not None:
                self.record.once(label, metric.name, index, value)
                self._measured.add((label, metric.name))
        for text in opened.notes:
            self.record.note(label, text)
        if opened.graphs > 1:
            self.record.note(label, f"compiled with {opened.graphs - 1} graph breaks")

    def _rounds(self, worker: Worker, place: _Place) -> None:
        """One round of practice, then as many clean ones as are wanted."""
        self._round(worker, place)
        self.schedule.rounds_begin()
        tally = Tally(self.plan)
        while self.record.alive and not self.schedule.enough(tally.made, tally.clean):
            place = replace(place, round=place.round + 1)
            clean = self._round(worker, place)
            tally.add(clean)
            self._quiet = any(clean.values())
            self.schedule.round_done()
            if not self.schedule.whole:
                self.schedule.look(RoundTable(self.record.left, self.record.samples))

    def _round(self, worker: Worker, place: _Place) -> dict[str, bool]:
        """One sample of every case, in an order that depends on nothing but seed, worker and round.

        Gives for each case whether its sample was clean.
        """
        roofs = self.roofs.due(self.schedule.whole, place.round, self.schedule.elapsed_s)
        order = [*self.record.alive, *roofs]
        random.Random(f"{self.plan.protocol.seed}/{place.worker}/{place.round}").shuffle(order)
        clean: dict[str, bool] = {}
        for number, label in enumerate(order):
            if self.schedule.left_s < self._known[label].lasts_s:
                self.schedule.out_of_time = True
                break
            if label in roofs:
                self.roofs.sample(partial(self._ask_of_reference, worker), label, place.at(number))
            elif (found := self._sample(worker, place, label, number)) is not None:
                clean[label] = found
        self._tell(f"{self._which}  round {place.round + 1}/{self.schedule.rounds}", place.round + 1)
        return clean

    def _sample(self, worker: Worker, place: _Place, label: str, order: int) -> bool | None:
        """One sample of a case, taken again where it was disturbed and there is a budget for it; all are kept.

        After a round without a clean sample it is not: where nothing helps, every case should have its rounds. Gives
        whether the last one was clean, None for one of practice or a case that has failed.
        """
        again = self.plan.protocol.precision is not None and place.round >= 0 and self._quiet
        known, clean = self._known[label], None
        assert known.calls is not None
        for _ in range(ATTEMPTS if again else 1):
            salt = self.salts.getrandbits(56)
            sampled = self._try(worker, TakeSample(label=label, calls=known.calls, salt=salt))
            if sampled is None:
                return None
            for text in sampled.notes:
                self.record.note(label, text)
            self.devices.read(place.worker, self.plan.case(label).workload.device, sampled)
            known.seconds.append(sampled.value)
            if place.round < 0:
                return None
            sample = Sample(
                case=label,
                metric=LATENCY,
                value=sampled.value,
                calls=known.calls,
                waited=sampled.waited,
                throttled=sampled.throttled,
                faults=sampled.faults,
                **place.at(order),
            )
            self.record.timed(sample, sampled)
            if (clean := is_clean(sample)) or self.schedule.left_s < known.lasts_s:
                break
        return clean

    def _check(self, worker: Worker, label: str, index: int) -> None:
        """Hold a case against float64 after its rounds, once in a run: one that is off fails."""
        if (label, "check") in self._measured or self.schedule.over:
            return
        self._tell(f"{self._which}  checking {label}")
        checked = self._try(worker, Check(label=label))
        if checked is not None:
            self._keep_values(label, CHECKED, checked, index)
        self._measured.add((label, "check"))

    def _exactly(self, worker: Worker, label: str, job: str, index: int) -> None:
        """Exact metrics need one process only; where they can't be had, the row keeps its latency."""
        metrics = [m for m in METRICS if m.exact and m.job == job and m.group in self.plan.metrics]
        if not metrics or (label, job) in self._measured:
            return
        try:
            self._keep_values(label, metrics, self._ask(worker, EXACT_JOBS[job](label=label)), index)
        except _CaseFailed as problem:
            self.record.note(label, f"{metrics[0].group} could not be measured: {problem}")
        self._measured.add((label, job))

    def _keep_values(self, label: str, metrics: Iterable[Metric], measured: Values, index: int) -> None:
        """The metrics of a case that a worker has measured once."""
        for metric in metrics:
            if (value := measured.values.get(metric.name)) is not None:
                self.record.once(label, metric.name, index, value)

    def _try(self, worker: Worker, request: OfCase[A]) -> A | None:
        """Ask; a failed case is noted and answers None."""
        try:
            return self._ask(worker, request)
        except _CaseFailed as problem:
            self.record.fail(request.label, problem.failed.kind, problem.failed.message)
            return None

    def _ask(self, worker: Worker, request: WorkerRequest[A]) -> A:
        label = request.label if isinstance(request, OfCase) else ""
        try:
            answer = worker.ask(request, self._timeout_s)
        except WorkerLost as lost:
            raise _Lost(label, lost.kind, str(lost)) from lost
        if not isinstance(answer, Failed):
            return answer
        if answer.ends or not label:  # where it is of no case, the worker is of no use
            raise _Lost(label, answer.kind, answer.message, known=answer.ends)
        raise _CaseFailed(answer)

    def _ask_of_reference(self, worker: Worker, request: WorkerRequest[A]) -> A | None:
        """Ask for what is no case's; None where it can't be had. One that is lost ends the looking at roofs."""
        try:
            answer = worker.ask(request, self._timeout_s)
            if isinstance(answer, Failed) and answer.ends:
                raise WorkerLost(answer.kind, answer.message)
        except WorkerLost:
            self.roofs.lost()
            raise
        return None if isinstance(answer, Failed) else answer

    def _lose(self, index: int, lost: WorkerLost) -> None:
        """What a lost worker had measured stays.

        The case that it was busy with is dropped at its second loss, or where it hung before any worker was whole:
        a single death may be the worker's own, and a hang would cost the whole timeout again. One that broke the
        device is dropped at once: the worker has said so.
        """
        label, known = (lost.label, lost.known) if isinstance(lost, _Lost) else ("", False)
        self._losses[label] += 1
        hung = lost.kind is FailureKind.TIMEOUT and not self.schedule.whole
        if label and (hung or known or self._losses[label] > 1):
            self.record.fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(f"too many processes were lost: {lost}", "`ffnbench env` shows what else runs")
        else:
            self.record.note(label, f"process {index + 1} was lost: {lost}")

    @property
    def _which(self) -> str:
        workers = "" if self.plan.protocol.precision is not None else f"/{self.plan.protocol.workers}"
        return f"process {self.schedule.whole + 1}{workers}"  # one that was lost is made up for

    def _tell(self, text: str, round_: int = 0) -> None:
        self.progress(self.schedule.progress(round_, text))
