"""Which exam a selftest is: of what it measures or of what it checks, simulated, on this machine, or read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive
from ffnbench.planning.effort import check_budget
from ffnbench.request import DEFAULT_BUDGET_S, SelftestRequest, spelling
from ffnbench.result import Progress
from ffnbench.selftest.alarms import Alarm, broken_promises, simulate_checks
from ffnbench.selftest.live import CHECKS, live_check_plan, live_plan, measure, measure_checks
from ffnbench.selftest.rates import CONDITIONS, RIVALS, Rates, Reading, failures, simulate, total

T = TypeVar("T")
Listener = Callable[[Progress], None]
FEWEST_RUNS = 12
ENDED_EARLY = "interrupted; the table holds the repeats that were whole by then"
RUNS, REPEATS, BUDGET_S, D_MODEL, TOKENS = 1000, 5, 20.0, 256, 256
CHECK_RUNS, CHECK_REPEATS, CHECK_D_MODEL = 140, 20, 768


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an exam came to: one of the three, and the promises that were broken. Several live ones stand together."""

    rates: tuple[Rates, ...] = ()
    readings: tuple[tuple[Reading, ...], ...] = ()
    alarms: tuple[Alarm, ...] = ()
    broken: tuple[str, ...] = ()


Exam = Callable[[Listener], Result]


def exam(request: SelftestRequest) -> Exam:
    """What is to be done, with every mistake found first."""
    if (request.live or request.saved) and request.runs is not None:
        raise FfnbenchError("--runs is about simulated runs", "give --live or --from without it")
    if request.live and request.saved:
        raise FfnbenchError("--from shows what --live saved", "give one of the two")
    if not 0 <= request.seed < 2**31:
        raise FfnbenchError(f"--seed {request.seed} is out of range", "a seed is between 0 and 2^31 - 1")
    if request.saved:
        return _read_back(request)
    if request.live:
        return _live_checks(request) if request.checks else _live(request)
    return _simulated(request)


def _simulated(request: SelftestRequest) -> Exam:
    for name in ("repeats", "budget", "d_model"):
        if getattr(request, name) is not None:
            raise FfnbenchError(f"{spelling(name)} needs --live", "simulated runs take no time and have no width")
    runs = request.runs if request.runs is not None else CHECK_RUNS if request.checks else RUNS
    if runs < FEWEST_RUNS:
        raise FfnbenchError(f"--runs {runs} is too few to count anything", f"give at least {FEWEST_RUNS}")

    def rates(listener: Listener) -> Result:
        found = simulate(runs, seed=request.seed, on_progress=_counting(listener, "worlds"))
        whole = total(found)
        return Result(rates=(*found, whole), broken=tuple(failures(whole)))

    def alarms(listener: Listener) -> Result:
        return of_alarms(simulate_checks(runs, seed=request.seed, on_progress=_counting(listener, "baselines")))

    return alarms if request.checks else rates


def _live(request: SelftestRequest) -> Exam:
    width = require_positive("d_model", request.d_model or D_MODEL)
    repeats = require_positive("repeats", REPEATS if request.repeats is None else request.repeats)
    plan = live_plan(BUDGET_S if request.budget is None else check_budget(request.budget), width, TOKENS)

    def made(listener: Listener) -> Result:
        readings = measure(plan, repeats, request.seed, lambda done, text: listener(Progress(done=done, text=text)))
        asked = len(CONDITIONS) * repeats * (1 + len(RIVALS)) * plan.compared
        return Result(readings=(tuple(readings),), broken=() if len(readings) == asked else (ENDED_EARLY,))

    return made


def _live_checks(request: SelftestRequest) -> Exam:
    width = require_positive("d_model", request.d_model or CHECK_D_MODEL)
    repeats = require_positive("repeats", CHECK_REPEATS if request.repeats is None else request.repeats)
    budget = check_budget(DEFAULT_BUDGET_S if request.budget is None else request.budget)
    plan = live_check_plan(width)

    def made(listener: Listener) -> Result:
        alarms = measure_checks(
            plan, repeats, budget, request.seed, lambda done, text: listener(Progress(done=done, text=text))
        )
        whole = len({(a.condition, a.repeat, a.injected) for a in alarms}) == repeats * len(CHECKS)
        return of_alarms(alarms) if whole else Result(alarms=tuple(alarms), broken=(ENDED_EARLY,))

    return made


def of_alarms(alarms: list[Alarm]) -> Result:
    """Checks, with the promises that they broke."""
    return Result(alarms=tuple(alarms), broken=tuple(broken_promises(alarms)))


def _read_back(request: SelftestRequest) -> Exam:
    """Several files of --live together, as one."""
    if request.checks:
        alarms = [read_readings(path, Alarm, "ffnbench selftest --gate --live") for path in request.saved]
        return lambda _: of_alarms([alarm for of in alarms for alarm in of])
    tables = tuple(tuple(read_readings(path, Reading, "ffnbench selftest --live")) for path in request.saved)
    return lambda _: Result(readings=tables)


def _counting(listener: Listener, what: str) -> Callable[[int, int], None]:
    return lambda done, of: listener(Progress(done=done / of, text=f"simulating  {done} of {of} {what}"))


def read_readings(path: str, kind: type[T], command: str) -> list[T]:
    """What a live selftest saved; raises FfnbenchError for anything else, with the command that makes one."""
    hint = f"`{command} -o FILE.json` makes one"
    try:
        found = [jsonable.decode(kind, item) for item in json.loads(Path(path).read_text(encoding="utf-8"))]
    except OSError as problem:
        raise FfnbenchError(f"cannot read {path!r}: {problem.strerror}", "is the path right?") from problem
    except (ValueError, TypeError) as problem:
        raise FfnbenchError(f"{path!r} is none that `{command}` saved: {problem}", hint) from problem
    if not found:
        raise FfnbenchError(f"{path!r} holds no readings", hint)
    return found
