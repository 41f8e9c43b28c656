"""How long a run will take, as far as that is known before it begins. Pure.

Where there is a budget that is the answer. Where workers and rounds are fixed it is an estimate: what a call takes is
known from its FLOPs alone, so the order is right and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ffnbench.plan import Plan, Workload

START_S, CASE_S = 2.5, 0.1  # of a run: importing torch; of each case in a worker that is forked: building it
FLOPS_A_THREAD, FLOPS_OF_CUDA = 2e10, 1e13  # of one CPU thread, and of a GPU, a second
PRACTICE = 1  # rounds of a worker that are not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Seconds that a run takes; `at_most` where a budget ends it, else it is about that long."""

    seconds: float
    at_most: bool = False

    def times(self, runs: int, pause_s: float = 0.0) -> Foreseen:
        """So many runs, with a pause between each two."""
        return replace(self, seconds=runs * self.seconds + (runs - 1) * pause_s)


def foreseen(plan: Plan, flops: Mapping[str, float]) -> Foreseen:
    """What a run of a plan takes; `flops` are those of one call, by case, as far as they are known."""
    protocol = plan.protocol
    once_s, cases_s = START_S + len(plan.cases) * protocol.warmup_s, len(plan.cases) * CASE_S
    if "latency" not in plan.metrics:  # exact metrics need one process
        return Foreseen(seconds=once_s + cases_s)
    round_s = sum(max(protocol.min_sample_s, flops.get(case.label, 0.0) / _speed(case.workload)) for case in plan.cases)
    fixed = once_s + protocol.workers * (cases_s + (protocol.rounds + PRACTICE) * round_s)
    if protocol.budget_s is not None and fixed <= protocol.budget_s:
        return Foreseen(seconds=protocol.budget_s, at_most=True)
    return Foreseen(seconds=fixed)


def _speed(work: Workload) -> float:
    """FLOPs a second, by the order of magnitude."""
    return FLOPS_OF_CUDA if work.accelerated else FLOPS_A_THREAD * work.threads
