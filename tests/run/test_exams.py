"""What the exams count: which readings are wrong, and which checks are alarms. And a
check that stays unclear.
"""

from __future__ import annotations

import pytest
from exam.alarms import Alarm, broken_promises, check_plan, check_policy, counts
from exam.machine import Machine, World
from worlds import Said, is_wrong

from ffnbench.gate.decision import Status, baseline_times
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.run.runner import run_workers

CALM = World(name="calm", layout=0.001, starter=0.0, sample=0.01)


@pytest.mark.parametrize(
    ("truth", "verdict", "interval", "wrong"),
    [
        ((0.995, 1.005), "same", (0.99, 1.01), False),
        ((0.995, 1.005), "slower", (1.001, 1.02), False),  # the truth may be above 1
        ((0.990, 1.000), "slower", (0.999, 1.02), True),  # it is not above 1
        ((1.000, 1.010), "faster", (0.98, 1.005), True),
        (
            (1.040, 1.060),
            "slower",
            (1.07, 1.09),
            True,
        ),  # the right verdict with an interval that misses
        ((1.040, 1.060), "slower", (1.06, 1.09), False),  # they touch
        (
            (1.040, 1.060),
            "unclear",
            (0.95, 1.03),
            True,
        ),  # an interval is held to it whatever the verdict
        ((1.040, 1.060), "busy", (None, None), False),
        ((1.021, 1.030), "same", (None, None), True),  # wholly outside of +-2 %
        ((0.970, 0.981), "same", (None, None), False),
        ((1.021, 1.030), "faster", (None, None), True),
    ],
)
def test_what_is_wrong(truth, verdict, interval, wrong) -> None:
    assert is_wrong(Said("row", 1.0, *interval, verdict), truth) is wrong


def alarm(**facts: object) -> Alarm:
    settings = {
        "condition": "quiet",
        "repeat": 0,
        "injected": 0.0,
        "row": "swiglu",
        "status": "OK",
        "change": 1.0,
    }
    return Alarm(**{**settings, "low": 0.99, "high": 1.01, "seconds": 10.0, **facts})  # type: ignore[arg-type]


def test_counting_checks() -> None:
    """A check is accused once however many of its rows are; the slowed row is no
    wolf.
    """
    alarms = [
        alarm(status="REGRESSED"), alarm(row="gelu", status="REGRESSED"), alarm(repeat=1), alarm(repeat=1, row="gelu"),
        alarm(repeat=0, condition="bursts 3 s", status="UNCLEAR"),
        alarm(injected=0.05, status="REGRESSED", change=1.05), alarm(injected=0.05, row="gelu", status="REGRESSED"),
        alarm(injected=0.05, repeat=1, status="OK", change=1.05 * 1.01),
    ]  # fmt: skip
    unchanged, slowed = counts(alarms, "quiet", 0.0), counts(alarms, "quiet", 0.05)
    assert (unchanged.checks, unchanged.false_alarms) == (2, 1)
    assert (slowed.checks, slowed.found, slowed.false_alarms) == (2, 1, 1)
    assert slowed.error == pytest.approx(0.00995 / 3**0.5, rel=1e-3)
    assert counts(alarms, None, 0.0).unclear == 1
    assert broken_promises(alarms) == ["2 false alarms"]


def test_a_check_that_stays_unclear_has_used_its_budget() -> None:
    plan = check_plan(variants="relu,swiglu")
    before = latency_report(Machine(CALM, plan, 0).run(run_workers))
    loud = Machine(World(name="loud", sample=0.5, layout=0.5), plan, 1)
    policy = check_policy(0.05)
    stop = UntilDecided(policy, baseline_times(before))
    now = latency_report(
        loud.measure(plan_of_check(before.plan, policy, 60.0), run_workers, stop)
    )
    assert [finding.status for finding in stop.conclusion(now)] == [Status.UNCLEAR]
    assert 50.0 < loud.clock_s <= 62.0
