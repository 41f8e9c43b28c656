"""A machine made of dice: workers without a process and a clock that they turn
themselves. No torch, no waiting. And what counts of such machines share.

The real runner, statistics and decisions run on it, so their error rates can be
counted. A world does to seconds what real machines do: blocks with a speed and a layout
of their own, rounds with long tails, states that outlast a run, starters that differ,
drift, bursts, two layouts of one binary, rounds that remember the last one.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from math import exp, log, log1p
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ffnbench.common.choices import Mode
from ffnbench.device.environment import usable_cpus
from ffnbench.plan.cases import plan_variants
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import CONTROL, Case, Plan, Probe
from ffnbench.plan.protocol import protocol_of
from ffnbench.record.messages import OF_CASE, Failed, Greeting, Opened, Sampled
from ffnbench.record.result import Environment, FailureKind, Report, Run
from ffnbench.report.store import read_report
from ffnbench.run.world import World as Outside
from ffnbench.stats.rounds import FEWEST_CLEAN
from ffnbench.stats.stopping import StopRule

Task = TypeVar("Task")
Answer = TypeVar("Answer")

START_S, OPEN_S, CALL_S, SAMPLE_S = 1.5, 0.06, 0.01, 0.03
QUIET, DISTURBED = 0.003, 0.4  # share of a sample that threads wait, as it was seen
RESULTS = Path(__file__).resolve().parents[1] / "results"
# by row, of each sample the log of seconds and what waited
Measured = tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Standard deviations of log seconds, unless said otherwise."""

    name: str
    speed: float = 0.05  # of a worker, all its cases alike
    layout: float = 0.015  # of a case in a worker
    starter: float = 0.002  # of a case in the workers of one starter
    run: float = 0.0  # of a case in a whole run: a state that outlasts it
    sample: float = 0.045  # of one sample
    drift: float = 0.0  # a round, all cases alike
    burst: float = 0.0  # share of samples that a neighbour hits
    burst_size: float = 0.4
    memory: float = 0.0  # correlation of a case's sample with its last one
    neighbour_s: float = (
        0.0  # how long a neighbour works and rests by turns, on average
    )
    neighbour_sample: float = (
        0.2  # what it adds to a sample's scatter, and as much to its length
    )
    # of real runs: each simulated one is one of them, on top of all of the above
    workers: tuple[Measured, ...] = ()
    second_layout: float = 0.0  # share of workers in which a case has its slow layout
    second_size: float = 0.04


# scatters of a shared 2-core machine (docs/methodology.md): ratios of rounds 5-8 %, of
# blocks 2 %
WORLDS = (
    World(name="noisy", sample=0.055, layout=0.018),
    World(name="usual"),
    World(name="quiet", speed=0.01, sample=0.01, layout=0.004, starter=0.001),
    World(name="drift", drift=0.01),
    World(name="bursts", burst=0.15),
    World(name="neighbour", neighbour_s=3.0),
    World(name="two layouts", second_layout=0.2),
    World(name="autocorrelated", memory=0.8),
    World(name="all at once", drift=0.005, burst=0.1, memory=0.5, second_layout=0.1),
)
STATES = tuple(
    World(name=f"states of {share:.1%}", run=share / 2**0.5)
    for share in (0.005, 0.01, 0.02)
)


@dataclass(slots=True)
class Machine:
    """One simulated machine with its own clock and dice. `slowdowns` are those of the
    plan's workloads.
    """

    world: World
    plan: Plan
    seed: int
    clock_s: float = 0.0
    dice: random.Random = field(init=False)
    _state: dict[str, float] = field(default_factory=dict)
    _asked: Plan = field(init=False)
    _busy: bool = False
    _turn_s: float = 0.0

    def __post_init__(self) -> None:
        self.dice = random.Random(f"{self.world.name}/{self.seed}")
        self._asked = self.plan

    def truths(self) -> list[tuple[str, Case]]:
        """What stands behind each label that was asked for; behind the control, the
        reference.
        """
        labels = [case.label for case in self._asked.cases]
        return [
            (n, self.plan.case(self.plan.reference if n == CONTROL else n))
            for n in labels
        ]

    def state(self, case: Case) -> float:
        """What outlasts a run."""
        return self._state.setdefault(case.label, self.dice.gauss(0, self.world.run))

    def disturbed(self) -> bool:
        """Whether the neighbour works now."""
        while self.world.neighbour_s and self.clock_s >= self._turn_s:
            self._busy = not self._busy
            self._turn_s += self.dice.expovariate(1 / self.world.neighbour_s)
        return self._busy

    def launch(self) -> SimulatedStarter:
        """A further starter."""
        self.clock_s += START_S / 2  # two start side by side
        scatter = self.world.starter
        layout = {label: self.dice.gauss(0, scatter) for label, _ in self.truths()}
        return SimulatedStarter(self, layout)

    def now(self) -> float:
        """Seconds of this machine."""
        return self.clock_s

    def run(self, runner: Callable[..., Run]) -> Run:
        """Measure the plan here."""
        return self.measure(self.plan, runner)

    def measure(
        self, plan: Plan, runner: Callable[..., Run], stop: StopRule | None = None
    ) -> Run:
        """Measure a plan of these cases, maybe with a control: the truth about each is
        that of this machine's plan.
        """
        self._asked, self._state = plan, {}
        outside = Outside(
            launch=self.launch, now=self.now, describe=lambda *_: ENVIRONMENT
        )
        return runner(plan, outside, stop=stop)


