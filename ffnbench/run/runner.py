"""The measuring itself, from the parent: one worker after another, rounds shuffled,
nothing lost on the way.

A worker is a process that makes a block of rounds; starters.py forks it. Only one
measures at a time. A case that fails is dropped and recorded as a failure; a worker
that dies is replaced by one without the case that killed it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ffnbench.common.errors import Unfinished, termination_as_interruption
from ffnbench.plan.backends import BACKENDS, bare_form
from ffnbench.plan.cases import lack_of
from ffnbench.plan.metrics import (
    COPY,
    DEVICE_TIME,
    HOST_TIME,
    LATENCY,
    METRICS,
    PRODUCTS,
    RATE,
    Metric,
)
from ffnbench.plan.plan import Plan
from ffnbench.record.messages import SALT_BITS, DeviceFacts, Failed, Greeting, Values
from ffnbench.record.result import (
    STEP_END,
    Environment,
    FailureKind,
    Run,
    Side,
    Step,
    Timer,
)
from ffnbench.run.budget import Budget, Tally
from ffnbench.run.record import RunRecord
from ffnbench.run.resources import find_devices
from ffnbench.run.starters import RESTARTS, Starters
from ffnbench.run.worker import AnyWorker, WorkerLost
from ffnbench.run.world import World
from ffnbench.stats.rounds import is_clean
from ffnbench.stats.stopping import StopRule, stop_rule

ATTEMPTS = 4  # at a clean sample in one round
# the number of a worker's first round; its samples are not recorded
PRACTICE = -1
# after the rounds: an error that is too large fails a case, all else is exact
LAST_JOBS = ("check", "memory", "sparsity", "route")


def run_workers(
    plan: Plan,
    world: World,
    *,
    progress: Callable[[Step], None] = lambda _: None,
    keep: Callable[[Callable[[], Run]], None] = lambda _: None,
    stop: StopRule | None = None,
    pool: Starters | None = None,
    budget: Budget | None = None,
) -> Run:
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends the run with
    what was measured by then.

    Raises FfnbenchError where the plan asks for a device that is not there or for more
    memory than there is, Unfinished where nothing can be measured at all. `progress` is
    told of each step, and `keep` is given, after each worker, what makes the run so
    far. `stop` says when the run ends; without it the protocol does. `pool` makes the
    workers of several runs, which share it; the caller closes it. Without a `budget`
    one begins now, which has no bound.
    """
    workers = pool or Starters(plan, world.launch, world.now)
    record = RunRecord(plan)
    budget = budget or Budget(world.now, plan.protocol, world.now())
    workers.plan, workers.wait_s = plan, budget.wait_s  # a shared pool had other ones
    runner = _Runner(
        record,
        workers,
        budget,
        progress=progress,
        keep=keep,
        describe=world.describe,
        stop=stop or stop_rule(plan.protocol),
        salts=random.Random(plan.protocol.seed),
    )
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
    return runner.result(interrupted=interrupted, stopped=stopped)


class _WorkerBroken(WorkerLost):
    """Raised for a worker that has said itself that a case made it useless."""


