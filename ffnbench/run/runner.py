"""The measuring itself, from the parent: one worker after another, rounds shuffled,
nothing lost on the way.

A worker is a process with a block of rounds; where it comes from is worker_pool.py's.
Only one ever measures. A case that fails is dropped and told; a worker that dies is
replaced without the case that killed it.
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
from ffnbench.planning.workload import lacks
from ffnbench.result import (
    STEP_END,
    CaseCost,
    Environment,
    FailureKind,
    Progress,
    Run,
    Sample,
    Side,
    Timer,
)
from ffnbench.run.budget import Budget, Tally
from ffnbench.run.record import RoofSamples, RunRecord
from ffnbench.run.resources import RunDevices
from ffnbench.run.worker_pool import RESTARTS, Worker, WorkerPool
from ffnbench.run.worker_process import WorkerLost
from ffnbench.run.world import Watch, World
from ffnbench.stats.rounds import RoundTable, is_clean
from ffnbench.stats.stopping import StopRule, stop_rule

ATTEMPTS = 4  # of a sample in one round, while others leave the CPUs alone now and then
# what opening a case tells
OPENED = [metric for metric in METRICS if metric.job == "open"]
# what checking it tells
CORRECTNESS_METRICS = [metric for metric in METRICS if metric.job == "check"]
# what a worker is asked for exact metrics, by their job
EXACT_JOBS: dict[str, type[OfCase[Values]]] = {
    "memory": MeasureMemory,
    "sparsity": MeasureSparsity,
    "route": MeasureRouting,
}


def run_workers(
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
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends with what was
    measured by then.

    Raises FfnbenchError where the plan asks for a device that is not there or for more
    memory than there is, Unfinished where nothing can be measured at all. `progress`
    and `journal` are told of everything as it comes. `stop` says when the run ends; by
    itself that is what the protocol states. `weights` is a folder with the weights that
    every case takes over. Without `costs` nothing is known of ceilings. `pool` is where
    workers come from, for several runs that share it and end it. `spent_s` of the
    budget are over. The protocol's fewest workers are made whatever they take, but
    nothing goes beyond `bound_s` of it.
    """
    workers = pool or WorkerPool(plan, world.launch, world.now)
    record = RunRecord(plan, journal)
    budget = Budget(world.now, plan.protocol, spent_s=spent_s, bound_s=bound_s)
    workers.plan, workers.wait_s = plan, budget.wait_s
    runner = _Runner(
        record,
        workers,
        budget,
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
            runner.run_until_limit()
    except KeyboardInterrupt:
        interrupted = True
    except Unfinished as problem:
        if budget.is_past_bound:
            runner.limit = "budget"
        elif not record.samples:
            raise
        else:
            # what was measured by then is an answer of its own
            stopped = problem.message
    finally:
        if pool is None:
            workers.close()
    return runner.result(
        watch, interrupted=interrupted, stopped=stopped, wall_s=world.now() - start
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run is: the worker's number, its starter's, and the round; -1 is
    practice.
    """

    worker: int
    starter: int
    round: int = -1

    def at(self, order: int) -> dict[str, int]:
        """As a sample has it."""
        return {
            "worker": self.worker,
            "starter": self.starter,
            "round": self.round,
            "order": order,
        }


class _CaseFailed(Exception):
    """An answer that says that a case failed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class _LostOverCase(WorkerLost):
    """A worker lost while it was busy with a case, "" for none. `broke_device`: it has
    itself said so.
    """

    def __init__(
        self, label: str, kind: FailureKind, message: str, *, broke_device: bool = False
    ) -> None:
        super().__init__(kind, message)
        self.label, self.broke_device = label, broke_device


@dataclass(slots=True)
class _Calibration:
    """How many calls make a sample of a case, which the first worker finds out, and the
    fastest call so far.
    """

    calls: int | None = None
    fastest_s: float = math.inf

    @property
    def sample_s(self) -> float:
        """Seconds that a sample takes at least, as far as that is known."""
        if self.calls is None or self.fastest_s == math.inf:
            return 0.0
        return self.calls * self.fastest_s


@dataclass(slots=True)
class _Runner:
    """The loop, over four things: the record, where workers come from, how long a run
    may take, and ceilings.
    """

    record: RunRecord
    workers: WorkerPool
    budget: Budget
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
    devices: RunDevices = field(default_factory=RunDevices)
    _calibrations: dict[str, _Calibration] = field(
        default_factory=lambda: defaultdict(_Calibration)
    )
    # of a case: an exact metric, or the job for some
    _measured: set[tuple[str, str]] = field(default_factory=set)
    _losses: Counter[str] = field(default_factory=Counter)
    _explored_roofs: bool = False
    _is_quiet: bool = True  # whether a sample of the last round was clean

    @property
    def plan(self) -> Plan:
        """The plan, its device known."""
        return self.record.plan

    @property
    def _timeout_s(self) -> float:
        return self.budget.wait_s(self.plan.protocol.timeout_s)

    @property
    def _is_timed(self) -> bool:
        return "latency" in self.plan.metrics

    def run_until_limit(self) -> None:
        """One worker after another, until a limit is met. Each has a number of its own,
        those that are lost too.
        """
        self._tell("starting")
        greeting = self.workers.greeting()
        self.sides = greeting.sides
        number = 0
        while self.record.alive and not self.limit:
            starter, worker = self.workers.next(
                self.plan.protocol.workers - self.budget.workers_done
            )
            self.budget.worker_begins()
            try:
                if self.environment is None:
                    self._find_devices(worker, greeting)
                self._run_worker(worker, _Place(number, starter))
            except WorkerLost as lost:
                if not self.budget.is_past_bound:
                    self._handle_loss(number, lost)
            else:
                self.budget.worker_done()
            finally:
                worker.close()
            self._plan_next_worker()
            number += 1

    def result(self, watch: Watch, **how: Any) -> Run:
        """All that was measured, and `how` it ended."""
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
            devices=self.devices.readings,
            **how,
        )

    def _plan_next_worker(self) -> None:
        """Between two workers: how many rounds the next one makes, and whether there is
        one.
        """
        if self._is_timed:
            table = RoundTable(self.record.left, self.record.samples)
            self.budget.plan_rounds(table)
            self.limit = self.budget.limit(table, self.stop)
        elif self.budget.workers_done:  # exact metrics alone need one process
            self.limit = "workers"

    def _find_devices(self, worker: Worker, greeting: Greeting) -> None:
        """Where all is measured, and what can't be run there."""
        plan, gpu, notes = self.devices.find(
            self.plan, greeting, worker, self._timeout_s
        )
        self.record.plan = plan
        self.record.caches = greeting.caches
        self.environment = self.describe(greeting, gpu)
        self.record.journal(self.environment)
        self.record.journal(plan)
        for text in notes:
            self.record.note("", text)
        for case in plan.cases:
            reason = lacks(case.ffn, case.workload, case.arm)
            if reason:
                self.record.fail(case.label, FailureKind.UNSUPPORTED, reason)

    def _run_worker(self, worker: Worker, place: _Place) -> None:
        """Open every case, one round unrecorded, the recorded rounds, and what is exact
        once in a run.
        """
        self._ask(
            worker,
            Begin(plan=self.plan, block=f"{self.plan.protocol.seed}/{place.worker}"),
        )
        if self._is_timed and self.timer is None:
            self.timer = self._ask_beside_cases(worker, MeasureTimer())
        for label in self.record.alive:
            self._open_case(worker, label, place.worker)
        if self._is_timed:
            self._explore_roofs(worker)
            self._take_rounds(worker, place)
        for label in self.record.alive:
            self._check_case(worker, label, place.worker)
        for job in EXACT_JOBS:
            for label in self.record.alive:
                self._measure_exact(worker, label, job, place.worker)

    def _explore_roofs(self, worker: Worker) -> None:
        """Find the fastest roofs, once in a run."""
        if self._explored_roofs:
            return
        self._explored_roofs = True
        start = self.budget.now()
        self.roofs.explore(
            partial(self._ask_beside_cases, worker), self.devices.room(self.plan)
        )
        self.budget.spent_once(self.budget.now() - start)

    def _open_case(self, worker: Worker, label: str, number: int) -> None:
        """Build and warm up a case in this worker; what compiling and packing took are
        samples of their own.
        """
        doing = BACKENDS[self.plan.case(label).workload.backend].doing
        self._tell(f"{self._which_process}{STEP_END}{doing} {label}")
        calibration = self._calibrations[label]
        calls: int | None = 1  # which warms nothing up
        if self._is_timed:
            calls = calibration.calls
        is_checked = calibration.calls is not None
        opened = self._try(
            worker,
            Open(label=label, calls=calls, checked=is_checked, weights=self.weights),
        )
        if opened is None:
            return
        calibration.calls = opened.calls
        if opened.inputs:
            self.record.reads(label, opened.inputs, opened.input_bytes)
        for metric in OPENED:
            value = opened.values.get(metric.name)
            if value is None or (
                metric.exact and (label, metric.name) in self._measured
            ):
                continue
            self.record.once(label, metric.name, number, value)
            self._measured.add((label, metric.name))
        for text in opened.notes:
            self.record.note(label, text)
        if opened.graphs > 1:
            self.record.note(label, f"compiled with {opened.graphs - 1} graph breaks")

    def _take_rounds(self, worker: Worker, place: _Place) -> None:
        """One round of practice, then as many clean ones as are wanted."""
        self._take_round(worker, place)
        self.budget.rounds_begin()
        tally = Tally(self.plan)
        while self.record.alive and not self.budget.is_enough(
            tally.rounds, tally.clean
        ):
            place = replace(place, round=place.round + 1)
            clean = self._take_round(worker, place)
            tally.add(clean)
            self._is_quiet = any(clean.values())
            self.budget.round_done()
            if not self.budget.workers_done:
                self.budget.plan_rounds(
                    RoundTable(self.record.left, self.record.samples)
                )

    def _take_round(self, worker: Worker, place: _Place) -> dict[str, bool]:
        """One sample of every case, in an order that depends on nothing but seed,
        worker and round.

        Gives for each case whether its sample was clean.
        """
        roofs = self.roofs.due(
            self.budget.workers_done, place.round, self.budget.elapsed_s
        )
        order = [*self.record.alive, *roofs]
        random.Random(
            f"{self.plan.protocol.seed}/{place.worker}/{place.round}"
        ).shuffle(order)
        clean: dict[str, bool] = {}
        for number, label in enumerate(order):
            if self.budget.left_s < self._calibrations[label].sample_s:
                self.budget.out_of_time = True
                break
            if label in roofs:
                self.roofs.take_sample(
                    partial(self._ask_beside_cases, worker), label, place.at(number)
                )
                continue
            is_sample_clean = self._take_sample(worker, place, label, number)
            if is_sample_clean is not None:
                clean[label] = is_sample_clean
        self._tell(
            f"{self._which_process}{STEP_END}round {place.round + 1}/{self.budget.rounds}",
            place.round + 1,
        )
        return clean

    def _take_sample(
        self, worker: Worker, place: _Place, label: str, order: int
    ) -> bool | None:
        """One sample of a case, taken again where it was disturbed and there is a
        budget for it; all are kept.

        After a round without a clean sample it is not: where nothing helps, every case
        should have its rounds. Gives whether the last one was clean, None for one of
        practice or a case that has failed.
        """
        is_practice = place.round < 0
        attempts = 1
        if (
            self.plan.protocol.precision is not None
            and self._is_quiet
            and not is_practice
        ):
            attempts = ATTEMPTS
        calibration = self._calibrations[label]
        assert calibration.calls is not None
        was_clean = None
        for _ in range(attempts):
            salt = self.salts.getrandbits(56)
            sampled = self._try(
                worker, TakeSample(label=label, calls=calibration.calls, salt=salt)
            )
            if sampled is None:
                return None
            for text in sampled.notes:
                self.record.note(label, text)
            self.devices.read(
                place.worker, self.plan.case(label).workload.device, sampled
            )
            calibration.fastest_s = min(calibration.fastest_s, sampled.value)
            if is_practice:
                return None
            sample = Sample(
                case=label,
                metric=LATENCY,
                value=sampled.value,
                calls=calibration.calls,
                waited=sampled.waited,
                throttled=sampled.throttled,
                faults=sampled.faults,
                **place.at(order),
            )
            self.record.timed(sample, sampled)
            was_clean = is_clean(sample)
            if was_clean or self.budget.left_s < calibration.sample_s:
                break
        return was_clean

    def _check_case(self, worker: Worker, label: str, number: int) -> None:
        """Hold a case against float64 after its rounds: one that is off fails. Once in
        a run; in each process, on inputs of its own, where errors are held against
        times.
        """
        is_again = (label, "check") in self._measured
        is_enough = is_again and not self.plan.compares_precisions
        if is_enough or self.budget.is_past_bound:
            return
        self._tell(f"{self._which_process}{STEP_END}checking {label}")
        errors = self._try(worker, Check(label=label))
        if errors is not None:
            metrics = [m for m in CORRECTNESS_METRICS if not (m.exact and is_again)]
            self._record_values(label, metrics, errors, number)
        self._measured.add((label, "check"))

    def _measure_exact(self, worker: Worker, label: str, job: str, number: int) -> None:
        """Exact metrics need one process only; where they can't be had, the row keeps
        its latency.
        """
        metrics = [
            m
            for m in METRICS
            if m.exact and m.job == job and m.group in self.plan.metrics
        ]
        if not metrics or (label, job) in self._measured:
            return
        try:
            self._record_values(
                label, metrics, self._ask(worker, EXACT_JOBS[job](label=label)), number
            )
        except _CaseFailed as problem:
            self.record.note(
                label, f"{metrics[0].group} could not be measured: {problem}"
            )
        self._measured.add((label, job))

    def _record_values(
        self, label: str, metrics: Iterable[Metric], measured: Values, number: int
    ) -> None:
        """Record the metrics of a case that a worker has measured once."""
        for metric in metrics:
            value = measured.values.get(metric.name)
            if value is not None:
                self.record.once(label, metric.name, number, value)

    def _try(self, worker: Worker, request: OfCase[A]) -> A | None:
        """Ask; a failed case is recorded and answers None."""
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
            raise _LostOverCase(label, lost.kind, str(lost)) from lost
        if not isinstance(answer, Failed):
            return answer
        if answer.ends or not label:  # where it is of no case, the worker is of no use
            raise _LostOverCase(
                label, answer.kind, answer.message, broke_device=answer.ends
            )
        raise _CaseFailed(answer)

    def _ask_beside_cases(self, worker: Worker, request: WorkerRequest[A]) -> A | None:
        """Ask for what is no case's; None where it can't be had. One that is lost ends
        the sampling of roofs.
        """
        try:
            answer = worker.ask(request, self._timeout_s)
            if isinstance(answer, Failed) and answer.ends:
                raise WorkerLost(answer.kind, answer.message)
        except WorkerLost:
            self.roofs.lost()
            raise
        return None if isinstance(answer, Failed) else answer

    def _handle_loss(self, number: int, lost: WorkerLost) -> None:
        """What a lost worker had measured stays.

        The case that it was busy with is dropped at its second loss, or where it hung
        before any worker was complete: a single death may be the worker's own, and a
        hang would cost the whole timeout again. One that broke the device is dropped at
        once: the worker has said so.
        """
        label, broke_device = "", False
        if isinstance(lost, _LostOverCase):
            label, broke_device = lost.label, lost.broke_device
        self._losses[label] += 1
        hung = lost.kind is FailureKind.TIMEOUT and not self.budget.workers_done
        if label and (hung or broke_device or self._losses[label] > 1):
            self.record.fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(
                f"too many processes were lost: {lost}",
                "`ffnbench env` shows what else runs",
            )
        else:
            self.record.note(label, f"process {number + 1} was lost: {lost}")

    @property
    def _which_process(self) -> str:
        number = self.budget.workers_done + 1  # one that was lost is made up for
        if self.plan.protocol.precision is not None:
            return f"process {number}"
        return f"process {number}/{self.plan.protocol.workers}"

    def _tell(self, text: str, rounds: int = 0) -> None:
        self.progress(self.budget.progress(rounds, text))
