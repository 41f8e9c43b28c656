"""The live exams, of runs and of checks: what is wrong, what is counted, what is measured beside which neighbours."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from exam import live
from exam.alarms import Alarm, broken_promises, check_plan, check_policy, counts
from exam.machine import Machine, World
from exam.readings import OURS, REFERENCE, Reading, contradictions, exam_plan, is_wrong, lines, score_of
from exam.worlds import LIVE_WORLDS, QUIET, chosen, seed_of

from ffnbench.gate.decision import Status, baseline_times
from ffnbench.gate.interim import UntilDecided, plan_of_check, report_of
from ffnbench.plan import Case, Plan
from ffnbench.run.runner import run
from ffnbench.stats.stopping import StopRule

CALM = World(name="calm", layout=0.001, starter=0.0, sample=0.01)


def reading(**facts: object) -> Reading:
    settings: dict[str, object] = {
        "world": QUIET, "method": OURS, "repeat": 0, "row": "swiglu", "truth": 1.0, "truth_low": 0.995,
        "truth_high": 1.005, "ratio": 1.0, "low": 0.99, "high": 1.01, "verdict": "same", "seconds": 15.0, **facts,
    }  # fmt: skip
    return Reading(**settings)  # type: ignore[arg-type]


def alarm(**facts: object) -> Alarm:
    settings: dict[str, object] = {
        "condition": QUIET, "repeat": 0, "injected": 0.0, "row": "swiglu", "status": "OK", "change": 1.0, "low": 0.99,
        "high": 1.01, "seconds": 10.0, **facts,
    }  # fmt: skip
    return Alarm(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("truth", "said", "wrong"),  # (low, high) of the truth, (verdict, low, high) of the run
    [
        ((0.995, 1.005), ("same", 0.99, 1.01), False),
        ((0.995, 1.005), ("slower", 1.001, 1.02), False),  # the truth may be above 1
        ((0.990, 1.000), ("slower", 0.999, 1.02), True),  # it is not above 1
        ((1.000, 1.010), ("faster", 0.98, 1.005), True),
        ((1.040, 1.060), ("slower", 1.07, 1.09), True),  # the right verdict with an interval that misses
        ((1.040, 1.060), ("slower", 1.06, 1.09), False),  # they touch
        ((1.040, 1.060), ("slower", 1.01, 1.039), True),
        ((1.040, 1.060), ("unclear", 0.95, 1.03), True),  # an interval is held to it whatever the verdict
        ((1.040, 1.060), ("busy", None, None), False),
        ((1.021, 1.030), ("same", None, None), True),  # wholly outside of +-2 %
        ((0.970, 0.981), ("same", None, None), False),
        ((1.021, 1.030), ("faster", None, None), True),
    ],
)
def test_what_is_wrong(truth, said, wrong) -> None:
    verdict, low, high = said
    assert is_wrong(reading(truth_low=truth[0], truth_high=truth[1], verdict=verdict, low=low, high=high)) is wrong


def test_counting_runs() -> None:
    """Of four quiet runs: one right, one wrong in both rows, one busy in one row, one busy without any ratio."""
    slowed = {"row": "swiglu5", "truth": 1.05, "truth_low": 1.045, "truth_high": 1.055}
    nothing = {"ratio": None, "low": None, "high": None, "verdict": "busy"}
    of = [
        reading(), reading(**slowed, ratio=1.05, low=1.04, high=1.06, verdict="slower"),
        reading(repeat=1, ratio=1.02, low=1.01, high=1.03, verdict="slower"),
        reading(repeat=1, **slowed, ratio=1.0, low=0.99, high=1.01, verdict="same"),
        reading(repeat=2, ratio=0.98, low=0.93, high=1.03, verdict="unclear"),
        reading(repeat=2, **slowed, ratio=1.2, low=None, high=None, verdict="busy"),
        reading(repeat=3, **nothing), reading(repeat=3, **{**slowed, **nothing}),
        reading(world="spinner", seconds=35.0), reading(method="median loop", low=None, high=None, seconds=99.0),
    ]  # fmt: skip
    quiet = score_of(of, QUIET, OURS)
    assert (quiet.runs, quiet.wrong, quiet.busy, quiet.decided) == (4, 1, 2, 1)
    assert quiet.error == pytest.approx(((0.0198**2 + 0.0202**2) / 3) ** 0.5, rel=1e-2)  # ratios 1, 1.02 and 0.98
    assert quiet.half == pytest.approx(0.01)  # the middle one of 1 %, 1 % / 1.02 and 5 % / 0.98
    assert score_of(of, "spinners", OURS).error is None
    assert contradictions(of) == ["1 of 5 runs are wrong"]
    assert lines(of) == [(QUIET, OURS), (QUIET, "median loop"), ("spinner", OURS)]


def test_counting_checks() -> None:
    """A check is accused once however many of its rows are; the slowed row is no wolf."""
    alarms = [
        alarm(status="REGRESSED"), alarm(row="gelu", status="REGRESSED"), alarm(repeat=1), alarm(repeat=1, row="gelu"),
        alarm(repeat=0, condition="bursts 3 s", status="UNCLEAR"),
        alarm(injected=0.05, status="REGRESSED", change=1.05), alarm(injected=0.05, row="gelu", status="REGRESSED"),
        alarm(injected=0.05, repeat=1, status="OK", change=1.05 * 1.01),
    ]  # fmt: skip
    unchanged, slowed = counts(alarms, QUIET, 0.0), counts(alarms, QUIET, 0.05)
    assert (unchanged.checks, unchanged.false_alarms) == (2, 1)
    assert (slowed.checks, slowed.found, slowed.false_alarms) == (2, 1, 1)
    assert slowed.error == pytest.approx(0.00995 / 3**0.5, rel=1e-3)
    assert counts(alarms, None, 0.0).unclear == 1
    assert broken_promises(alarms) == ["2 false alarms", "+5% was found in 1 of 2 checks"]


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Runs are simulated, swiglu 10 % slower than relu, and no neighbour comes; which ones were asked for."""
    asked: list[tuple[str, int]] = []

    def slower(case: Case) -> Case:
        share = 1.0 if case.label == REFERENCE else 1.1
        return replace(case, workload=replace(case.workload, slowdown=share * (1 + case.workload.slowdown) - 1))

    def simulated(plan: Plan, world: object, stop: StopRule | None = None, real=live.run):
        true = replace(plan, cases=tuple(map(slower, plan.cases)))
        return Machine(CALM, true, plan.protocol.seed).measure(plan, real, stop)

    monkeypatch.setattr(live, "Neighbour", lambda world, seed: asked.append((world.name, seed)) or nullcontext())
    monkeypatch.setattr(live, "run", simulated)
    return asked