@dataclass(slots=True)
class _Runner:
    """The loop of a run over its workers, their rounds and the cases."""

    record: RunRecord  # what was measured
    workers: Starters  # where workers come from
    budget: Budget  # how long the run may take
    progress: Callable[[Step], None]
    keep: Callable[[Callable[[], Run]], None]
    describe: Callable[[Greeting, DeviceFacts | None], Environment]
    stop: StopRule
    salts: random.Random  # of the inputs of samples
    environment: Environment | None = None
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()
    limit: str = ""
    # where the run is: this worker with its number and that of its starter, the round,
    # and the case that the worker was asked about last, "" for none
    _worker: AnyWorker = field(init=False)
    _worker_number: int = 0
    _starter_number: int = 0
    _round: int = PRACTICE
    _asked: str = ""
    # by case: how many calls make a sample, which the first worker finds out, and the
    # least seconds that one took
    _calls: dict[str, int] = field(default_factory=dict)
    _sample_s: dict[str, float] = field(default_factory=dict)
    # a label with a metric or a job that need not be measured again
    _measured: set[tuple[str, str]] = field(default_factory=set)
    # lost workers by the case that they were busy with
    _losses: Counter[str] = field(default_factory=Counter)
    _attempts: int = ATTEMPTS  # at a clean sample in the next round

    @property
    def plan(self) -> Plan:
        """The plan; once a worker has told what devices there are, it is on these."""
        return self.record.plan

    @property
    def _timeout_s(self) -> float:
        return self.budget.wait_s(self.plan.protocol.timeout_s)

    @property
    def _is_timed(self) -> bool:
        return "latency" in self.plan.metrics

    def run_until_limit(self) -> None:
        """Run one worker after another, until a limit is met. Each has a number of its
        own, those that are lost too.
        """
        self._tell("starting")
        greeting = self.workers.greeting()
        self.sides = greeting.sides
        while self.record.alive and not self.limit:
            due = self.plan.protocol.workers - self.budget.workers_done
            with self.workers.worker(due) as (self._starter_number, self._worker):
                self.budget.worker_begins()
                try:
                    if self.environment is None:
                        self._find_devices(greeting)
                    self._run_worker()
                except WorkerLost as lost:
                    if not self.budget.is_past_bound:  # which ends jobs by itself
                        self._handle_loss(lost)
                else:
                    self.budget.worker_done()
            self._plan_next_worker()
            self._worker_number += 1
            self.keep(partial(self.result, interrupted=True))

    def _run_worker(self) -> None:
        """Have a worker open every case, make its rounds, and do the last jobs."""
        if not self.record.alive:  # memory holds none of them
            return
        layout_seed = f"{self.plan.protocol.seed}/{self._worker_number}"
        self._ask("begin", plan=self.plan, layout_seed=layout_seed)
        if self._is_timed and self.timer is None:
            timer = self._worker.ask("timer", self._timeout_s)
            if not isinstance(timer, Failed):
                self.timer = timer
        for label in self.record.alive:
            self._open_case(label)
        if self._is_timed:
            self._take_rounds()
        for job in LAST_JOBS:
            for label in self.record.alive:
                self._measure(job, label)

    def _plan_next_worker(self) -> None:
        """Decide whether there is a further worker, and how many rounds it makes."""
        if self._is_timed:
            run = self._run_so_far()
            self.budget.plan_rounds(run)
            self.limit = self.budget.limit(run, self.stop)
        elif self.budget.workers_done:  # exact metrics alone need one process
            self.limit = "workers"

    def _run_so_far(self) -> Run:
        """The samples so far, and the plan with the cases that have not failed."""
        record = self.record
        return Run(
            plan=record.plan_of_alive,
            samples=tuple(record.samples),
            environment=self.environment,
        )

    def result(self, *, interrupted: bool, stopped: str = "") -> Run:
        """The run: all that was measured, and how it ended."""
        return Run(
            plan=self.record.plan,
            samples=tuple(self.record.samples),
            failures=tuple(self.record.failures),
            warnings=tuple(self.record.notes),
            environment=self.environment,
            limit=self.limit if self.plan.protocol.precision is not None else "",
            timer=self.timer,
            sides=self.sides,
            interrupted=interrupted,
            stopped=stopped,
            wall_s=self.budget.run_s,
        )

    def _find_devices(self, greeting: Greeting) -> None:
        """Find the devices of the run, describe them in the record, and fail the cases
        that can't be run there.
        """
        plan, gpu, notes, too_large = find_devices(
            self.plan, greeting, self._worker, self._timeout_s
        )
        self.record.plan = plan
        self.environment = self.describe(greeting, gpu)
        for text in notes:
            self.record.note("", text)
        self.record.failures += too_large
        for case in self.record.plan_of_alive.cases:
            lack = lack_of(case.ffn, case.workload, case.arm)
            reason = "; ".join(filter(None, lack))
            if reason:
                self.record.fail(case.label, FailureKind.UNSUPPORTED, reason)

    def _open_case(self, label: str) -> None:
        """Build and warm up a case in this worker. The seconds of compiling and packing
        are samples of their own.
        """
        doing = BACKENDS[self.plan.case(label).workload.backend].doing
        self._tell_step(f"{doing} {label}")
        opened = self._try(
            "open",
            label,
            # there is nothing to find out where nothing is timed
            calls=self._calls.get(label) if self._is_timed else 1,
            # whoever found the number of calls has checked the case
            checked=label in self._calls,
        )
        if opened is None:
            return
        self._calls[label] = opened.calls
        self._record_values(label, self._metrics_of("open", label), opened.values)
        self._measured.add((label, "open"))
        for text in opened.notes:
            self.record.note(label, text)
        if opened.graphs > 1:
            self.record.note(label, f"compiled with {opened.graphs - 1} graph breaks")

    def _take_rounds(self) -> None:
        """Take a round of practice, whose samples are not recorded, then rounds until
        there are enough.
        """
        self._take_round(PRACTICE)
        self.budget.rounds_begin()
        tally = Tally(self.plan)
        while self.record.alive and not self.budget.is_enough(
            tally.rounds, tally.clean
        ):
            clean = self._take_round(tally.rounds)
            tally.add(clean)
            # where waiting does not help, every case should at least have its rounds
            self._attempts = ATTEMPTS if any(clean.values()) else 1
            self.budget.round_done()
            if not self.budget.workers_done:
                # the first worker shows only now what a round takes
                self.budget.plan_rounds(self._run_so_far())

    def _take_round(self, number: int) -> dict[str, bool]:
        """Take one sample of every case, in an order that depends on nothing but seed,
        worker and round. Returns for each case whether its sample was clean.
        """
        self._round = number
        turns = [(label, self._take_sample) for label in self.record.alive]
        turns += [(label, self._take_rate) for label in self._rated]
        seed = f"{self.plan.protocol.seed}/{self._worker_number}/{number}"
        random.Random(seed).shuffle(turns)
        clean: dict[str, bool] = {}
        for order, (label, take) in enumerate(turns):
            if self.budget.left_s < self._sample_s.get(label, 0.0):
                self.budget.out_of_time = True
                break
            is_sample_clean = take(label, order)
            if is_sample_clean is not None:
                clean[label] = is_sample_clean
        self._tell_step(f"round {number + 1}/{self.budget.rounds}", number + 1)
        return clean

    def _take_sample(self, label: str, order: int) -> bool | None:
        """Take a sample of a case, and again where it was disturbed and the budget has
        time for it; all of them are recorded. Returns whether the last sample was
        clean, None for practice and where the case failed.
        """
        is_practice = self._round == PRACTICE
        is_adaptive = self.plan.protocol.precision is not None
        calls = self._calls[label]
        was_clean = False
        for _ in range(self._attempts if is_adaptive and not is_practice else 1):
            salt = self.salts.getrandbits(SALT_BITS)
            sampled = self._try("sample", label, calls=calls, salt=salt)
            if sampled is None:
                return None
            for text in sampled.notes:
                self.record.note(label, text)
            sample_s = min(self._sample_s.get(label, math.inf), calls * sampled.value)
            self._sample_s[label] = sample_s
            if is_practice:
                return None
            seconds = {
                LATENCY: sampled.value,
                DEVICE_TIME: sampled.device_s,
                HOST_TIME: sampled.host_s,
            }
            latency, *_ = self.record.add(
                label,
                seconds,
                calls=calls,
                waited=sampled.waited,
                throttled=sampled.throttled,
                faults=sampled.faults,
                **self._place(order),
            )
            was_clean = is_clean(latency)
            if was_clean or self.budget.left_s < sample_s:
                break
        return was_clean

    def _place(self, order: int) -> dict[str, int]:
        """The fields of a Sample that is taken now as number `order` of the round."""
        return {
            "worker": self._worker_number,
            "starter": self._starter_number,
            "round": self._round,
            "order": order,
        }

    @property
    def _rated(self) -> list[str]:
        """The labels of the cases whose rate is measured."""
        if RATE not in self.plan.metrics:
            return []
        return [
            label
            for label in self.record.alive
            if bare_form(self.plan.case(label)) and (label, RATE) not in self._measured
        ]

    def _take_rate(self, label: str, order: int) -> None:
        """Time the bare products of a case and a copy of its bytes."""
        if label not in self.record.alive:
            return
        rated = self._try("rate", label, without="the rate")
        if rated is None:
            self._measured.add((label, RATE))
        elif self._round != PRACTICE:
            seconds = {PRODUCTS: rated.products_s, COPY: rated.copy_s}
            self.record.add(label, seconds, waited=rated.waited, **self._place(order))

    def _measure(self, job: str, label: str) -> None:
        """Have the worker measure the metrics of a job, if none has yet."""
        metrics = self._metrics_of(job, label)
        if not metrics:
            return
        without = metrics[0].group
        if job == "check":
            if self.budget.is_past_bound:
                return
            self._tell_step(f"checking {label}")
            without = ""
        values = self._try(job, label, without=without)
        if values is not None:
            self._record_values(label, metrics, values)
        self._measured.add((label, job))

    def _metrics_of(self, job: str, label: str) -> list[Metric]:
        """The metrics that a worker has to measure in this job. Once in a run is enough
        for those that are exact; for errors too, unless they are compared beside times:
        then each worker measures them, on inputs of its own.
        """
        metrics = [m for m in METRICS if m.job == job]
        if job not in ("open", "check"):
            metrics = [m for m in metrics if m.group in self.plan.metrics]
        if (label, job) not in self._measured:
            return metrics
        if job == "check" and not self.plan.compares_precisions:
            return []
        return [metric for metric in metrics if not metric.exact]

    def _record_values(
        self, label: str, metrics: Iterable[Metric], values: Values
    ) -> None:
        """Record the metrics of a case of which a worker makes one sample."""
        wanted = {metric.name: values.get(metric.name) for metric in metrics}
        self.record.add(label, wanted, worker=self._worker_number)

    def _try(self, job: str, label: str, *, without: str = "", **arguments: Any) -> Any:
        """Ask the worker about a case; None where that failed. The case fails then, or
        where it can do `without` this, gets a note and keeps its latency.
        """
        answer = self._ask(job, label=label, **arguments)
        if not isinstance(answer, Failed):
            return answer
        if without:
            text = f"{without} could not be measured: {answer.message}"
            self.record.note(label, text)
        else:
            self.record.fail(label, answer.kind, answer.message)
        return None

    def _ask(self, job: str, **arguments: Any) -> Any:
        """Ask the worker. Raises WorkerLost where it can't go on."""
        self._asked = arguments.get("label", "")
        answer = self._worker.ask(job, self._timeout_s, **arguments)
        if isinstance(answer, Failed):
            if answer.ends_process:
                raise _WorkerBroken(answer.kind, answer.message)
            if not self._asked:  # a worker that fails over no case is of no use
                raise WorkerLost(answer.kind, answer.message)
        return answer

    def _handle_loss(self, lost: WorkerLost) -> None:
        """Drop the case that a lost worker was busy with, or note the loss. What the
        worker had measured stays.

        A case is dropped at its second loss, for a single one may be the worker's own;
        at the first where it broke the device, or where it hung before any worker was
        complete and would cost the whole timeout again. Raises Unfinished where workers
        are lost again and again over no case.
        """
        label = self._asked
        self._losses[label] += 1
        hung = lost.kind is FailureKind.TIMEOUT and not self.budget.workers_done
        is_broken = isinstance(lost, _WorkerBroken)
        if label and (hung or is_broken or self._losses[label] > 1):
            self.record.fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(
                f"too many processes were lost: {lost}",
                "`ffnbench env` shows what else runs",
            )
        else:
            process = f"process {self._worker_number + 1}"
            self.record.note(label, f"{process} was lost: {lost}")

    def _tell_step(self, text: str, rounds: int = 0) -> None:
        """Tell what this worker does: its number is that of complete ones, plus one."""
        process = f"process {self.budget.workers_done + 1}"
        if self.plan.protocol.precision is None:
            process += f"/{self.plan.protocol.workers}"
        self._tell(f"{process}{STEP_END}{text}", rounds)

    def _tell(self, text: str, rounds: int = 0) -> None:
        self.progress(self.budget.progress(rounds, text))
