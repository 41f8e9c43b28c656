"""How long a run may still take, what its parts cost, and how much the next worker
makes.

A budget gives way to the least that can answer; a bound ends everything: rounds, and
requests that have begun.
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
from ffnbench.stats.stopping import Pace, StopRule, rounds_wanted, scatter_of_rounds

# the rounds that a worker should make: then it waits for quiet no longer
MOST_TIMES_ROUNDS = 4
FEWEST = 2  # rounds of a worker, where the budget has no time for more
# of what the first worker took beside its rounds, a later one takes: it checks and
# finds out nothing
LATER_WORKER = 0.2
LATE_S = 1.0  # that a request may end after the budget
FEWEST_FOR_ETA = 3  # rounds after which the time that is left is told


@dataclass(slots=True)
class Budget:
    """The time of a run. It is told when workers and rounds begin and end, and answers
    how much there is left.

    `now` gives seconds; tests and simulations bring their own clock.
    """

    now: Callable[[], float]
    protocol: Protocol
    spent_s: float = 0.0  # before the run
    bound_s: float = math.inf  # since the budget began
    rounds: int = 0  # of the next worker
    workers_done: int = 0
    # a sample was not begun, since it would have lasted for too long
    out_of_time: bool = False
    _began: float = 0.0
    _worker_began: float = 0.0
    _last_round_ended: float = 0.0
    _round_s: list[float] = field(default_factory=list)
    # of each worker that is done
    _beside_rounds_s: list[float] = field(default_factory=list)
    _first_worker_s: float = 0.0  # of the first worker, until its rounds began
    # of this worker, with what says nothing of further ones
    _worker_in_rounds_s: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._worker_began = self._last_round_ended = self.now()
        self._began = self._worker_began - self.spent_s
        self.rounds = self.protocol.rounds

    @property
    def elapsed_s(self) -> float:
        """Seconds since the budget began."""
        return self.now() - self._began

    @property
    def is_past_bound(self) -> bool:
        """Whether nothing more may begin; never where the budget is no bound."""
        return self.elapsed_s >= self.bound_s

    @property
    def left_s(self) -> float:
        """Seconds that are left for rounds and what comes before them: of the budget,
        or what the fewest workers take, within the bound.
        """
        elapsed_s = self.elapsed_s
        rounds = FEWEST
        if self.bound_s == math.inf:
            rounds = self.protocol.rounds
        workers_due = self.protocol.workers - self.workers_done
        due_s = workers_due * self.pace().seconds(rounds + 1) - self._worker_in_rounds_s
        budget_s = self.protocol.budget_s or math.inf
        return min(self.bound_s - elapsed_s, max(0.0, due_s, budget_s - elapsed_s))

    def wait_s(self, most_s: float) -> float:
        """For how long an answer may be waited for."""
        return max(0.0, min(most_s, self.bound_s + LATE_S - self.elapsed_s))

    def worker_begins(self) -> None:
        """Another worker is about to be made."""
        self._worker_began = self.now()
        self._worker_in_rounds_s = 0.0

    def rounds_begin(self) -> None:
        """The practice is over."""
        self._last_round_ended = self.now()
        if not self._first_worker_s:
            self._first_worker_s = (
                self._last_round_ended - self._worker_began - self._worker_in_rounds_s
            )

    def round_done(self) -> None:
        """One more round."""
        now = self.now()
        round_s = now - self._last_round_ended
        self._round_s.append(round_s)
        self._worker_in_rounds_s += round_s
        self._last_round_ended = now

    def spent_once(self, seconds: float) -> None:
        """So long was spent on what no further worker does."""
        self._worker_in_rounds_s += seconds

    def worker_done(self) -> None:
        """One more complete worker."""
        self._beside_rounds_s.append(
            self.now() - self._worker_began - self._worker_in_rounds_s
        )
        self._worker_in_rounds_s = 0.0
        self.workers_done += 1

    def pace(self) -> Pace:
        """What a further worker and a round cost. The first worker finds out what the
        others know, and counts as little as can be.
        """
        worker_s = LATER_WORKER * self._first_worker_s
        if len(self._beside_rounds_s) > 1:
            worker_s = median(self._beside_rounds_s[1:])
        round_s = 0.0
        if self._round_s:
            round_s = median(self._round_s)
        return Pace(worker_s, round_s)

    def plan_rounds(self, table: RoundTable) -> None:
        """From what was measured so far: how many rounds the next worker makes. The
        last one makes what there is time for.
        """
        protocol, pace = self.protocol, self.pace()
        if protocol.precision is None or protocol.budget_s is None or not pace.round_s:
            return
        wanted = rounds_wanted(
            protocol, scatter_of_rounds(table), pace, protocol.budget_s
        )
        most = int((self.left_s - pace.worker_s) / pace.round_s)
        self.rounds = max(protocol.rounds, min(wanted, most))

    def limit(self, table: RoundTable, stop: StopRule) -> str:
        """Which limit is met, "" for none."""
        rounds = self.rounds
        if self.workers_done < self.protocol.workers:
            rounds = 1
        fits = not self.out_of_time and self.left_s >= self.pace().seconds(rounds)
        return stop.limit(table, fits=fits, expected=self.expected_workers)

    @property
    def expected_workers(self) -> int:
        """How many workers there will be when the budget ends, at the pace of those so
        far.
        """
        left_s, worker_s = self.left_s, self.pace().seconds(self.rounds)
        if not worker_s or left_s == math.inf:
            return self.protocol.workers
        return self.workers_done + int(left_s / worker_s)

    def is_enough(self, rounds: int, clean: int) -> bool:
        """Whether a worker has made what it should: so many clean rounds, or as many as
        there is time for, where those that are still due are to make as many.
        """
        protocol, pace = self.protocol, self.pace()
        if self.out_of_time:
            return True
        if protocol.budget_s is None:
            return rounds >= protocol.rounds
        if rounds < FEWEST:
            return self.left_s < pace.round_s
        workers_due = max(0, protocol.workers - self.workers_done - 1)
        if self.left_s < pace.round_s + workers_due * pace.seconds(rounds + 1):
            return True
        if rounds < protocol.rounds:
            return False
        return clean >= self.rounds or rounds >= MOST_TIMES_ROUNDS * self.rounds

    def progress(self, rounds: int, text: str) -> Progress:
        """Share done, never less than before, and the time left once there is something
        to tell it by.
        """
        protocol, elapsed_s = self.protocol, self.elapsed_s
        if protocol.budget_s is not None:
            left_s = self.left_s
            done = elapsed_s / (elapsed_s + left_s)
        else:
            done = (self.workers_done + min(1.0, rounds / self.rounds)) / max(
                protocol.workers, self.workers_done + 1
            )
            left_s = elapsed_s * (1 / done - 1) if done else 0.0
        self._shown = max(self._shown, min(done, 1.0))
        if len(self._round_s) < FEWEST_FOR_ETA:
            return Progress(done=self._shown, text=text)
        return Progress(done=self._shown, text=text, eta_s=left_s)


@dataclass(slots=True)
class Tally:
    """The clean rounds of one worker, by row: a row's is clean where its reference's
    sample is as well.
    """

    plan: Plan
    rounds: int = 0
    clean: int = 0  # of the row with the fewest
    _clean_by_row: Counter[str] = field(default_factory=Counter)

    def add(self, clean: dict[str, bool]) -> None:
        """Count a round, by case whether its sample was clean."""
        self.rounds += 1
        for label, is_clean in clean.items():
            if is_clean and clean.get(self.plan.reference_of(label), True):
                self._clean_by_row[label] += 1
        # one that has failed counts no more
        self.clean = min((self._clean_by_row[label] for label in clean), default=0)
