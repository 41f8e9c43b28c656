"""The simulated exam of `compare`: that its counts are right, that it is deterministic,
and that it can fail.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import rates as script
from exam.machine import STATES, WORLDS
from rates import SLOWDOWNS, Rate, broken_promises, rates_of, simulate

from ffnbench.record.result import Verdict


def test_simulated_error_rates_hold() -> None:
    """135 runs over all worlds, most of which scatter as a shared machine does;
    benchmarks/rates.py makes 900. Coverage is of the five rows of a run together.
    """
    told = simulate(135)
    assert list(told) == [w.name for w in WORLDS]
    whole = rates_of([one for of in told.values() for one in of])
    assert whole.runs == 135
    assert 0.9 * 135 <= whole.covered.of <= 135  # a busy row claims no interval
    assert broken_promises(whole) == []
    assert 0.92 <= whole.covered.value <= 0.99
    assert whole.false_difference.value <= 0.05
    assert (
        whole.wrong_way.value <= 0.01
    )  # +3% is called the same where an interval misses by chance
    assert whole.detected["+5%"].value >= 0.75
    assert whole.detected["+10%"].value >= 0.95
    assert {
        name: share.value for name, share in rates_of(told["quiet"]).detected.items()
    } == dict.fromkeys(SLOWDOWNS, 1.0)


def test_a_state_that_outlasts_a_run_is_covered_by_no_run() -> None:
    """The exam sets worlds in which the code must fail."""
    (told,) = simulate(12, worlds=STATES[-1:]).values()
    assert rates_of(told).covered.value < 0.8


def test_the_same_seed_gives_the_same_runs() -> None:
    first, again = (simulate(2, worlds=WORLDS[:1], processes=1) for _ in range(2))
    assert first == again


def test_a_broken_promise_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = simulate(12, processes=1)
    good = replace(
        rates_of([one for of in told.values() for one in of]),
        false_difference=Rate(hits=0, of=12),
    )
    bad = replace(
        good,
        runs=1000,
        false_difference=Rate(hits=300, of=1000),
        covered=Rate(hits=800, of=1000),
    )
    assert broken_promises(bad) == [
        "false differences in 30.0% of the runs",
        "all intervals hold in 80.0% of the runs",
    ]
    always = replace(good, runs=1000, covered=Rate(hits=1000, of=1000))
    assert broken_promises(always) == ["all intervals hold in 100.0% of the runs"]
    assert (
        broken_promises(replace(good, covered=Rate(hits=0, of=0))) == []
    )  # every row was busy
    wrong = {
        name: [replace(one, verdict=Verdict.FASTER) for one in of]
        for name, of in told.items()
    }
    monkeypatch.setattr(script, "simulate", lambda runs, **_: wrong)
    assert script.main(["--runs", "12"]) == 1
    assert "false differences in 100.0% of the runs" in capsys.readouterr().out
