"""What can be asked of a selftest."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import EFFORT, MEASURING, THREADS, WIDTHS, WORKLOAD, Request, flag


# fmt: off
@dataclass(frozen=True, kw_only=True)
class SelftestRequest(Request):
    """`ffnbench selftest`."""

    repeats: int = flag(10, "How many runs.", EFFORT, "INT")
    budget: float = flag(15.0, "Time of one run, 15s or 1m.", EFFORT, "TIME")
    d_model: int = flag(256, "Width of the modules.", WIDTHS, "INT")
    threads: int | None = flag(
        None, "CPU threads. [default: the CPUs this process may use]", WORKLOAD, "INT", also=THREADS)
    seed: int = flag(0, "Seed of inputs, weights, order of rounds; each run adds one.", MEASURING, "INT")
# fmt: on
