"""A machine that is not real, for tests/fuzz.py: workers and probers without a process, now and then in trouble.

Everything in it follows from its seed. Seconds are those of its own clock, so that budgets and pauses take no time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

from conftest import FACTS

from ffnbench import exam
from ffnbench.api import measuring
from ffnbench.api import world as outside
from ffnbench.errors import Unfinished
from ffnbench.plan import OWN, Arm
from ffnbench.run.prober import Prober
from ffnbench.run.runner import run
from ffnbench.run.session import WorkerLost, interpreter_of, variables_of

CALL_S, SAMPLE_S, OPEN_S, START_S = 0.01, 0.05, 0.2, 1.5
OF_RELU = {
    "low": 0.0, "low_reached": True, "high": None, "high_reached": False, "minimum": 0.0, "minimum_at": None,
    "minimum_until": 0.0, "minimum_flat": True, "monotonic": "increasing", "jumps": [], "kinks": [0.0], "bends": [],
    "slope_low": 0.0, "slope_high": 1.0, "zero_gradient": 0.5, "saturated": 0.5, "mean": 0.4, "second_moment": 0.5,
}  # fmt: skip
MISSING = "transformers is not installed"
ANSWERS: dict[str, dict[str, Any]] = {  # of jobs that nothing else is known of
    "timer": {"empty_call_s": 1e-6, "resolution_s": 1e-9}, "weigh": {"peak_bytes": 4096, "saved_bytes": None},
    "plan": {"timer": {"empty_call_s": 1e-6, "resolution_s": 1e-9}}, "facts": OF_RELU,
    "sparsity": {"zero_share": 0.5, "dead_share": 0.0}, "route": {"expert_load_max": 1.25, "experts_hit": 4},
    "own_mlp": {"own": {"name": "LlamaMLP", "d_model": 64, "d_ff": 128, "form": None}},
    "hf_whole": {"failure": "unsupported", "message": MISSING}, "hf_layers": {"failure": "crash", "message": MISSING},
}  # fmt: skip
JOBS = ("greeting", "open", "sample", "describe", "count", "curve", "hold", "origin", "keep", *ANSWERS)
FAILURES = ("oom", "unsupported", "crash", "timeout", "mismatch", "recompiled")
LOSSES = ("oom", "crash", "timeout")


@dataclass(frozen=True)
class Trouble:
    """From its `after`-th question of one job on, a worker fails it, is lost, can't start, or the user interrupts."""

    job: str
    how: str  # failure, lost, unfinished, interrupt
    kind: str
    text: str
    after: int
    once: bool


@dataclass
class World:
    """One machine: its dice and clock, what some rows are slower by, the share that threads wait, what goes wrong."""

    seed: str
    scatter: float = 0.002
    slow: float = 1.0
    waited: float | None = 0.003
    trouble: Trouble | None = None
    clock_s: float = 0.0
    asked: int = 0
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"world/{self.seed}")

    def now(self) -> float:
        """Seconds of this machine."""
        return self.clock_s

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.clock_s += seconds

    def refusal(self, job: str) -> dict[str, Any] | None:
        """What a worker in trouble answers; raises what a lost one, or an interruption, raises."""
        trouble = self.trouble
        if trouble is None or trouble.job != job:
            return None
        self.asked += 1
        if self.asked < trouble.after or (trouble.once and self.asked > trouble.after):
            return None
        if trouble.how == "interrupt":
            raise KeyboardInterrupt
        if trouble.how == "lost" or job == "greeting":
            raise WorkerLost(trouble.kind, trouble.text)
        if trouble.how == "unfinished":
            raise Unfinished(trouble.text, "a hint of no use")
        return {"failure": trouble.kind, "message": trouble.text}


