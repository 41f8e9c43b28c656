"""How long a run may still take, what its parts cost, and how many rounds the next
worker makes.

A budget gives way to the fewest workers that the protocol allows. A bound does not: it
ends everything, even a request that has begun.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from ffnbench.plan.plan import Plan, Protocol
from ffnbench.record.result import Run, Step
from ffnbench.stats.rounds import rounds_of
from ffnbench.stats.stopping import Pace, StopRule, rounds_wanted, scatter_of_rounds

# a worker whose rounds are disturbed makes at most so many times the planned ones
MOST_TIMES_ROUNDS = 4
FEWEST_ROUNDS = 2  # of a worker, where the budget has no time for more
# a later worker takes this share of what the first one took beside its rounds, because
# the first one checks the cases and finds out how many calls make a sample
LATER_WORKER = 0.2
LATE_S = 1.0  # so long after the bound a request may end
FEWEST_FOR_ETA = 3  # rounds after which the time that is left is told


@dataclass(slots=True)
class Budget:
    """The time of a run. It is told when workers and rounds begin and end, and answers
    how much time is left.

    `now` is the clock, in seconds; tests and simulations bring their own. By that clock
    the budget `began`, maybe before the run, and `ends` is the bound.
    """

    now: Callable[[], float]
    protocol: Protocol
    began: float
    ends: float = math.inf
    rounds: int = 0  # that the next worker makes
    workers_done: int = 0
    # whether a sample was not begun, because it would have ended after the budget
    out_of_time: bool = False
    _run_began: float = 0.0
    _worker_began: float = 0.0
    _last_round_ended: float = 0.0
    _round_s: list[float] = field(default_factory=list)
    # of each complete worker
    _beside_rounds_s: list[float] = field(default_factory=list)
    _first_worker_s: float = 0.0  # of the first worker, until its rounds began
    # of this worker, in its rounds
    _in_rounds_s: float = 0.0
    _shown_done: float = 0.0

    def __post_init__(self) -> None:
        self._run_began = self._worker_began = self._last_round_ended = self.now()
        self.rounds = self.protocol.rounds

    @property
    def elapsed_s(self) -> float:
        """Seconds since the budget began."""
        return self.now() - self.began

    @property
    def run_s(self) -> float:
        """Seconds since the run began."""
        return self.now() - self._run_began

    @property
    def is_past_bound(self) -> bool:
        """Whether the bound is over, so that nothing more may begin."""
        return self.now() >= self.ends

    @property
    def left_s(self) -> float:
        """Seconds that are left for measuring: those of the budget, or those that the
        fewest workers still take where these are more; never beyond the bound.
        """
        now, rounds = self.now(), self.protocol.rounds
        if self.ends < math.inf:
            rounds = FEWEST_ROUNDS
        workers_due = self.protocol.workers - self.workers_done
        worker_s = self.pace().seconds(rounds + 1)  # one more is the practice
        due_s = workers_due * worker_s - self._in_rounds_s
        budget_s = self.protocol.budget_s or math.inf
        return min(self.ends - now, max(0.0, due_s, self.began + budget_s - now))

    def wait_s(self, most_s: float) -> float:
        """For how many seconds an answer may be waited for: `most_s`, or less so that a
        request does not end long after the bound.
        """
        return max(0.0, min(most_s, self.ends + LATE_S - self.now()))

    def worker_begins(self) -> None:
        """To be called when another worker is about to begin."""
        self._worker_began = self.now()
        self._in_rounds_s = 0.0

    def rounds_begin(self) -> None:
        """To be called when a worker has made its practice."""
        self._last_round_ended = self.now()
        if not self._first_worker_s:
            self._first_worker_s = (
                self._last_round_ended - self._worker_began - self._in_rounds_s
            )

    def round_done(self) -> None:
        """To be called when a worker has made a round."""
        now = self.now()
        round_s = now - self._last_round_ended
        self._round_s.append(round_s)
        self._in_rounds_s += round_s
        self._last_round_ended = now

    def worker_done(self) -> None:
        """To be called when a worker is complete."""
        self._beside_rounds_s.append(
            self.now() - self._worker_began - self._in_rounds_s
        )
        self._in_rounds_s = 0.0
        self.workers_done += 1

    def pace(self) -> Pace:
        """The seconds that a further worker and a round take. As long as there is no
        second worker, a share of those of the first one serves for the worker.
        """
        worker_s = LATER_WORKER * self._first_worker_s
        if len(self._beside_rounds_s) > 1:
            worker_s = median(self._beside_rounds_s[1:])
        round_s = 0.0
        if self._round_s:
            round_s = median(self._round_s)
        return Pace(worker_s, round_s)

    def plan_rounds(self, run: Run) -> None:
        """Decide from what was measured so far how many rounds the next worker makes.
        The last one makes as many as there is time for.
        """
        protocol, pace = self.protocol, self.pace()
        if protocol.precision is None or protocol.budget_s is None or not pace.round_s:
            return
        wanted = rounds_wanted(
            protocol, scatter_of_rounds(rounds_of(run)), pace, protocol.budget_s
        )
        most = int((self.left_s - pace.worker_s) / pace.round_s)
        self.rounds = max(protocol.rounds, min(wanted, most))

    def limit(self, run: Run, stop: StopRule) -> str:
        """Which limit the run has met, in a word; "" where it goes on."""
        rounds = self.rounds
        if self.workers_done < self.protocol.workers:
            rounds = 1  # one of the fewest workers may be shorter than planned
        fits = not self.out_of_time and self.left_s >= self.pace().seconds(rounds)
        return stop.limit(run, fits=fits, expected=self.expected_workers)

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
        """Whether a worker that has made so many rounds, so many of them clean, has
        made enough: the planned number of clean ones, or as many as there is time for
        where the workers that are still due shall make as many as well.
        """
        protocol, pace = self.protocol, self.pace()
        if self.out_of_time:
            return True
        if protocol.budget_s is None:
            return rounds >= protocol.rounds
        if rounds < FEWEST_ROUNDS:
            return self.left_s < pace.round_s
        workers_due = max(0, protocol.workers - self.workers_done - 1)
        due_s = workers_due * pace.seconds(rounds + 1)  # one more is the practice
        if self.left_s < pace.round_s + due_s:
            return True
        if rounds < protocol.rounds:
            return False
        return clean >= self.rounds or rounds >= MOST_TIMES_ROUNDS * self.rounds

    def progress(self, rounds: int, text: str) -> Step:
        """The progress when this worker has made so many rounds: the share that is
        done, never less than before, and the time left, once a few rounds have shown
        it.
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
        self._shown_done = max(self._shown_done, min(done, 1.0))
        if len(self._round_s) < FEWEST_FOR_ETA:
            return Step(done=self._shown_done, text=text)
        return Step(done=self._shown_done, text=text, eta_s=left_s)


@dataclass(slots=True)
class Tally:
    """Counts the rounds of one worker, and the clean ones of each row: those in which
    its own sample and that of its reference are clean.
    """

    plan: Plan
    rounds: int = 0
    clean: int = 0  # of the row with the fewest clean rounds
    _clean_by_row: Counter[str] = field(default_factory=Counter)

    def add(self, clean: dict[str, bool]) -> None:
        """Count a round. `clean` is by case whether its sample was clean."""
        self.rounds += 1
        for label, is_clean in clean.items():
            if is_clean and clean.get(self.plan.reference_of(label), True):
                self._clean_by_row[label] += 1
        # cases that have failed are not in this round, and do not count any more
        self.clean = min((self._clean_by_row[label] for label in clean), default=0)
