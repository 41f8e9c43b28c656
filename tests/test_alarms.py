"""Live checks: that their counts are right, and what they measure beside which neighbours."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import worlds as script
from exam import live
from exam.alarms import REFUSED, Alarm, broken_promises, check_plan, check_policy, counts
from exam.machine import Machine, World
from exam.worlds import LIVE_WORLDS, QUIET, chosen

from ffnbench.gate.looks import look_back, report_of
from ffnbench.gate.regression import Status
from ffnbench.plan import Plan
from ffnbench.result import Report
from ffnbench.run.runner import run
from ffnbench.stats.enough import Answered

BESIDE = "bursts 3 s"
CALM = World(name="calm", layout=0.002, starter=0.001, sample=0.01)


def alarm(**facts: object) -> Alarm:
    settings: dict[str, object] = {
        "condition": QUIET, "repeat": 0, "injected": 0.0, "row": "swiglu", "status": "OK", "change": 1.0, "low": 0.99,
        "high": 1.01, "seconds": 10.0, **facts,
    }  # fmt: skip
    return Alarm(**settings)  # type: ignore[arg-type]


def test_counting() -> None:
    """A check is accused once however many of its rows are; refused ones are not asked; the slowed row is no wolf."""
    alarms = [
        alarm(status="REGRESSED"), alarm(row="gelu", status="REGRESSED"), alarm(repeat=1), alarm(repeat=1, row="gelu"),
        alarm(repeat=2, status=REFUSED, change=None), alarm(repeat=0, condition=BESIDE, status="UNCLEAR"),
        alarm(injected=0.05, status="REGRESSED", change=1.05), alarm(injected=0.05, row="gelu", status="REGRESSED"),
        alarm(injected=0.05, repeat=1, status="OK", change=1.05 * 1.01),
    ]  # fmt: skip
    unchanged, slowed = counts(alarms, QUIET, 0.0), counts(alarms, QUIET, 0.05)
    assert (unchanged.checks, unchanged.asked, unchanged.false_alarms, unchanged.refused) == (3, 2, 1, 1)
    assert (slowed.checks, slowed.found, slowed.false_alarms) == (2, 1, 1)
    assert slowed.error == pytest.approx(0.00995 / 3**0.5, rel=1e-3)
    assert counts(alarms, None, 0.0).unclear == 1
    assert broken_promises(alarms) == ["2 false alarms", "+5% was found in 1 of 2 checks"]


@pytest.fixture
def neighbours(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """No neighbour comes; which ones were asked for."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(live, "Neighbour", lambda world, seed: asked.append((world.name, seed)) or nullcontext())
    return asked


def test_live_checks_beside_a_baseline_each(monkeypatch: pytest.MonkeyPatch, neighbours) -> None:
    """The real journey on a simulated machine: the gate is not told of the slow-down, the machine is."""
    asked = []

    def fake_run(plan, answered=None, real=live.run):
        asked.append(plan.case("swiglu").workload.slowdown)
        return Machine(CALM, plan, len(asked)).measure(plan, real, answered)

    monkeypatch.setattr(live, "run", fake_run)
    alarms = flat(live.checks(check_plan(d_model=64, threads=1), chosen(()), 2, 120.0, seed=5))
    assert {a.repeat for a in alarms} == {5, 6}
    assert {(a.condition, a.injected) for a in alarms} == set(live.CHECKS)
    assert {a.condition for a in alarms} == set(LIVE_WORLDS)
    assert len(set(neighbours)) == 2 * len(LIVE_WORLDS)  # each world of each repeat has its own seed
    assert broken_promises(alarms) == []
    assert asked.count(0.05) == 2


def flat(found) -> list[Alarm]:
    return [alarm for some in found for alarm in some]


def on_dice(plan, real, answered):
    return Machine(CALM, plan, 1).measure(plan, real, answered)


def test_the_script_ends_with_1_at_a_false_alarm(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for status, code in (("OK", 0), ("REGRESSED", 1)):
        monkeypatch.setattr(live, "checks", lambda *_, status=status: iter([[alarm(status=status)]]))
        assert script.main(["--checks"]) == code
        assert f"{code} of 1" in capsys.readouterr().out


def test_a_check_that_stays_unclear_has_used_its_budget() -> None:
    plan = check_plan(variants="relu,swiglu")
    before = report_of(Machine(CALM, plan, 0).run(run))
    loud = Machine(World(name="loud", sample=0.5, layout=0.5), plan, 1)

    def measure(asked: Plan, answered: Answered) -> Report:
        return report_of(loud.measure(asked, run, answered))

    look = look_back(before, check_policy(0.05), 60.0, measure)
    assert [finding.status for finding in look.findings] == [Status.UNCLEAR]
    assert 50.0 < loud.clock_s <= 62.0
