"""How far a run is, what its parts cost, how much the next worker makes, and how long it will still take.

A budget gives way to the least that can answer; a bound ends everything: rounds, and requests that have begun.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from ffnbench.plan import Plan, Protocol
from ffnbench.result import Progress
from ffnbench.stats.rounds import RoundTable
from ffnbench.stats.stopping import Pace, StopRule, rounds_wanted, scatter

MADE_UP = 4  # times the rounds that a worker should make: then it waits for quiet no longer
FEWEST = 2  # rounds of a worker, where the budget has no time for more
LATER = 0.2  # of what the first worker took beside its rounds, a later one takes: it checks and looks for nothing
LATE_S = 1.0  # that a request may end after the budget


@dataclass(slots=True)
class Schedule:
    """Notes when rounds and workers end. `now` gives seconds; tests and simulations bring their own."""

    now: Callable[[], float]
    protocol: Protocol
    spent_s: float = 0.0  # of the budget, before the run
    bound_s: float = math.inf  # since the budget began
    rounds: int = 0  # of the next worker
    whole: int = 0  # workers that are done
    out_of_time: bool = False  # a sample was not begun, since it would have lasted for too long
    _start: float = 0.0
    _worker_start: float = 0.0
    _last: float = 0.0
    _round_s: list[float] = field(default_factory=list)
    _rest_s: list[float] = field(default_factory=list)  # of a worker, beside its rounds
    _first_s: float = 0.0  # of the first one, until its rounds began
    _in_rounds: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._worker_start = self._last = self.now()
        self._start = self._worker_start - self.spent_s
        self.rounds = self.protocol.rounds

    @property
    def elapsed_s(self) -> float:
        """Seconds since the budget began."""
        return self.now() - self._start

    @property
    def over(self) -> bool:
        """Whether nothing more may begin."""
        return self.elapsed_s >= self.bound_s

    @property
    def left_s(self) -> float:
        """Seconds that are left for rounds and what comes before them: of the budget, or what the fewest workers take,
        within the bound.
        """
        protocol, spent_s = self.protocol, self.elapsed_s
        rounds = protocol.rounds if self.bound_s == math.inf else FEWEST
        due_s = (protocol.workers - self.whole) * self.pace().seconds(rounds + 1) - self._in_rounds
        return min(self.bound_s - spent_s, max(0.0, due_s, (protocol.budget_s or math.inf) - spent_s))

    def wait_s(self, most_s: float) -> float:
        """For how long an answer may be waited for."""
        return max(0.0, min(most_s, self.bound_s + LATE_S - self.elapsed_s))

    def worker_begins(self) -> None:
        """Another worker is about to be made."""
        self._worker_start, self._in_rounds = self.now(), 0.0

    def rounds_begin(self) -> None:
        """The practice is over."""
        self._last = self.now()
        self._first_s = self._first_s or self._last - self._worker_start - self._in_rounds

    def round_done(self) -> None:
        """One more round."""
        now = self.now()
        self._round_s.append(now - self._last)
        self._in_rounds += now - self._last
        self._last = now

    def beside(self, seconds: float) -> None:
        """So long was spent on what says nothing of further workers."""
        self._in_rounds += seconds

    def worker_done(self) -> None:
        """One more whole worker."""
        self._rest_s.append(self.now() - self._worker_start - self._in_rounds)
        self.whole, self._in_rounds = self.whole + 1, 0.0

    def pace(self) -> Pace:
        """What a further worker and a round cost. The first worker finds out what the others know, and counts as little
        as can be.
        """
        rest = median(self._rest_s[1:] or [LATER * self._first_s])
        return Pace(rest, median(self._round_s) if self._round_s else 0.0)

    def look(self, table: RoundTable) -> None:
        """From what was measured so far: how many rounds the next worker makes. The last one makes what there is time
        for.
        """
        protocol, pace = self.protocol, self.pace()
        if protocol.precision is None or protocol.budget_s is None or not pace.round_s:
            return
        self.rounds = rounds_wanted(protocol, scatter(table), pace, protocol.budget_s)
        room = int((self.left_s - pace.worker_s) / pace.round_s)
        self.rounds = max(protocol.rounds, min(self.rounds, room))

    def limit(self, table: RoundTable, stop: StopRule) -> str:
        """Which limit is met, "" for none."""
        rounds = 1 if self.whole < self.protocol.workers else self.rounds
        fits = not self.out_of_time and self.left_s >= self.pace().seconds(rounds)
        return stop.limit(table, fits=fits, expected=self.expected)

    @property
    def expected(self) -> int:
        """How many workers there will be when the budget ends, at the pace of those so far."""
        left_s, a_worker_s = self.left_s, self.pace().seconds(self.rounds)
        if not a_worker_s or left_s == math.inf:
            return self.protocol.workers
        return self.whole + int(left_s / a_worker_s)

    def enough(self, made: int, clean: int) -> bool:
        """Whether a worker has made what it should: so many clean rounds, or as many as there is time for, where those
        that are still due are to make as many.
        """
        protocol, pace = self.protocol, self.pace()
        if self.out_of_time:
            return True
        if protocol.budget_s is None:
            return made >= protocol.rounds
        if made < FEWEST:
            return self.left_s < pace.round_s
        due = max(0, protocol.workers - self.whole - 1)
        over = self.left_s < pace.round_s + due * pace.seconds(made + 1)
        return over or (made >= protocol.rounds and (clean >= self.rounds or made >= MADE_UP * self.rounds))

    def progress(self, round_: int, text: str) -> Progress:
        """Share done, never less than before, and the time left once there is something to tell it by."""
        protocol, elapsed = self.protocol, self.elapsed_s
        if protocol.budget_s is not None:
            eta = self.left_s
            share = elapsed / (elapsed + eta)
        else:
            share = (self.whole + min(1.0, round_ / self.rounds)) / max(protocol.workers, self.whole + 1)
            eta = elapsed * (1 / share - 1) if share else 0.0
        self._shown = max(self._shown, min(share, 1.0))
        return Progress(done=self._shown, text=text, eta_s=eta if len(self._round_s) >= 3 else None)


@dataclass(slots=True)
class Tally:
    """The clean rounds of one worker, by row: a row's is clean where its reference's sample is as well."""

    plan: Plan
    made: int = 0
    clean: int = 0  # of the row with the fewest
    _rows: Counter[str] = field(default_factory=Counter)

    def add(self, clean: dict[str, bool]) -> None:
        """A round, by case whether its sample was clean."""
        self.made += 1
        for label, own in clean.items():
            self._rows[label] += own and clean.get(self.plan.reference_of(label), True)
        self.clean = min((self._rows[label] for label in clean), default=0)  # one that has failed counts no more
