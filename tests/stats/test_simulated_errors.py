"""The simulated exam of `compare`: that its counts are right, that it is deterministic,
and that it can fail.
"""

from __future__ import annotations

import pandas as pd
import pytest
from rates import SLOWDOWNS, broken_promises, rates_of, simulate
from simulated import STATES, WORLDS


@pytest.fixture(scope="module")
def told() -> pd.DataFrame:
    """135 runs over all worlds, most of which scatter as a shared machine does;
    benchmarks/rates.py makes 900.
    """
    return simulate(135)


def test_simulated_error_rates_hold(told: pd.DataFrame) -> None:
    """Coverage is of the five rows of a run together."""
    assert list(told.world.unique()) == [world.name for world in WORLDS]
    whole = rates_of(told)
    assert whole["runs"] == 135
    # a busy row claims no interval
    assert told.groupby("run").has_interval.any().mean() >= 0.9
    assert broken_promises(whole) == []
    assert 0.92 <= whole["coverage"] <= 0.99
    assert whole["false diffs"] <= 0.05
    assert whole["wrong way"] <= 0.03  # +3 % is called the same by chance
    assert whole["finds +5%"] >= 0.75
    assert whole["finds +10%"] >= 0.95
    quiet = rates_of(told[told.world == "quiet"])
    assert [quiet[f"finds {name}"] for name in SLOWDOWNS] == [1.0] * 3


def test_a_state_that_outlasts_a_run_is_covered_by_no_run() -> None:
    """The exam sets worlds in which the code must fail."""
    assert rates_of(simulate(12, worlds=STATES[-1:]))["coverage"] < 0.8
