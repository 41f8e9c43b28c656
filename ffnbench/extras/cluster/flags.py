"""What `--on` and `--slurm` say, which every command has that measures groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.cluster import LOCAL, SLURM


def measured_by(on: str, slurm: Sequence[str]) -> Callable[..., Any]:
    """What measures groups as jobs; raises FfnbenchError for what can be none."""
    if slurm and on != SLURM:
        raise FfnbenchError("--slurm is of jobs on SLURM", "add --on slurm")
    from ffnbench.extras.cluster.jobs import measure
    from ffnbench.report.output import one_of

    one_of("--on", on, (SLURM, LOCAL))
    return partial(measure, on=on, slurm=tuple(slurm))
