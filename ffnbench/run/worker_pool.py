"""Where the workers of a run come from: forked by turns from a few starters, or each an
interpreter of its own.

A fork has torch loaded and a heap of its own, and costs a hundredth of an interpreter.
The forks of one starter share its address layout, so there are several starters, which
are forked by turns (stats/interval.py reckons with what differs between them). Where a
plan has several arms (`ab`), a worker is a group of processes, one for each arm, alive
at once; the runner asks them as one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ffnbench.choices import Backend
from ffnbench.common.errors import Unfinished
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.messages import A, Begin, Failed, Greeting, OfCase, Preload, WorkerRequest
from ffnbench.plan import CONTROL, THIS_INTERPRETER, Arm, Plan
from ffnbench.result import Side
from ffnbench.run.worker_process import START_TIMEOUT_S, WorkerLost
from ffnbench.stats.stopping import SERVES_S, STARTERS

RESTARTS = 3  # processes in a row that may be lost before a run ends
SERVES_STARTS = 10  # starters serve at least so many times the seconds of their start
NONE = "none"  # the value of a fact that one arm has and another has not


class Worker(Protocol):
    """What the runner needs of a worker; that of the tests is no process."""

    def greeting(self, timeout_s: float = ...) -> Greeting: ...
    def ask(self, request: WorkerRequest[A], timeout_s: float) -> A | Failed: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Starter(Worker, Protocol):
    """A process that can be forked, or serves as a worker itself."""

    @property
    def ended(self) -> bool: ...
    def fork(self, timeout_s: float) -> Worker | None: ...


Launch = Callable[..., Starter]  # of an arm; without an argument of THIS_INTERPRETER


def start_processes(plan: Plan, launch: Launch) -> Starter:
    """A process that measures a plan, or a group of them where there are arms of their
    own.
    """
    if plan.arms == (THIS_INTERPRETER,):
        return launch()
    members: dict[Arm, Starter] = {}
    try:
        for arm in plan.arms:
            members[arm] = launch(arm)
    except BaseException:
        for member in members.values():
            member.close()
        raise
    return WorkerGroup(plan, members)


class WorkerGroup:
    """One process of each arm, asked as one worker; a group of starters is a starter.
    Where one process is lost the whole group is given up, because their samples are
    compared within rounds that they made at the same time.
    """

    def __init__(self, plan: Plan, members: Mapping[Arm, Worker]) -> None:
        self._plan, self._members = plan, members
        self._arm_of = {case.label: case.arm for case in plan.cases}

    @property
    def ended(self) -> bool:
        """Whether one of them has ended."""
        return any(member.ended for member in self._members.values())  # type: ignore[attr-defined]

    def fork(self, timeout_s: float) -> WorkerGroup | None:
        """A group with a fork of each; None where one can't be forked."""
        forks: dict[Arm, Worker] = {}
        self.resume()
        for arm, member in self._members.items():
            fork = member.fork(timeout_s)  # type: ignore[attr-defined]
            if fork is None:
                for other in forks.values():
                    other.close()
                return None
            forks[arm] = fork
        return WorkerGroup(self._plan, forks)

    def greeting(self, timeout_s: float = START_TIMEOUT_S) -> Greeting:
        """The greeting of the reference's process, with the number of GPUs that all
        processes see, and with in what the arms differ.
        """
        greetings = {
            arm: member.greeting(timeout_s) for arm, member in self._members.items()
        }
        fewest = min(greeting.gpus for greeting in greetings.values())
        return replace(
            greetings[self._plan.arms[0]], gpus=fewest, sides=self._sides(greetings)
        )

    def _sides(self, greetings: Mapping[Arm, Greeting]) -> tuple[Side, ...]:
        """The cases of each arm but the control's, and the facts about it that are not
        the same for all arms.
        """
        facts = {
            arm: _facts(arm, greeting)
            for arm, greeting in greetings.items()
            if self._labels_of(arm) != (CONTROL,)
        }
        names = dict.fromkeys(
            name for facts_of_arm in facts.values() for name in facts_of_arm
        )
        differ = [
            name
            for name in names
            if len({of_arm.get(name, NONE) for of_arm in facts.values()}) > 1
        ]
        sides = []
        for arm, facts_of_arm in facts.items():
            cases = self._labels_of(arm)
            differing = tuple((name, facts_of_arm.get(name, NONE)) for name in differ)
            sides.append(
                Side(
                    name=arm.name or ", ".join(cases), cases=cases, differing=differing
                )
            )
        return tuple(sides)

    def ask(self, request: WorkerRequest[A], timeout_s: float) -> A | Failed:
        """Ask the process of the case's arm. What is asked before cases are measured
        goes to all processes, a plan to each with its own cases; the process of the
        reference answers anything else.
        """
        if isinstance(request, OfCase):
            return self._ask(self._arm_of[request.label], request, timeout_s)
        is_for_all = isinstance(request, Begin | Preload)
        if not is_for_all:
            return self._ask(self._plan.arms[0], request, timeout_s)
        answers: list[A | Failed] = [
            self._ask(arm, self._part_of(request, arm), timeout_s)
            for arm in self._members
        ]
        for answer in answers:
            if isinstance(answer, Failed):
                return answer
        return answers[0]

    def _ask(self, arm: Arm, request: WorkerRequest[A], timeout_s: float) -> A | Failed:
        """Ask one process while the others are stopped, whose OpenMP threads would spin
        for some milliseconds after a product, on the CPUs that this one needs.
        """
        member = self._members[arm]
        member.resume()
        try:
            return member.ask(request, timeout_s)
        finally:
            member.pause()

    def pause(self) -> None:
        """Stop all until they are resumed."""
        for member in self._members.values():
            member.pause()

    def resume(self) -> None:
        """Let all go on."""
        for member in self._members.values():
            member.resume()

    def close(self) -> None:
        """End every one."""
        self.resume()
        for member in self._members.values():
            member.close()

    def _labels_of(self, arm: Arm) -> tuple[str, ...]:
        return tuple(label for label, own in self._arm_of.items() if own == arm)

    def _part_of(self, request: Any, arm: Arm) -> Any:
        """A request as it goes to the process of an arm: a plan with the cases of the
        arm alone.
        """
        if not isinstance(request, Begin):
            return request
        cases = tuple(
            case for case in request.plan.cases if self._arm_of[case.label] == arm
        )
        return replace(request, plan=replace(request.plan, cases=cases))


