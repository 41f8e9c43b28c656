"""Which exam a selftest is: of what it measures, checks or judges, simulated, on this machine, or read back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ffnbench import jsonable
from ffnbench.bench.environment import usable_cpus
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive
from ffnbench.files import content_of
from ffnbench.planning.effort import check_budget
from ffnbench.planning.foreseen import Foreseen
from ffnbench.request import DEFAULT_BUDGET_S, SelftestRequest
from ffnbench.result import Progress
from ffnbench.selftest.alarms import TOLERANCE, Alarm, broken_promises, check_plan
from ffnbench.selftest.checks import simulate_checks
from ffnbench.selftest.judge import Judgement, broken_by_cheats, measure_cheats, seconds_of_cheats
from ffnbench.selftest.live import BASELINE_RUNS, Trial, checks_in, measure, measure_checks
from ffnbench.selftest.machine import STATES, WORLDS
from ffnbench.selftest.rates import Rates, failures, simulate, total
from ffnbench.selftest.readings import Reading, contradictions, exam_plan
from ffnbench.selftest.worlds import chosen
from ffnbench.stats.regression import DEFAULT_LATENCY

T = TypeVar("T")
Listener = Callable[[Progress], None]
FEWEST_RUNS, MOST_RUNS = 14, 10**7
ENDED_EARLY = "interrupted; the table holds what was measured by then"
RUNS, CHECKS = 900, 60  # simulated runs, and baselines of simulated checks
REPEATS, CHECK_REPEATS, D_MODEL = 20, 10, 768


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an exam came to: of simulated runs `rates`, of checks `alarms`, of live runs `readings`,
    several together, or of cheats `judgements`; and the promises that were broken.
    """

    rates: tuple[Rates, ...] = ()
    readings: tuple[tuple[Reading, ...], ...] = ()
    alarms: tuple[Alarm, ...] = ()
    tolerance: float = TOLERANCE  # of these
    judgements: tuple[Judgement, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """What is to be done: called with a listener it is. `wait` is how long that takes, None for a simulation."""

    made: Callable[[Listener], Result]
    wait: Foreseen | None = None

    def __call__(self, listener: Listener) -> Result:
        return self.made(listener)


def exam(request: SelftestRequest) -> Exam:
    """What is to be done, with every mistake found first."""
    if not 0 <= seed_of(request) < 2**31:
        raise FfnbenchError(f"--seed {seed_of(request)} is out of range", "a seed is between 0 and 2^31 - 1")
    if request.saved:
        return _read_back(request)
    if request.judge:
        return _judge(seed_of(request))
    if request.live:
        return _live_checks(request) if request.checks else _live(request)
    return _simulated(request)


def seed_of(request: SelftestRequest) -> int:
    """The seed that was given, or 0."""
    return 0 if request.seed is None else request.seed


def _simulated(request: SelftestRequest) -> Exam:
    runs, seed = (CHECKS if request.checks else RUNS) if request.runs is None else request.runs, seed_of(request)
    if runs < FEWEST_RUNS:
        raise FfnbenchError(f"--runs {runs} is too few to count anything", f"give at least {FEWEST_RUNS}")
    if runs > MOST_RUNS:
        raise FfnbenchError("--runs is more than anybody can wait for", f"give at most {MOST_RUNS:,}")

    def rates(listener: Listener) -> Result:
        """Runs cover what they were made of; states that outlast a run are shown, and no run of one can cover them."""
        found = simulate(runs, seed=seed, worlds=WORLDS, counting=_counting(listener, "worlds"))
        beyond = simulate(runs // 3, seed=seed, worlds=STATES, counting=_counting(listener, "worlds with states"))
        whole = total(found)
        return Result(rates=(*found, whole, *beyond), broken=tuple(failures(whole)))

    def checks(listener: Listener) -> Result:
        worlds = (*WORLDS[:3], STATES[0])
        alarms = simulate_checks(
            check_plan(precision=None), DEFAULT_LATENCY, (0.0, 0.07, 0.10), runs // len(worlds), worlds,
            seed=seed, counting=_counting(listener, "baselines"),
        )  # fmt: skip
        return replace(of_alarms(alarms), tolerance=DEFAULT_LATENCY)

    return Exam(made=checks if request.checks else rates)


def _live(request: SelftestRequest) -> Exam:
    width, threads, repeats = _sizes(request, REPEATS)
    plan = exam_plan(d_model=width, threads=threads, budget=request.budget)
    trial = Trial(plan=plan, worlds=chosen(request.world), rivals=request.rivals)
    wait = Foreseen(seconds=trial.runs(repeats) * (plan.protocol.budget_s or 0.0), at_most=True)

    def made(listener: Listener) -> Result:
        readings = measure(trial, repeats, seed_of(request), _telling(listener, wait))
        whole = len(readings) == repeats * trial.readings
        return of_readings([readings]) if whole else Result(readings=(tuple(readings),), broken=(ENDED_EARLY,))

    return Exam(made=made, wait=wait)


def _live_checks(request: SelftestRequest) -> Exam:
    width, threads, repeats = _sizes(request, CHECK_REPEATS)
    budget = check_budget(DEFAULT_BUDGET_S if request.budget is None else request.budget)
    plan, worlds = check_plan(d_model=width, threads=threads), chosen(request.world)
    baseline_s = BASELINE_RUNS * (plan.protocol.budget_s or 0.0)
    wait = Foreseen(seconds=repeats * (baseline_s + len(checks_in(worlds)) * budget), at_most=True)

    def made(listener: Listener) -> Result:
        alarms = measure_checks(plan, worlds, repeats, budget, seed_of(request), _telling(listener, wait))
        whole = len({(a.condition, a.repeat, a.injected) for a in alarms}) == repeats * len(checks_in(worlds))
        return of_alarms(alarms) if whole else Result(alarms=tuple(alarms), broken=(ENDED_EARLY,))

    return Exam(made=made, wait=wait)


def _judge(seed: int) -> Exam:
    wait = Foreseen(seconds=seconds_of_cheats())

    def made(listener: Listener) -> Result:
        return of_judgements(measure_cheats(seed, usable_cpus(), _telling(listener, wait)))

    return Exam(made=made, wait=wait)


def of_judgements(found: list[Judgement]) -> Result:
    """Rows of cheats and of honest modules, with the promises that they broke."""
    whole = all(row.ran or row.cuda for row in found)
    broken = broken_by_cheats(found) if whole else [ENDED_EARLY]
    return Result(judgements=tuple(found), broken=tuple(broken))


def _sizes(request: SelftestRequest, repeats: int) -> tuple[int, int, int]:
    """Width, threads and repeats of a live exam."""
    given = {"d_model": request.d_model, "threads": request.threads, "repeats": request.repeats}
    default = {"d_model": D_MODEL, "threads": usable_cpus(), "repeats": repeats}
    width, threads, times = (require_positive(n, default[n] if v is None else v) for n, v in given.items())
    return width, threads, times


def _telling(
    listener: Listener, wait: Foreseen, now: Callable[[], float] = time.monotonic
) -> Callable[[float, str], None]:
    """Tells of the whole: the share that is done, and the time left, by the pace so far once there is one."""
    start = now()

    def tell(done: float, text: str) -> None:
        spent = now() - start
        whole = spent / done if done > 0 else wait.seconds
        listener(Progress(done=done, text=text, eta_s=max(0.0, whole - spent)))

    return tell


def of_readings(exams: list[list[Reading]]) -> Result:
    """Exams, with the promises that they broke together."""
    return Result(readings=tuple(map(tuple, exams)), broken=tuple(contradictions(exams)))


def of_alarms(alarms: list[Alarm]) -> Result:
    """Checks, with the promises that they broke."""
    return Result(alarms=tuple(alarms), broken=tuple(broken_promises(alarms)))


def _read_back(request: SelftestRequest) -> Exam:
    """Several files of --live together, as one."""
    if request.checks:
        alarms = [read_readings(path, Alarm, "ffnbench selftest --gate --live") for path in request.saved]
        return Exam(made=lambda _: of_alarms([alarm for of in alarms for alarm in of]))
    exams = [read_readings(path, Reading, "ffnbench selftest --live") for path in request.saved]
    return Exam(made=lambda _: of_readings(exams))


def _counting(listener: Listener, what: str) -> Callable[[int, int], None]:
    return lambda done, of: listener(Progress(done=done / of, text=f"simulating  {done} of {of} {what}"))


def read_readings(path: str, kind: type[T], command: str) -> list[T]:
    """What a live selftest saved; raises FfnbenchError for anything else, with the command that makes one."""
    hint = f"`{command} -o FILE.json` makes one"
    try:
        found = [jsonable.decode(kind, item) for item in jsonable.parse(content_of(path))]
    except (ValueError, TypeError) as problem:
        raise FfnbenchError(f"{path!r} is none that `{command}` saved: {problem}", hint) from problem
    if not found:
        raise FfnbenchError(f"{path!r} holds no readings", hint)
    return found