class SimulatedStarter:
    """Answers the runner as a process would that can be forked, and as its forks."""

    ended = False

    def __init__(self, machine: Machine, layout: dict[str, float]) -> None:
        self._machine, self._layout = machine, layout
        # of the worker that was forked last: by case its mean, its last noise, and the
        # samples that it repeats
        self._means: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._samples: dict[str, Iterator[tuple[float, float]]] = {}
        self._taken = 0

    def fork(self, timeout_s: float) -> bool:
        """Do the jobs of a new worker from now on."""
        machine = self._machine
        world, dice = machine.world, machine.dice
        speed = dice.gauss(0, world.speed)
        self._means, self._last, self._samples, self._taken = {}, {}, {}, 0
        for label, case in machine.truths():
            layout = dice.gauss(0, world.layout) + world.second_size * (
                dice.random() < world.second_layout
            )
            fixed = (
                self._layout.get(label, 0.0)
                + machine.state(case)
                + log1p(case.workload.slowdown)
            )
            self._means[label] = speed + layout + fixed
        if world.workers:
            # any row may stand for any case, so that equal cases are equal on average
            rows = dice.sample(found := dice.choice(world.workers), len(found))
            for place, label in enumerate(self._means):
                row, start = (
                    rows[place % len(rows)],
                    dice.randrange(len(rows[0])) if place >= len(rows) else 0,
                )
                self._samples[label] = cycle((*row[start:], *row[:start]))
        return True

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        """What it would tell."""
        return Greeting()

    def leave(self) -> None:
        """There is no process."""

    def close(self) -> None:
        """There is no process."""

    def ask(
        self, job: str, timeout_s: float, /, label: str = "", **arguments: Any
    ) -> Any:
        """A sample by dice, and nothing where a real worker would build or check."""
        if job == "sample":
            log, disturbed = self._draw(label)
            waited = DISTURBED if disturbed else QUIET
            if self._samples:
                more, waited = next(self._samples[label])
                log += more
            self._machine.clock_s += SAMPLE_S
            return Sampled(value=CALL_S * exp(log), waited=waited)
        if job == "open":
            self._machine.clock_s += OPEN_S
            return Opened(calls=1)
        if job == "begin":
            return None
        if job in OF_CASE:
            return {}
        return Failed(kind=FailureKind.UNSUPPORTED, message="simulated")

    def _draw(self, label: str) -> tuple[float, bool]:
        """The log of seconds, and whether something took the CPU meanwhile."""
        world, dice = self._machine.world, self._machine.dice
        fresh = dice.gauss(0, world.sample)
        noise: float = (
            world.memory * self._last.get(label, 0.0)
            + (1 - world.memory**2) ** 0.5 * fresh
        )
        self._last[label] = noise
        self._taken += 1
        drift = world.drift * self._taken / len(self._means)
        burst = world.burst_size * dice.random() if dice.random() < world.burst else 0.0
        busy = self._machine.disturbed()
        if busy:
            burst += world.neighbour_sample * (1 + dice.gauss(0, 1))
        return self._means[label] + noise + drift + burst, busy


def as_measured(folder: Path = RESULTS) -> World:
    """A world whose workers are those of the committed runs. What rows differ by is no
    part of it.
    """
    runs = (read_report(path) for path in sorted(folder.glob("*/compare*.json")))
    workers = [one for run in runs for one in _workers_of(run)]
    return World(
        name="as measured",
        speed=0.0,
        layout=0.0,
        starter=0.0,
        sample=0.0,
        workers=tuple(workers),
    )


def _workers_of(run: Report) -> list[Measured]:
    """The workers of a run that made a few rounds of every row."""
    labels = [case.label for case in run.plan.shown]
    found = {(s.case, s.worker, s.round): s for s in run.samples if s.metric == LATENCY}
    middle = {
        name: median(s.value for s in found.values() if s.case == name)
        for name in labels
    }
    workers = []
    for worker in sorted({worker for _, worker, _ in found}):
        numbers = sorted({number for _, of, number in found if of == worker})
        rounds = [
            n for n in numbers if all((label, worker, n) in found for label in labels)
        ]
        rows = [[found[label, worker, n] for n in rounds] for label in labels]
        if len(rounds) >= FEWEST_CLEAN:
            workers.append(
                tuple(
                    tuple((log(s.value / middle[s.case]), s.waited or 0.0) for s in row)
                    for row in rows
                )
            )
    return workers


ENVIRONMENT = Environment(fingerprint="simulated", cpu="dice", usable_cpus=1)


def latency_plan(variants: str, *, d_model: int, **effort: float | None) -> Plan:
    """The plan of a comparison of latencies on one thread of a CPU, with these workers,
    this precision in percent or budget in seconds.
    """
    flags = {
        "d_model": (d_model,),
        "batch": (1,),
        "dtype": ("float32",),
        "mode": (Mode.FORWARD,),
        "device": ("cpu",),
        "threads": (1,),
    }
    protocol = protocol_of(**effort)
    metrics = ("latency",)
    return plan_variants(
        variants, flags, probe=Probe(), protocol=protocol, metrics=metrics
    )


def each(
    work: Callable[[Task], Answer], tasks: Sequence[Task], processes: int | None = None
) -> list[Answer]:
    """What every task came to, in order, by as many processes as there are CPUs; 1 is
    this very one.

    Other processes don't look for cycles of objects: there are none, and looking takes
    a tenth of the time.
    """
    count = processes or usable_cpus()
    if count == 1:
        return list(map(work, tasks))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=gc.disable) as pool:
        return list(pool.map(work, tasks))
