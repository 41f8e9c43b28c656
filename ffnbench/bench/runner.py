"""The measuring itself, from the parent: workers one after another, rounds shuffled, nothing lost on the way.

Workers are started as many at a time as there are CPUs, so that importing torch takes half the wait; but only one
ever measures, and never while another starts. A case that fails is dropped and told; a worker that dies is
replaced without the case that killed it.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from ffnbench import jsonable
from ffnbench.bench.caches import caches, level_of
from ffnbench.bench.channel import Message
from ffnbench.bench.clock import RunClock
from ffnbench.bench.devices import Sightings, check_devices, told_of, why_not_seen
from ffnbench.bench.environment import USABLE, auto_device, describe, usable_cpus, usable_memory
from ffnbench.bench.jury import Jury
from ffnbench.bench.machine_noise import Watch
from ffnbench.bench.memory_limits import check_fits, fit_into, room_for_ceilings
from ffnbench.bench.roofs import roofs_for
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.bench.worker_group import Launch, Worker, sides_of, start_for
from ffnbench.errors import Unfinished, termination_as_interruption
from ffnbench.metrics import CEILINGS, DEVICE_TIME, HOST_TIME, LATENCY, METRICS, ROOF, Metric
from ffnbench.plan import CONTROL, Backend, Note, NoteKind, Plan
from ffnbench.planning.workload import refuse_time
from ffnbench.result import (
    Bound,
    CaseCost,
    Environment,
    Failure,
    FailureKind,
    Inputs,
    Judged,
    Progress,
    Roof,
    Run,
    Sample,
    Side,
    Timer,
)  # fmt: skip
from ffnbench.stats.ceilings import Ceiling, may_bind
from ffnbench.stats.enough import Advance, Amount, Answered, fixed_amount, limit_met, scatter, wanted
from ffnbench.stats.floor import Floor, below, floors_of, quickest
from ffnbench.stats.rounds import WAITED, is_clean
from ffnbench.units import TIME, quantity

RESTARTS = 3
ATTEMPTS = 4  # of a sample in one round, while others leave the CPUs alone now and then
OPENED = [metric for metric in METRICS if metric.job == "open"]  # what opening a case tells
CEILINGS_S = 5.0  # at most, of a whole run
EXPLORING_S, EXPLORING = 1.5, 0.04  # at most, and of the budget
EXPLORING_A_WORKER_S = 0.2  # where there is no budget
ROOFS = 0.15  # of a run's time, at most, for samples of those that may bind a row
MAY_BIND = 0.5  # of the least time that a row's ceilings allow: what is farther away is looked at once a worker
KEPT_ROOFS = 3  # of each ceiling: which is the fastest is known at the end
FLOOR_S, AGAIN = 1.0, 3  # for which ceilings are looked for again, and samples, before anything is accused
LOOKS = 5  # at the roof that says so
WHAT_TAKES = {Bound.PRODUCTS: "its matrix products take", Bound.BYTES: "reading its weights takes"}
LONGEST = 20  # times the rounds that a worker should make: then it waits for quiet no longer
DOING = {Backend.COMPILE.value: "compiling", Backend.ONEDNN.value: "packing"}  # what opening a case is, by backend
Listener = Callable[[Progress], None]
Finder = Callable[[Plan | Environment | Sample | Failure | Note | Roof | Inputs | Judged], None]


def _threads_timed(plan: Plan) -> int:
    """The most threads that a case is timed with; bytes are the same on a noisy machine."""
    return max(case.workload.threads for case in plan.cases) if "latency" in plan.metrics else 0


def run(
    plan: Plan,
    *,
    on_progress: Listener = lambda _: None,
    on_found: Finder = lambda _: None,
    launch: Launch = Session,
    now: Callable[[], float] = time.monotonic,
    describe: Callable[[dict[str, Any]], Environment] = describe,
    answered: Answered | None = None,
    weights: str = "",
    costs: tuple[CaseCost, ...] = (),
    judge: Launch | None = None,
) -> Run:
    """Measure a plan. A failed case is a row of the result; Ctrl-C ends with what was measured by then.

    A worker that is lost is replaced. Raises FfnbenchError where the plan asks for a device that is not there or for
    more memory than there is, Unfinished where nothing can be measured at all. `answered` is asked at the looks of a
    run with a precision whether the question is answered; by itself that is when the precision is reached. `weights` is
    a folder with the weights that every case takes over. `costs` are those of the cases: without them nothing is known
    of ceilings. `judge` starts the process that judges the outputs of timed calls: without it nobody does. `on_found`
    is told of everything as it comes: the plan with its device, the environment, each sample, failure, note and roof.
    `launch`, `now` and `describe` are the world outside: simulations and tests bring their own.
    """
    timed = "latency" in plan.metrics
    jury = Jury(judge if timed else None, weights, plan.protocol.timeout_s, now)
    runner = _Runner(plan, on_progress, on_found, launch, now, describe, answered, weights, costs, jury)
    watch = Watch()
    start = now()
    interrupted, stopped = False, ""
    try:
        with termination_as_interruption():
            runner.measure(watch)
    except KeyboardInterrupt:
        interrupted = True
    except Unfinished as problem:
        if not runner.samples:
            raise
        stopped = problem.message  # what was measured by then is an answer of its own
    finally:
        runner.close()
    around, noise = watch.around(), watch.notes(_threads_timed(plan))
    return Run(
        plan=runner.plan,
        samples=tuple(runner.samples),
        failures=tuple(runner.failures),
        warnings=(*runner.warnings, *(Note(text=text, kind=NoteKind.SEEN) for text in noise)),
        environment=runner.environment,
        interrupted=interrupted,
        stopped=stopped,
        wall_s=now() - start,
        limit=runner.limit if plan.protocol.precision is not None else "",
        timer=runner.timer,
        sides=runner.sides,
        around=around,
        placed_once=tuple(sorted(runner.placed_once)),
        roofs=tuple(runner.roofs),
        judged=jury.judged,
        inputs=tuple(runner.inputs.values()),
        judging_s=jury.seconds,
        devices=runner.sightings.all,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run is: the worker's number, its round, how often its tensors were placed anew."""

    worker: int
    round: int
    placement: int

    def next(self) -> _Place:
        """The round after this one."""
        return replace(self, round=self.round + 1)


