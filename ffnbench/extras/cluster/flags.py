"""The flags of jobs, which every command has that measures groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.extras.cluster import LOCAL, SLURM
from ffnbench.request import EFFORT, flag


@dataclass(frozen=True, kw_only=True)
class AsJobs:
    """Where groups are measured: what stands beside a file, and is no part of the question."""

    on: str = flag(
        "", "Measure each group as a job of submitit, on slurm, or local: one after another in processes that outlive "
        "this one. Needs -o FILE.json; docs/cluster.md has a session.", EFFORT, "slurm|local")  # fmt: skip
    slurm: tuple[str, ...] = flag(
        (), "With --on slurm: fields of submitit's, as in partition=gpu,gpus_per_node=1. Nodes are exclusive unless "
        "exclusive=false is said. Repeatable.", EFFORT, "KEY=VALUE,...")  # fmt: skip

    def measures(self) -> Callable[..., Any] | None:
        """What measures groups as jobs, None where `--on` is not typed; raises FfnbenchError for what can be none."""
        if self.slurm and self.on != SLURM:
            raise FfnbenchError("--slurm is of jobs on SLURM", "add --on slurm")
        if not self.on:
            return None
        from ffnbench.extras.cluster.jobs import measure
        from ffnbench.report.output import one_of

        one_of("--on", self.on, (SLURM, LOCAL))
        return partial(measure, on=self.on, slurm=self.slurm)


MEASURER = AsJobs
