"""How far a run is, what its parts cost, how much the next worker makes, and how long it will still take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from ffnbench.plan import Plan, Protocol
from ffnbench.result import Progress
from ffnbench.stats.rounds import Table
from ffnbench.stats.stopping import FEWEST_ROUNDS, FEWEST_WORKERS, Answered, Pace, limit_met, rounds_wanted, scatter

MADE_UP = 4  # times the rounds that a worker should make: then it waits for quiet no longer


@dataclass(slots=True)
class Schedule:
    """Notes when rounds and workers end. `now` gives seconds; tests and simulations bring their own."""

    now: Callable[[], float]
    protocol: Protocol
    judged: bool = False  # at the end, which takes about as long as a worker does beside its rounds
    rounds: int = 0  # of the next worker
    whole: int = 0  # workers that are done
    _start: float = 0.0
    _worker_start: float = 0.0
    _last: float = 0.0
    _round_s: list[float] = field(default_factory=list)
    _rest_s: list[float] = field(default_factory=list)  # of a worker, beside its rounds
    _in_rounds: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._start = self._worker_start = self._last = self.now()
        self.rounds = self.protocol.rounds

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.now() - self._start

    def worker_begins(self) -> None:
        """Another worker is about to be made."""
        self._worker_start, self._in_rounds = self.now(), 0.0

    def rounds_begin(self) -> None:
        """The practice is over."""
        self._last = self.now()

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
        self.whole += 1

    def pace(self) -> Pace:
        """What a further worker and a round cost. The first worker finds out what the others know, and counts as little
        as can be.
        """
        rest = median(self._rest_s[1:] or self._rest_s or [0.0])
        return Pace(rest, median(self._round_s) if self._round_s else 0.0)

    @property
    def _after(self) -> float:
        """Seconds that pass after the last worker."""
        return self.pace().worker_s if self.judged else 0.0

    def look(self, table: Table) -> None:
        """From what was measured so far: how many rounds the next worker makes. The last one makes what there is time
        for.
        """
        protocol, pace = self.protocol, self.pace()
        if protocol.budget_s is None or not pace.round_s:
            return
        if protocol.precision is None:
            share_s = (protocol.budget_s - self.elapsed_s) / max(1, FEWEST_WORKERS - self.whole) - pace.worker_s
            self.rounds = max(FEWEST_ROUNDS, min(protocol.rounds, int(share_s / pace.round_s)))
            return
        self.rounds = rounds_wanted(protocol, scatter(table), pace, protocol.budget_s)
        room = int((protocol.budget_s - self.elapsed_s - self._after - pace.worker_s) / pace.round_s)
        self.rounds = max(protocol.rounds, min(self.rounds, room))

    def limit(self, table: Table, answered: Answered | None) -> str:
        """Which limit is met, "" for none."""
        budget = self.protocol.budget_s
        fits = budget is None or self.elapsed_s + self.pace().seconds(self.rounds) + self._after <= budget
        return limit_met(table, fits, answered, self.expected)

    @property
    def expected(self) -> int:
        """How many workers there will be when the budget ends, at the pace of those so far."""
        budget, elapsed = self.protocol.budget_s, self.elapsed_s
        if budget is None or not elapsed:
            return self.protocol.workers
        return max(self.whole, int(self.whole * budget / elapsed))

    def enough(self, made: int, clean: int) -> bool:
        """Whether a worker has made what it should: so many clean rounds, or as many as there is time for."""
        protocol = self.protocol
        if protocol.precision is None or protocol.budget_s is None:
            return made >= self.rounds
        if made < protocol.rounds:
            return False
        over = self.elapsed_s + self.pace().round_s + self._after > protocol.budget_s
        return clean >= self.rounds or over or made >= MADE_UP * self.rounds

    def progress(self, round_: int, text: str) -> Progress:
        """Share done, never less than before, and the time left once there is something to tell it by."""
        protocol, elapsed = self.protocol, self.elapsed_s
        if protocol.budget_s is not None:
            share, eta = elapsed / protocol.budget_s, max(0.0, protocol.budget_s - elapsed)
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