@dataclass(slots=True)
class _Tally:
    """The clean rounds of one worker: of the row that has the fewest, in all and on this placement."""

    plan: Plan
    rows: Counter[str] = field(default_factory=Counter)
    clean: int = 0  # of the row with the fewest
    made_here: int = 0
    clean_before: int = 0

    def add(self, clean: dict[str, bool]) -> None:
        """A round, by case whether its sample was clean: a row's is where its reference's is as well."""
        self.made_here += 1
        for label, own in clean.items():
            self.rows[label] += own and clean.get(self.plan.reference_of(label), True)
        self.clean = min((self.rows[label] for label in clean), default=0)  # one that has failed counts no more

    def due(self, rounds_each: int) -> bool:
        """Whether this placement has had its rounds; disturbed ones are made up for, but not for ever."""
        return self.clean - self.clean_before >= rounds_each or self.made_here >= 4 * rounds_each

    def placed(self) -> None:
        """A new placement begins."""
        self.made_here, self.clean_before = 0, self.clean


class _CaseFailed(Exception):
    """An answer that says that a case failed."""


@dataclass(slots=True)
class _Runner:
    plan: Plan
    on_progress: Listener
    on_found: Finder
    launch: Launch
    now: Callable[[], float]
    describe: Callable[[dict[str, Any]], Environment]
    answered: Answered | None
    weights: str
    costs: tuple[CaseCost, ...]
    jury: Jury
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    environment: Environment | None = None
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()
    limit: str = ""
    placed_once: set[str] = field(default_factory=set)
    roofs: list[Roof] = field(default_factory=list)
    inputs: dict[str, Inputs] = field(default_factory=dict)
    sightings: Sightings = field(default_factory=Sightings)
    _ready: list[Worker] = field(default_factory=list)
    _current: Worker | None = None
    _calls: dict[str, int] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)  # by the first worker, before timing
    _seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # of every sample
    _reached: list[Ceiling] = field(default_factory=list)
    _splits: dict[str, int] = field(default_factory=dict)  # tokens of a part, 0 for none
    _losses: Counter[str] = field(default_factory=Counter)
    _whole: int = 0
    _made: list[tuple[int, int]] = field(default_factory=list)  # by worker: clean rounds, placements
    _quiet: bool = True  # whether a sample of the last round was clean
    _weighed: set[tuple[str, str]] = field(default_factory=set)
    _may_bind: frozenset[str] = frozenset()  # the roofs that a row may be held back by
    _roof_calls: dict[str, int] = field(default_factory=dict)  # of those that are still sampled
    _explored: bool = False
    _roofs_s: float = 0.0  # spent on their samples, and on all that is about ceilings
    _ceilings_s: float = 0.0
    _roof_set_s: float = 0.0  # what one sample of each takes
    _free: dict[str, int] = field(default_factory=dict)  # bytes of each device, where they are known
    _clock: RunClock = field(init=False)

    def __post_init__(self) -> None:
        workers = self.plan.protocol.workers if self._timed else 1  # exact metrics alone need one process
        self._clock = RunClock(self.now, workers, fixed_amount(self.plan.protocol))

    @property
    def _timed(self) -> bool:
        return "latency" in self.plan.metrics

    def measure(self, watch: Watch) -> None:
        """One worker after another, until a limit is met. Each has a number of its own, those that are lost too."""
        index = 0
        while self._alive() and not self.limit:
            self._current = self._take()
            watch.worker_begins()
            try:
                self._one_worker(self._current, index)
                self._judge()
            except WorkerLost as lost:
                self._clock.worker_lost()
                self._lose(index, lost)
            else:
                self._whole += 1
                self._clock.worker_done()
            finally:
                watch.worker_done()
                self._current.close()
            self.limit = self._limit()
            index += 1
        self._judge(at_the_end=True)

    def close(self) -> None:
        """End every process."""
        for worker in (self._current, *self._ready, self.jury):
            if worker is not None:
                worker.close()

    def _alive(self) -> list[str]:
        failed = {failure.case for failure in self.failures}
        return [case.label for case in self.plan.cases if case.label not in failed]

    def _limit(self) -> str:
        """Which limit is met; along the way, how much the rest of the run should be."""
        if not self._timed:
            return "workers" if self._whole else ""
        left = self._left()
        self._look(left, self._done())
        return limit_met(left, self.samples, self._fits(self._clock.amount), self.answered)

    def _fits(self, amount: Amount) -> bool:
        """Whether another worker with that much would end within the budget."""
        budget = self.plan.protocol.budget_s
        return budget is None or self._next_s() + self._clock.pace().seconds(amount) <= budget

    def _next_s(self) -> float:
        return self._clock.next_s(ready=bool(self._ready))

    def _done(self) -> Advance:
        """Between two workers."""
        if not self._made:
            return Advance(elapsed_s=self._next_s())
        rounds, placements = (sum(made) / len(self._made) for made in zip(*self._made, strict=True))
        return Advance(self._whole, self._next_s(), max(1.0, rounds), placements)

    def _left(self) -> Plan:
        """The plan with the cases that have not failed."""
        alive = set(self._alive())
        return replace(self.plan, cases=tuple(case for case in self.plan.cases if case.label in alive))

    def _look(self, left: Plan, done: Advance) -> None:
        """From what was measured so far: how much a worker should make, and how many workers there should be."""
        protocol, pace, found = self.plan.protocol, self._clock.pace(), scatter(left, self.samples)
        way = wanted(protocol, found, pace, done)
        self._clock.amount, self._clock.precise = way.amount, way.precise
        self._clock.workers = max(self._whole + 1, way.workers)

    def _take(self) -> Worker:
        """The next started worker; starts as many as will be needed, up to one process a CPU, when none is left."""
        if not self._ready:
            self._tell("starting workers")
            begun, needed = self._clock.elapsed_s, max(1, self._clock.workers - self._whole)
            at_once = max(1, usable_cpus() // len(self.plan.arms))
            # a last one by itself would take longer than beside the others
            count = needed if needed == at_once + 1 else min(needed, at_once)
            self._ready += [start_for(self.plan, self.launch) for _ in range(count)]
            if self.environment is None:
                self.jury.start(self.plan)
            for place, worker in enumerate(self._ready):
                facts = self._started(place, worker)
            self.jury.ready()
            self._clock.started(count, self._clock.elapsed_s - begun)
            if self.environment is None:
                self.sides = sides_of(facts.get("arms", []))
                self._find_device(facts)
        return self._ready.pop(0)

    def _find_device(self, facts: dict[str, Any]) -> None:
        """Where all is measured: whether that is there, what it is, and whether its memory holds the plan."""
        auto = "auto" in {case.workload.device for case in self.plan.cases}
        plan = self.plan.with_device(auto_device(facts))
        check_devices(plan, facts)
        refuse_time(plan)
        told = told_of(plan, self._ask_first)
        self._free = {name: int(USABLE * free) for name, one in told.items() if (free := one.get("gpu_free_bytes"))}
        used = {case.workload.device for case in plan.cases}
        self.plan = fit_into(plan, min((self._free[name] for name in used if name in self._free), default=None))
        self.environment = self.describe(facts | next(iter(told.values()), {}))
        self.on_found(self.environment)
        self.on_found(self.plan)
        check_fits(self.plan, usable_memory(), self._free)
        if auto and not told and (why := why_not_seen(facts)):
            self._warn(Note(text=f"measured on the CPU: {why[0]}; {why[1]}", kind=NoteKind.GENERAL))
        for device, one in told.items():
            if missing := one.get("nvml_missing"):
                text = f"clocks, throttling and other processes of {device} were not seen: {missing}"
                self._warn(Note(text=text, kind=NoteKind.GENERAL))

    def _ask_first(self, request: Message) -> Message:
        """Ask the first worker before it has a plan."""
        try:
            return self._ready[0].ask(request, self.plan.protocol.timeout_s)
        except WorkerLost as lost:
            raise Unfinished(f"a worker was lost over its device: {lost}", "does `nvidia-smi` work?") from lost

    def _room(self) -> int | None:
        """Bytes that there are for what is measured: of the machine, or of the device that has the least."""
        used = {case.workload.device for case in self.plan.cases}
        return (
            usable_memory()
            if "cpu" in used
            else min((self._free[name] for name in used & self._free.keys()), default=None)
        )

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
            self._look_at_ceilings(worker)
            self._rounds(worker, index)
            if not self._whole and self.jury.sits:
                self._hold_against_floors(worker)
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
        """Build and warm up a case in this worker; what compiling and packing took are samples of their own."""
        doing = DOING.get(self.plan.case(label).workload.backend, "warming up")
        self._tell(f"{self._which()}  {doing} {label}")
        known = {"calls": self._calls.get(label), "checked": label in self._checked, "weights": self.weights}
        if label in self._splits:
            known["split"] = self._splits[label]
        opened = self._try(worker, label, {"do": "open", "label": label, **known})
        if not opened:
            return
        self._calls[label] = opened["calls"]
        self._checked.add(label)
        if self._suspected(label, opened):
            return
        self.jury.opened(label, opened.get("made_of"))
        if "inputs" in opened:
            self._keep_inputs(label, **opened["inputs"])
        if "split" in opened:
            self._splits[label] = opened["split"]
        for metric in OPENED:
            again = not metric.exact or (label, metric.name) not in self._weighed
            if again and (value := opened.get(metric.name)) is not None:
                self._keep(label, metric.name, index, value)
                self._weighed.add((label, metric.name))
        self._note(label, opened)
        if opened.get("graphs", 1) > 1:
            self._note(label, {"notes": [f"compiled as {opened['graphs']} graphs, with Python between them"]})

    def _note(self, label: str, answer: Message) -> None:
        """What an answer says about its case, once."""
        for text in answer.get("notes", ()):
            if (note := Note(label=label, text=text, kind=NoteKind.GENERAL)) not in self.warnings:
                self._warn(note)

    def _keep_inputs(self, label: str, count: int, bytes: int) -> None:
        """What the calls of a sample read: all of it, and each by itself, in which cache."""
        threads, known = self.plan.case(label).workload.threads, caches()
        levels = [level_of(size, threads, known) for size in (bytes, bytes // count)]
        on_cpu = self.plan.case(label).workload.device == "cpu"
        level, one_level = levels if on_cpu else ("", "")
        found = Inputs(case=label, count=count, bytes=bytes, level=level, one_level=one_level)
        if self.inputs.get(label) != found:
            self.inputs[label] = found
            self.on_found(found)

    def _look_at_ceilings(self, worker: Worker) -> None:
        """In the first worker find the fastest roofs; in the others make their calls. They are no part of its rest."""
        start = self.now()
        if not self._explored:
            self._explored = True
            if CEILINGS in self.plan.metrics and self.costs:
                self._explore(worker)
        elif self._roof_calls:
            alive = [jsonable.encode(roof) for roof in self.roofs if roof.name in self._roof_calls]
            answer = self._ask_of_reference(worker, {"do": "prepare_roofs", "roofs": alive})
            made = answer.get("made", [])
            self._roof_calls = {name: calls for name, calls in self._roof_calls.items() if name in made}
        self._ceilings_s += self.now() - start
        self._clock.beside(self.now() - start)

    def _explore(self, worker: Worker) -> None:
        """The fastest roofs for the cases that are left, within a share of the run's time; they are sampled later."""
        for roof, _, calls in self._reach(worker, self._exploring_s):
            self.roofs.append(roof)
            self._roof_calls[roof.name] = calls
            self.on_found(roof)
        self._may_bind = may_bind(self._left().shown, self.costs, self._reached, MAY_BIND)
        self._roof_set_s = sum(
            c.seconds * self._roof_calls[c.roof.name] for c in self._reached if c.roof.name in self._may_bind
        )

    @property
    def _exploring_s(self) -> float:
        protocol = self.plan.protocol
        planned = EXPLORING_A_WORKER_S * protocol.workers
        return min(EXPLORING_S, planned if protocol.budget_s is None else EXPLORING * protocol.budget_s)

    def _reach(self, worker: Worker, seconds: float) -> list[tuple[Roof, float, int]]:
        """Look for the fastest roofs: each with the seconds of a call and the calls of a sample."""
        left = self._left()
        room = room_for_ceilings(left.cases, self._room())
        asked = roofs_for(left.shown, self.costs, caches(), room)
        if not asked:
            return []
        self._tell(f"{self._which()}  looking for ceilings")
        roofs = [jsonable.encode(roof) for roof in asked]
        answer = self._ask_of_reference(
            worker, {"do": "explore", "roofs": roofs, "seconds": seconds, "keep": KEPT_ROOFS}
        )
        told = answer.get("found", []) if answer else []
        found = [(jsonable.decode(Roof, one["roof"]), float(one["seconds"]), int(one["calls"])) for one in told]
        self._reached += [Ceiling(roof=roof, seconds=took) for roof, took, _ in found]
        return found

    def _ask_of_reference(self, worker: Worker, request: Message) -> Message:
        """Ask the worker of the reference; empty where it can't. One that is lost ends the looking at roofs."""
        try:
            answer = worker.ask({**request, "label": self.plan.reference}, self.plan.protocol.timeout_s)
            if answer.get("ends"):
                raise WorkerLost(answer["failure"], answer["message"])
        except WorkerLost:
            self._roof_calls = {}
            raise
        return {} if "failure" in answer else answer

    def _due_roofs(self, place: _Place) -> list[str]:
        """The roofs whose turn it is in this round: those that may bind a row, as often as their share of the run's
        time allows; in the first round of each worker all, whatever it takes, within what is theirs of the whole run.
        """
        if place.round < 0 or self._ceilings_s + self._roof_set_s > CEILINGS_S:
            return []
        if not place.round:
            return list(self._roof_calls)
        share = self._roofs_s + self._roof_set_s <= ROOFS * self._clock.elapsed_s
        return [name for name in self._roof_calls if name in self._may_bind] if share else []

    def _roof(self, worker: Worker, place: _Place, name: str, turn: int) -> None:
        """One sample of a roof; one that can't be had is dropped, and fails no case."""
        roof, calls = next(roof for roof in self.roofs if roof.name == name), self._roof_calls[name]
        answer = self._ask_of_reference(worker, {"do": "roof", "roof": jsonable.encode(roof), "calls": calls})
        if not answer or not answer.get("value", 0) > 0:
            self._roof_calls.pop(name, None)
            return
        self._add(
            Sample(
                case=name, metric=ROOF, worker=place.worker, round=place.round, order=turn, value=answer["value"],
                calls=calls, waited=answer.get("waited"), placement=place.placement,
            )
        )  # fmt: skip

    def _keep(self, label: str, metric: str, index: int, value: float) -> None:
        """A sample of which a worker makes one."""
        self._add(Sample(case=label, metric=metric, worker=index, round=0, order=0, value=value, calls=1))

    def _rounds(self, worker: Worker, index: int) -> None:
        """One round of practice, then as many clean ones as are wanted, their tensors placed anew every few of them.

        With a budget, disturbed rounds are made up for until this worker's share of it is over.
        """
        self._round(worker, _Place(index, -1, 0))
        self._clock.rounds_begin()
        tally, place = _Tally(self.plan), _Place(index, 0, 0)
        while not self._enough(tally, place):
            tally.add(self._round(worker, place))
            place = place.next()
            if not self._whole and tally.due(self._clock.amount.rounds_each):
                self._look(self._left(), Advance(elapsed_s=self._clock.begun_s))
            if not self._enough(tally, place) and tally.due(self._clock.amount.rounds_each):
                tally.placed()
                if self._placed(worker, place):
                    place = replace(place, placement=place.placement + 1)
        self._made.append((tally.clean, place.placement + 1))

    def _enough(self, tally: _Tally, place: _Place) -> bool:
        """Whether a worker has made what it should: so many clean rounds, or as many as its time allows."""
        protocol, wanted = self.plan.protocol, self._clock.amount.rounds
        if protocol.precision is None or protocol.budget_s is None:
            return place.round >= protocol.rounds
        if place.round < protocol.rounds and self._alive():
            return False
        if not self._alive():
            return True
        if tally.clean >= wanted:
            return not self._is_last() or place.round >= LONGEST * wanted
        over = self._clock.elapsed_s >= self._clock.deadline_s(self._whole, protocol.budget_s)
        return over or place.round >= LONGEST * wanted

    def _is_last(self) -> bool:
        """Whether what is left of the budget is too little for another worker and the precision is not foreseen: then
        the rounds of this one are what it can be spent on.
        """
        protocol = self.plan.protocol
        if self._clock.precise or self._whole + 1 < protocol.workers or protocol.budget_s is None:
            return False
        least = Amount(rounds_each=protocol.rounds + 2, placements=1)  # the rest of this worker takes a moment too
        return not self._fits(least) and self._clock.has_rounds(protocol.budget_s)

    def _placed(self, worker: Worker, place: _Place) -> bool:
        """Give every case's tensors new places; whether any has one. A case that holds other memory stays."""
        seed, moved = f"{self.plan.protocol.seed}/{place.worker}/{place.round}", False
        for label in [label for label in self._alive() if label not in self.placed_once]:
            answer = self._try(worker, label, {"do": "place", "label": label, "seed": seed})
            if answer and answer["moved"]:
                moved = True
            elif answer:
                self.placed_once.add(label)
        self._clock.placed()
        return moved

    def _round(self, worker: Worker, place: _Place) -> dict[str, bool]:
        """One sample of every case, in an order that depends on nothing but seed, worker and round; -1 is practice.

        Gives for each case whether its sample was clean.
        """
        roofs = self._due_roofs(place)
        order = [*self._alive(), *roofs]
        random.Random(f"{self.plan.protocol.seed}/{place.worker}/{place.round}").shuffle(order)
        if self.plan.protocol.reversed:
            order.reverse()
        clean: dict[str, bool] = {}
        took: dict[str, float] = {}  # seconds for the sample of a roof
        for turn, label in enumerate(order):
            if label in roofs:
                start = self.now()
                self._roof(worker, place, label, turn)
                took[label] = self.now() - start
            elif (found := self._sample(worker, place, label, turn)) is not None:
                clean[label] = found
        if roofs:
            self._roof_set_s = sum(seconds for name, seconds in took.items() if name in self._may_bind)
            self._roofs_s += sum(took.values())
            self._ceilings_s += sum(took.values())
        if place.round >= 0:
            self._clock.round_done()
            self._quiet = any(clean.values())
        planned = self._clock.amount.rounds
        what = f"round {place.round + 1}/{planned}" if place.round < planned else "waiting for quiet"
        self._tell(f"{self._which()}  {what}", place.round + 1)
        return clean

    def _sample(self, worker: Worker, place: _Place, label: str, turn: int) -> bool | None:
        """One sample of a case, taken again where it was disturbed and there is a budget for it; all are kept.

        After a round without a clean sample it is not: where nothing helps, every case should have its rounds. Gives
        whether the last one was clean, None for one of practice or a case that has failed.
        """
        again = self.plan.protocol.precision is not None and place.round >= 0 and self._quiet
        attempts = ATTEMPTS if again else 1
        clean = None
        for _ in range(attempts):
            calls = self._calls[label]
            draw = self.jury.draw(self.inputs[label].count if label in self.inputs else calls)
            looked = {"looks": draw.looks} if self.jury.sits else {}
            answer = self._try(
                worker, label, {"do": "sample", "label": label, "calls": calls, "salt": draw.salt, **looked}
            )
            if not answer or self._suspected(label, answer):
                return None
            self._note(label, answer)
            if "device" in answer:
                self.sightings.add(place.worker, self.plan.case(label).workload.device, answer["device"])
            self._seconds[label].append(answer["value"])
            if place.round < 0:
                return None
            sample = Sample(
                case=label,
                metric=LATENCY,
                worker=place.worker,
                round=place.round,
                order=turn,
                value=answer["value"],
                calls=self._calls[label],
                waited=answer.get("waited"),
                placement=place.placement,
                throttled=answer.get("throttled"),
            )
            self._add(sample)
            self._keep_apart(sample, answer)
            if clean := is_clean(sample):
                break
        return clean

    def _keep_apart(self, sample: Sample, answer: Message) -> None:
        """What the device worked for a call, and what a call took the host, where an accelerator tells."""
        for metric in (DEVICE_TIME, HOST_TIME):
            if answer.get(metric) is not None:
                self._add(replace(sample, metric=metric, value=answer[metric]))

    def _suspected(self, label: str, answer: Message) -> bool:
        """Whether an answer itself shows that a case can't be trusted; its evidence is kept for the judge."""
        evidence = answer.get("evidence", [])
        problems = [one["problem"] for one in evidence if one.get("problem")]
        if name := answer.get("replaced"):
            self._suspect(label, f"it has replaced {name}")
        elif problems:
            self._suspect(label, f"in a timed call {problems[0]}")
        for one in evidence:
            self.jury.hear(label, one)
        return label not in self._alive()

    def _suspect(self, label: str, why: str) -> None:
        """A case that can't be trusted. The control is the reference once more, and so is what is true of it."""
        self._fail(label, FailureKind.SUSPECT.value, why)
        if label == CONTROL and self.plan.reference in self._alive():
            self._fail(self.plan.reference, FailureKind.SUSPECT.value, why)

    def _judge(self, *, at_the_end: bool = False) -> None:
        """Have judged what waits, as far as there is time for it."""
        for label in self._alive():
            seconds = self.jury.due(label, self._clock.elapsed_s)
            if seconds is None and at_the_end and self.jury.waits(label):
                seconds = 0.0
            if seconds is not None:
                self._tell(f"judging {label}")
                why = self.jury.judge(label, seconds, self.plan, usable_memory())
                if (found := self.jury.found(label)) is not None:
                    self.on_found(found)
                if why:
                    self._suspect(label, why)

    def _hold_against_floors(self, worker: Worker) -> None:
        """What is faster than this machine can be is measured again, ceilings too, and is suspect then."""
        if not self.costs:
            return
        if not self._reached:
            self._reach(worker, self._exploring_s)
        for label in self._below_floor():
            self._reach(worker, FLOOR_S)
            self._seconds[label].clear()
            place = _Place(0, -1, 0)  # no round of the run's
            for _ in range(AGAIN):
                self._sample(worker, place, label, 0)
            used = {label: self.jury.used(label, self.plan, usable_memory())}
            if label in self._below_floor(used):
                floor, took = self._floors(used)[label], median(self._seconds[label])
                if below(took, least := self._undisturbed(worker, floor)):
                    text = f"{quantity(took, TIME)} a call can't be: {WHAT_TAKES[floor.bound]} this machine"
                    self._suspect(label, f"{text} {quantity(least.seconds, TIME)}")

    def _undisturbed(self, worker: Worker, floor: Floor) -> Floor:
        """The floor by samples of its roof that nothing disturbed; 0 s without any: a busy machine says nothing
        of what it could do.
        """
        known = [ceiling for ceiling in self._reached if ceiling.roof.name == floor.roof]
        best = min(known, key=lambda ceiling: ceiling.seconds)
        clean = []
        for _ in range(LOOKS):
            request = {"do": "roof", "roof": jsonable.encode(best.roof), "calls": self._roof_calls.get(floor.roof, 1)}
            answer = self._ask_of_reference(worker, request)
            if answer.get("value", 0) > 0 and (answer.get("waited") is None or answer["waited"] <= WAITED):
                clean.append(answer["value"])
        share = min(1.0, min(clean) / best.seconds) if clean else 0.0
        return replace(floor, seconds=floor.seconds * share)

    def _floors(self, used: dict[str, float | None]) -> dict[str, Floor]:
        return floors_of(self._left().shown, self.costs, quickest(self._reached, self.samples), used)

    def _below_floor(self, used: dict[str, float | None] | None = None) -> list[str]:
        floors = self._floors(used or {})
        return [
            label
            for label in self._alive()
            if label in floors and self._seconds[label] and below(median(self._seconds[label]), floors[label])
        ]

    def _which(self) -> str:
        return f"worker {self._whole + 1}/{max(self._clock.workers, self._whole + 1)}"

    def _once(self, worker: Worker, label: str, job: str, metrics: list[Metric], index: int) -> None:
        """Exact metrics need one process only; where they can't be had, the row keeps its latency."""
        try:
            answer = self._ask(worker, label, {"do": job, "label": label})
        except _CaseFailed as problem:
            text = f"{metrics[0].group} could not be measured: {problem.args[0]}"
            self._warn(Note(label=label, text=text, kind=NoteKind.GENERAL))
            return
        for metric in metrics:
            if (value := answer.get(metric.name)) is not None:
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
        if answer.get("ends") or ("failure" in answer and not label):  # no case's, so the worker is of no use
            raise _Lost(label, answer["failure"], answer["message"], known=bool(answer.get("ends")))
        if "failure" in answer:
            raise _CaseFailed(answer["message"], answer["failure"])
        return answer

    def _lose(self, index: int, lost: WorkerLost) -> None:
        """What a lost worker had measured stays, and counts if it made its fewest rounds (verdict.whole_rounds).

        The case that it was busy with is dropped at its second loss, or where it hung before any worker was whole:
        a single death may be the worker's own, and a hang would cost the whole timeout again. One that broke the
        device is dropped at once: the worker has said so.
        """
        label = lost.label if isinstance(lost, _Lost) else ""
        self._losses[label] += 1
        hung = lost.kind == FailureKind.TIMEOUT.value and not self._whole
        known = isinstance(lost, _Lost) and lost.known
        if label and (hung or known or self._losses[label] > 1):
            self._fail(label, lost.kind, str(lost))
        elif self._losses[label] >= RESTARTS:
            raise Unfinished(f"workers are lost again and again: {lost}", "`ffnbench env` tells what else runs here")
        else:
            self._warn(Note(label=label, text=f"worker {index + 1} was lost: {lost}", kind=NoteKind.GENERAL))

    def _fail(self, label: str, kind: str, message: str) -> None:
        failure = Failure(case=label, kind=FailureKind(kind), message=message)
        self.failures.append(failure)
        self.on_found(failure)

    def _add(self, sample: Sample) -> None:
        self.samples.append(sample)
        self.on_found(sample)

    def _warn(self, note: Note) -> None:
        self.warnings.append(note)
        self.on_found(note)

    def _tell(self, text: str, round_: int = 0) -> None:
        self.on_progress(self._clock.progress(self._whole, round_, text))


class _Lost(WorkerLost):
    """A worker lost while it was busy with a case. `known`: it has said itself that the case has broken its device."""

    def __init__(self, label: str, kind: str, message: str, *, known: bool = False) -> None:
        super().__init__(kind, message)
        self.label, self.known = label, known
