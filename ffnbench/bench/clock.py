"""How far a run is, what its parts cost, and how long it will still take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median

from ffnbench.result import Progress
from ffnbench.stats.enough import FIRST_LOOK, Amount, Pace

PATIENCE = 3
ALONE = 2.0  # times the share of one of several that start together: two take as long as one (measured)
FURTHER = 0.5  # of the first worker's rest: it finds out the number of calls, and weighs, for all of them


@dataclass(slots=True)
class RunClock:
    """Notes when rounds and workers end. `now` gives seconds; tests and simulations bring their own."""

    now: Callable[[], float]
    workers: int  # as far as is known so far
    amount: Amount  # of a worker, likewise
    precise: bool = False  # whether the precision is foreseen with that
    _start: float = field(init=False)
    _worker_start: float = field(init=False)
    _last: float = field(init=False)
    _round_s: list[float] = field(default_factory=list)
    _placing_s: list[float] = field(default_factory=list)
    _rest_s: list[float] = field(default_factory=list)
    _starting_s: list[float] = field(default_factory=list)  # of each worker, its share where several started together
    _alone_s: float = 0.0  # what starting one by itself takes beyond such a share
    _in_rounds: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._start = self._worker_start = self._last = self.now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.now() - self._start

    def started(self, workers: int, seconds: float) -> None:
        """So many workers have been started together, in that time; the first of them begins now."""
        share = seconds / workers
        self._starting_s += [share] * workers
        self._alone_s = min(seconds, ALONE * share) - share
        self._worker_start = self.now()

    def rounds_begin(self) -> None:
        """The practice is over."""
        self._last = self.now()

    def round_done(self) -> None:
        """One more round."""
        now = self.now()
        self._round_s.append(now - self._last)
        self._in_rounds += now - self._last
        self._last = now

    def placed(self) -> None:
        """Every tensor has a new place."""
        now = self.now()
        self._placing_s.append(now - self._last)
        self._in_rounds += now - self._last
        self._last = now

    def beside(self, seconds: float) -> None:
        """So long was spent on what says nothing of further workers."""
        self._in_rounds += seconds

    @property
    def begun_s(self) -> float:
        """Seconds from the run's beginning to this worker's."""
        return self._worker_start - self._start

    def deadline_s(self, workers: int, budget_s: float) -> float:
        """Until when, by `elapsed_s`, this worker may wait for quiet: what is left is shared with those to come, and
        beyond a few times of what it should have taken, another one tells more.
        """
        share = (budget_s - self.begun_s) / max(1, max(self.workers, FIRST_LOOK) - workers)
        return self.begun_s + min(share, PATIENCE * self.pace().seconds(self.amount))

    def worker_done(self) -> None:
        """One more whole worker, its start included."""
        now = self.now()
        self._rest_s.append(now - self._worker_start - self._in_rounds)
        self._worker_start, self._in_rounds = now, 0.0

    def worker_lost(self) -> None:
        """What it took is told of no worker."""
        self._worker_start, self._in_rounds = self.now(), 0.0

    def pace(self) -> Pace:
        """What a further worker and a round cost, from what was seen; at first from the beginning of the first one."""
        first = self._rest_s[0] if self._rest_s else self.now() - self._worker_start - self._in_rounds
        rest = median(self._rest_s[1:]) if len(self._rest_s) > 1 else FURTHER * first
        rest += fmean(self._starting_s) if self._starting_s else 0.0
        round_s = median(self._round_s) if self._round_s else 0.0
        return Pace(rest, round_s, median(self._placing_s) if self._placing_s else round_s)

    def next_s(self, *, ready: bool) -> float:
        """When the next worker can begin, by `elapsed_s`: one that is not ready may have to start by itself, and the
        pace knows of those that start together.
        """
        return self.elapsed_s + (0.0 if ready else self._alone_s)

    def has_rounds(self, budget_s: float) -> bool:
        """Whether there is time for a further round, and for the checks after it."""
        return self.elapsed_s + 2 * self.pace().round_s <= budget_s

    def progress(self, worker: int, round_: int, text: str) -> Progress:
        """Share done, never less than before, and the time left once there is something to tell it by."""
        share = (worker + min(1.0, round_ / self.amount.rounds)) / max(self.workers, worker + 1)
        self._shown = max(self._shown, min(share, 1.0))
        eta = None
        if len(self._round_s) >= 3:
            pace = self.pace()
            begun = self.now() - self._worker_start
            eta = max(0.0, pace.seconds(self.amount) * max(1, self.workers - worker) - begun)
        return Progress(done=self._shown, text=text, eta_s=eta)