class FuzzWorker:
    """Answers as a worker's process would, which can't be forked."""

    ended = False

    def __init__(self, world: World, arm: Arm = OWN) -> None:
        interpreter_of(arm)
        variables_of(arm)
        self.world, self.arm = world, arm
        self.layout: dict[str, float] = {}
        world.clock_s += START_S

    def greeting(self) -> dict[str, Any]:
        """What it says of its torch."""
        self.world.refusal("greeting")
        return {**FACTS, "version": "2.0-fuzz", "variables": dict(self.arm.env)}

    def fork(self, timeout_s: float) -> None:
        return None

    def rest(self, rests: bool) -> None:
        pass

    def close(self) -> None:
        pass

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One job."""
        job = request["do"]
        refused = self.world.refusal(job)
        answer = getattr(self, f"job_{job}", lambda _: dict(ANSWERS.get(job, {})))
        return refused if refused is not None else answer(request)  # type: ignore[no-any-return]

    def job_open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.world.clock_s += OPEN_S
        return {"calls": request["calls"] or 3}

    def job_sample(self, request: dict[str, Any]) -> dict[str, Any]:
        world, label = self.world, request["label"]
        world.clock_s += SAMPLE_S
        layout = self.layout.setdefault(label, world.dice.gauss(0, world.scatter))
        factor = world.slow if crc32(ascii(label).encode()) % 3 == 1 else 1.0
        value = CALL_S * factor * math.exp(layout + world.dice.gauss(0, world.scatter))
        return {"value": value, "waited": world.waited}

    def job_describe(self, request: dict[str, Any]) -> dict[str, Any]:
        target = request["target"]
        if target.rpartition(":")[2][:1].isupper():
            return {"own": None}
        return {"own": {"target": target, "formula": "x tanh(x)", "flops": 3, "flops_backward": None}}

    def job_count(self, request: dict[str, Any]) -> dict[str, Any]:
        total = 3 * request["spec"]["d_model"] * request["spec"]["d_ff"]
        return {
            "params": total, "params_active": total, "params_formula": None, "flops_forward": 2 * total,
            "flops_backward": 4 * total, "flops_elementwise": None, "flops_elementwise_backward": None,
            "weight_bytes": 4 * total, "counted": True, "counted_how": "on the meta device",
            "uncounted": ["an operation"] if self.world.dice.random() < 0.2 else [],
        }  # fmt: skip

    def job_ceilings(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"roofs": request["roofs"], "seconds": [0.001] * len(request["roofs"])}

    def job_curve(self, request: dict[str, Any]) -> dict[str, Any]:
        low, high, points = request["low"], request["high"], request["points"]
        x = [low + (high - low) * i / (points - 1) for i in range(points)]
        return {
            "x": x, "y": [max(v, 0.0) for v in x], "slope": [None if v == 0 else float(v > 0) for v in x],
            "flat": [[low, min(0.0, high)]] if low < 0 else [], "finite": self.world.dice.random() < 0.95,
        }  # fmt: skip

    def job_origin(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"file": str(Path(self.arm.source or ".").expanduser().resolve() / "mine.py")}

    def job_home(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"file": str(Path("mine.py").resolve())}

    def job_hold(self, request: dict[str, Any]) -> dict[str, Any]:
        choice = self.world.dice.random()
        error = None if choice < 0.05 else 0.5 if choice < 0.1 else 1e-7
        apart = "the weight of 'up' has another shape" if choice > 0.95 else ""
        return {"error": error, "tolerance": 1e-4, "exact_error": 1e-16, "apart": apart}


class FuzzProber(Prober):
    """The real prober, its workers those of a world."""

    def __init__(self, world: World, timeout_s: float = 300.0, arm: Arm = OWN) -> None:
        super().__init__(timeout_s, arm)
        self._world = world

    def within(self, arm: Arm) -> Prober:
        """As the real one's, in the same world."""
        if arm in (OWN, self._arm):
            return self
        return self._others.setdefault(arm, FuzzProber(self._world, self._timeout_s, arm))

    def start(self) -> Any:
        """A worker of the world."""
        if self._session is None:
            self._session = FuzzWorker(self._world, self._arm)  # type: ignore[assignment]
        return self._session


@contextmanager
def installed(world: World) -> Iterator[None]:
    """Put the machine where every command finds one; the clocks of runs and of pauses are its own, too."""
    launch = partial(FuzzWorker, world)
    machine = outside.Machine(launch=launch, prober=partial(FuzzProber, world))
    with ExitStack() as stack:
        for place, name, value in (
            (outside, "MACHINE", machine),
            (measuring, "run", partial(run, now=world.now)),
            (measuring, "time", SimpleNamespace(monotonic=world.now, sleep=world.sleep)),
            (exam, "run", partial(run, now=world.now, launch=launch)),
        ):
            stack.enter_context(patch.object(place, name, value))
        yield