def test_every_repeat_measures_in_every_world(beside) -> None:
    found = [one for of in live.readings(exam_plan(d_model=64, threads=1), chosen(()), 2, 5) for one in of]
    assert [(r.repeat, r.world) for r in found[::2]] == [(n, name) for n in (5, 6) for name in LIVE_WORLDS]
    assert beside == [(name, seed_of(n, name)) for n in (5, 6) for name in LIVE_WORLDS]
    assert {(r.truth_low < 1.1 < r.truth_high, r.truth) for r in found if r.row == "swiglu"} == {(True, found[0].truth)}
    assert found[1].truth == pytest.approx(found[0].truth * 1.05)
    assert contradictions(found) == []
    assert score_of(found, QUIET, OURS).decided == 2


def test_a_check_that_stays_unclear_has_used_its_budget() -> None:
    plan = check_plan(variants="relu,swiglu")
    before = report_of(Machine(CALM, plan, 0).run(run))
    loud = Machine(World(name="loud", sample=0.5, layout=0.5), plan, 1)
    policy = check_policy(0.05)
    stop = UntilDecided(policy, baseline_times(before, policy))
    now = report_of(loud.measure(plan_of_check(before.plan, policy, 60.0), run, stop))
    assert [finding.status for finding in stop.conclusion(now)] == [Status.UNCLEAR]
    assert 50.0 < loud.clock_s <= 62.0
