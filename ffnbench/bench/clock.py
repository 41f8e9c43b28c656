"""How far a run is, what its parts cost, and how long it will still take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median

from ffnbench.result import Progress
from ffnbench.stats.enough import Pace


@dataclass(slots=True)
class RunClock:
    """Notes when rounds and workers end. `now` gives seconds; tests and simulations bring their own."""

    now: Callable[[], float]
    workers: int  # as far as is known so far
    rounds: int
    _start: float = field(init=False)
    _worker_start: float = field(init=False)
    _last: float = field(init=False)
    _round_s: list[float] = field(default_factory=list)
    _rest_s: list[float] = field(default_factory=list)
    _in_rounds: float = 0.0
    _shown: float = 0.0

    def __post_init__(self) -> None:
        self._start = self._worker_start = self._last = self.now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self.now() - self._start

    def rounds_begin(self) -> None:
        """The practice is over."""
        self._last = self.now()

    def round_done(self) -> None:
        """One more round."""
        now = self.now()
        self._round_s.append(now - self._last)
        self._in_rounds += now - self._last
        self._last = now

    def worker_done(self) -> None:
        """One more whole worker, its start included."""
        now = self.now()
        self._rest_s.append(now - self._worker_start - self._in_rounds)
        self._worker_start, self._in_rounds = now, 0.0

    def pace(self) -> Pace:
        """What a worker and a round cost, from what was seen; before the first worker ends, from its beginning."""
        rest = fmean(self._rest_s) if self._rest_s else self.now() - self._worker_start - self._in_rounds
        return Pace(rest, median(self._round_s) if self._round_s else 0.0)

    def progress(self, worker: int, round_: int, text: str) -> Progress:
        """Share done, never less than before, and the time left once there is something to tell it by."""
        share = (worker + min(1.0, round_ / self.rounds)) / max(self.workers, worker + 1)
        self._shown = max(self._shown, min(share, 1.0))
        eta = None
        if len(self._round_s) >= 3:
            pace = self.pace()
            begun = self.now() - self._worker_start
            eta = max(0.0, pace.seconds(self.rounds) * max(1, self.workers - worker) - begun)
        return Progress(done=self._shown, text=text, eta_s=eta)