def _facts(arm: Arm, greeting: Greeting) -> dict[str, str]:
    """What is known of an arm and of its worker, by the words for it."""
    facts = {"interpreter": arm.python or "ffnbench's own"}
    if arm.source and not arm.name:  # a name says it better
        facts["source"] = arm.source
    facts |= dict(arm.env)
    of_worker = {
        "python": greeting.python,
        "torch": greeting.torch,
        "torch commit": greeting.torch_commit,
        "default threads": greeting.torch_threads,
        "BLAS": greeting.blas,
        "CPU capability": greeting.cpu_capability,
        "CUDA": greeting.cuda,
        "HIP": greeting.hip,
        "GPUs": ", ".join(greeting.gpu_names),
    }
    facts |= {name: str(value) for name, value in of_worker.items() if value}
    return facts | dict(greeting.variables)


@dataclass(slots=True)
class WorkerPool:
    """Makes one worker after another. `wait_s` shortens the seconds for which an answer
    may be waited for.
    """

    plan: Plan
    launch: Launch
    now: Callable[[], float] = time.monotonic
    wait_s: Callable[[float], float] = float
    forks: bool = True  # until a starter says that it can't
    started: int = 0
    # the starters with their numbers, the next one that is forked first
    _ready: deque[tuple[int, Starter]] = field(default_factory=deque)
    _since: float = 0.0  # when these began to serve
    _start_s: float = 0.0  # the most seconds that a start took
    _preloaded: set[int] = field(default_factory=set)  # numbers of starters
    _preloads: bool = True  # until a starter is lost over it
    _cpus: int = 1  # that a starter may use

    def start(self, count: int = STARTERS) -> None:
        """Start so many starters, or one where nothing is timed, without waiting for
        them.
        """
        if "latency" not in self.plan.metrics:
            count = 1
        for _ in range(count):
            self._ready.append((self.started, start_processes(self.plan, self.launch)))
            self.started += 1
        self._since = self.now()

    def greeting(self, needed: int = 0) -> Greeting:
        """The greeting of the next starter. Waits until all have started, because
        nothing may be measured while a process starts. Starts new ones where none is
        left that serves on.
        """
        start = self.now()
        self._close_ended()
        if not self._ready:
            count = STARTERS
            if not self.forks:  # each is one worker, and as many start at once as can
                at_once = max(1, self._cpus // len(self.plan.arms))
                count = max(1, min(needed, at_once))
            self.start(count)
        greetings = [
            starter.greeting(self.wait_s(START_TIMEOUT_S)) for _, starter in self._ready
        ]
        self._start_s = max(self._start_s, self.now() - start)
        self._cpus = greetings[0].usable_cpus
        return greetings[0]

    def next(self, needed: int) -> tuple[int, Worker]:
        """The number of the next starter, and a worker forked from it, or the starter
        itself where it can't be forked. `needed` is how many workers will be wanted in
        all. Raises Unfinished where one starter after another is lost.
        """
        for _ in range(RESTARTS):
            self.greeting(needed)
            number, starter = self._ready.popleft()
            if not self.forks:
                return number, starter
            try:
                worker = self._fork_of(number, starter)
            except WorkerLost as lost:
                starter.close()
                last = lost
                continue
            if worker is None:
                return number, starter
            self._ready.append((number, starter))
            return number, worker
        raise Unfinished(
            f"a worker can't be forked: {last}", "`ffnbench env` shows what else runs"
        )

    def _fork_of(self, number: int, starter: Starter) -> Worker | None:
        """A fork of a starter; None where it can't be forked. Before its first fork it
        imports what its forks need. Once a starter was lost over that, each fork
        imports for itself, so that its own case is known to be the cause.
        """
        if self._preloads and number not in self._preloaded:
            self._preloaded.add(number)
            try:
                self._preload(starter)
            except WorkerLost:
                self._preloads = False
                raise
        worker = starter.fork(self.wait_s(self.plan.protocol.timeout_s))
        self.forks = worker is not None
        return worker

    def _preload(self, starter: Starter) -> None:
        """Have a starter import code of the user's and the compiler, where cases need
        them.
        """
        targets = set()
        for case in self.plan.cases:
            if isinstance(case.ffn, ImportedSpec):
                targets.add(case.ffn.target)
        compiles = any(
            case.workload.backend == Backend.COMPILE for case in self.plan.cases
        )
        if targets or compiles:
            preload = Preload(targets=tuple(sorted(targets)), compiles=compiles)
            starter.ask(preload, self.wait_s(self.plan.protocol.timeout_s))

    def _close_ended(self) -> None:
        """Close the starters that have ended with a fork, or have served long enough:
        for the longer, the longer they take to start.
        """
        serves_s = max(SERVES_S, SERVES_STARTS * self._start_s)
        have_served = self.forks and self.now() - self._since > serves_s
        ready = list(self._ready)
        self._ready.clear()
        for number, starter in ready:
            if have_served or starter.ended:
                starter.close()
            else:
                self._ready.append((number, starter))

    def close(self) -> None:
        """End every process."""
        while self._ready:
            self._ready.popleft()[1].close()
