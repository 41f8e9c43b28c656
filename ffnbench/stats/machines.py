"""What two runs of one row on two machines say together. Pure.

A run shows how its own processes scatter, but not how another machine would run the
same code: caches, threads and neighbours differ. Two runs alone can't estimate that
either, so the variance between machines is drawn towards a prior, as history.py does
for runs on one machine.
"""

from __future__ import annotations

from ffnbench.stats.history import history_of
from ffnbench.stats.interval import Mean, VarianceEstimate

# the standard deviation of a log ratio between machines before it is known, as if so
# many degrees of freedom had shown it
MACHINES_SD, MACHINES_FREEDOM = 0.0075, 3


def mean_over_machines(first: Mean, second: Mean) -> Mean:
    """The inverse-variance mean of two runs on two machines; its error includes what
    moves between machines (DerSimonian and Laird 1986).

    Both have an interval of their own (freedom above 0).
    """
    prior = VarianceEstimate(MACHINES_SD**2, MACHINES_FREEDOM)
    return history_of((first, second), prior).over_runs
