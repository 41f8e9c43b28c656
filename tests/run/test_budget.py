"""A budget that was typed is a bound, on machines of any speed; the promise is 10 % of
it, or 3 s.
"""

from __future__ import annotations

from typing import Any

import pytest
from fake_machine import FakeLaunch, planned, prepare
from simulated import ENVIRONMENT
from slow_machine import Machine, latest

from ffnbench.api import measuring
from ffnbench.api.preparing import Prepared
from ffnbench.common.errors import FfnbenchError
from ffnbench.plan.plan import Plan
from ffnbench.record.result import Verdict
from ffnbench.run.world import World
from ffnbench.stats.verdict import summarise


def plan_of(budget: float | None, **options: Any) -> Plan:
    given = {
        "d_model": 64,
        "metrics": "latency",
        "threads": 1,
        "precision": 0.05,
        **options,
    }
    return planned(budget=budget, **given).with_device("cpu")


@pytest.mark.parametrize("budget", [5.0, 15.0, 25.0, 100.0])
@pytest.mark.parametrize("slower", [1, 2, 5, 13, 100, 1000])
def test_a_run_ends_in_time_on_any_machine(slower: int, budget: float) -> None:
    machine = Machine(slower)
    done = machine.run(plan_of(budget))
    assert (done.failures, done.stopped, done.limit) == ((), "", "budget")
    workers = {sample.worker for sample in done.samples}
    assert len(workers) >= (
        3 if slower * 8 < budget else 1 if slower * 5 <= budget else 0
    )
    if len(workers) > 1:
        assert {one.case for one in done.samples if one.metric == "error"} == {
            "relu",
            "gelu",
            "swiglu",
        }
        assert machine.clock_s <= budget + 0.5
    verdicts = {comparison.verdict for comparison in summarise(done)[1]} - {
        Verdict.REFERENCE
    }
    assert verdicts <= (
        {Verdict.SAME, Verdict.UNCLEAR}
        if slower < 2
        else {Verdict.BUSY, Verdict.UNCLEAR}
    )
    assert machine.clock_s <= latest(budget)
    if slower == 1 and budget > 5:
        assert machine.clock_s >= 0.85 * budget  # and uses what there is


@pytest.mark.parametrize("budget", [127.0 + step / 2 for step in range(12)])
def test_a_sample_that_is_longer_than_what_is_left_is_not_begun(budget: float) -> None:
    """One takes 1.8 s, and is taken again four times in the first round."""
    machine = Machine(30)
    machine.run(plan_of(budget))
    samples = [ended for do, ended in machine.ended if do == "sample"]
    assert max(samples) <= budget
    assert len(samples) > 3


def prepared(budget: float, **options: Any) -> Prepared:
    given = {
        "variants": "relu,gelu",
        "d_model": 64,
        "threads": 1,
        "device": "cpu",
        "metrics": "latency",
        **options,
    }
    return prepare(budget=budget, **given)


@pytest.fixture
def measured():
    """A plan measured by the whole of `measure_run`, on such a machine and by its
    clock.
    """

    def measure(machine: Machine, plan: Prepared):
        world = World(launch=machine, now=machine.now, describe=lambda *_: ENVIRONMENT)
        return measuring.measure_run(plan, world)

    return measure


@pytest.mark.parametrize(("slower", "budget"), [(1, 100.0), (3, 130.0), (8, 330.0)])
def test_the_groups_of_a_sweep_share_one_budget(
    measured, slower: int, budget: float
) -> None:
    machine = Machine(slower)
    found = measured(
        machine, prepared(budget, seq_len="32,64,128", d_model="64,128,256")
    )
    assert machine.clock_s <= latest(budget)
    assert found.stopped == ""
    assert {sample.case for sample in found.samples} == {
        case.label for case in found.plan.cases
    }


@pytest.mark.parametrize("since", [0, 2])
def test_a_run_that_ended_before_a_sample_shows_dashes_and_no_picture(
    measured, since: float
) -> None:
    """It has the columns of `compare`, not those of `cost`, and nothing is drawn, even
    though parameters are known.
    """
    machine = Machine(stuck=lambda what, now: now >= since)
    found = measured(machine, prepared(60.0, seq_len="1,2,4,8"))
    assert found.stopped
    assert not found.samples
    text = str(found)
    assert "latency" in text
    assert {row["latency_s"] for row in found.rows()} == {None}
    assert {row["peak_bytes"] for row in found.rows()} == {None}
    with pytest.raises(FfnbenchError, match="nothing to draw"):
        found.plot()


def test_starts_that_hang_cost_no_answer(measured) -> None:
    machine = Machine(stuck=lambda what, now: what == "start" and now > 20)
    found = measured(machine, prepared(60.0, seq_len="1,2,4,8,16,32,64,128,256"))
    assert machine.clock_s <= latest(60.0)
    assert (bool(found.samples), found.stopped) == (
        True,
        "the budget of 60 s was over before all was measured",
    )


def test_what_no_machine_can_keep_to_is_refused_before_anything_starts(
    on_fakes,
) -> None:
    many = [f"v{number}=relu@d_ff={8 * number + 8}" for number in range(40)]
    launch = FakeLaunch()
    code, _, err = on_fakes(
        "compare", *many, "--match", "none", "--budget", "5", launch=launch
    )
    assert (code, launch.workers) == (2, [])
    assert "measuring 40 rows in 1 group takes " in err
    hint = err.splitlines()[-1].removeprefix("hint: ").split(" ")
    assert on_fakes("compare", *many, "--match", "none", *hint)[0] == 0
