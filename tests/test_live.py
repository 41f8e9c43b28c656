"""The live exam: what is wrong, what is counted, which truth belongs to what, and that its neighbours work."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import worlds as script
from exam import live
from exam.machine import Machine, World
from exam.readings import (
    OURS,
    REFERENCE,
    RIVALS,
    Reading,
    contradictions,
    exam_plan,
    is_wrong,
    lines,
    score_of,
    truth_plan,
)
from exam.worlds import LIVE_WORLDS, QUIET, chosen, seed_of

from ffnbench.plan import Case


def reading(**facts: object) -> Reading:
    settings: dict[str, object] = {
        "world": QUIET, "method": OURS, "repeat": 0, "row": "swiglu", "truth": 1.0, "truth_low": 0.995,
        "truth_high": 1.005, "ratio": 1.0, "low": 0.99, "high": 1.01, "verdict": "same", "seconds": 15.0, **facts,
    }  # fmt: skip
    return Reading(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("truth", "said", "wrong"),
    [
        # (low, high) of the truth, (verdict, low, high) of the run
        ((0.995, 1.005), ("same", 0.99, 1.01), False),
        ((0.995, 1.005), ("slower", 1.001, 1.02), False),  # the truth may be above 1
        ((0.990, 1.000), ("slower", 0.999, 1.02), True),  # it is not above 1
        ((0.990, 1.001), ("slower", 1.001, 1.02), False),
        ((1.000, 1.010), ("faster", 0.98, 1.005), True),
        ((0.999, 1.010), ("faster", 0.98, 0.999), False),
        ((1.040, 1.060), ("slower", 1.07, 1.09), True),  # the right verdict with an interval that misses
        ((1.040, 1.060), ("slower", 1.06, 1.09), False),  # they touch
        ((1.040, 1.060), ("slower", 1.01, 1.04), False),
        ((1.040, 1.060), ("slower", 1.01, 1.039), True),
        ((1.040, 1.060), ("unclear", 0.95, 1.03), True),  # an interval is held to it whatever the verdict
        ((1.040, 1.060), ("busy", None, None), False),
        ((1.040, 1.060), ("unclear", None, None), False),
        ((1.040, 1.060), ("slower", None, None), False),
        ((1.021, 1.030), ("same", None, None), True),  # wholly outside of +-2 %
        ((1.019, 1.030), ("same", None, None), False),
        ((0.970, 0.979), ("same", None, None), True),
        ((0.970, 0.981), ("same", None, None), False),
        ((0.970, 0.979), ("slower", None, None), True),
        ((1.021, 1.030), ("faster", None, None), True),
    ],
)
def test_what_is_wrong(truth, said, wrong) -> None:
    verdict, low, high = said
    assert is_wrong(reading(truth_low=truth[0], truth_high=truth[1], verdict=verdict, low=low, high=high)) is wrong


def test_counting() -> None:
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
    of = [replace(r, seconds=25.0) if r.repeat else r for r in of]
    quiet = score_of(of, QUIET, OURS)
    assert (quiet.runs, quiet.wrong, quiet.busy, quiet.decided) == (4, 1, 2, 1)
    assert quiet.error == pytest.approx(((0.0198**2 + 0.0202**2) / 3) ** 0.5, rel=1e-2)  # ratios 1, 1.02 and 0.98
    assert quiet.half == pytest.approx(0.01)  # the middle one of 1 %, 1 % / 1.02 and 5 % / 0.98
    assert quiet.seconds == (15 + 3 * 25) / 4
    assert score_of(of, "spinner", OURS).runs == 1
    assert score_of(of, "spinners", OURS).error is None
    assert contradictions(of) == ["1 of 5 runs are wrong"]
    assert lines(of) == [(QUIET, OURS), (QUIET, "median loop"), ("spinner", OURS)]


def test_the_truth_is_the_same_question_asked_for_longer() -> None:
    plan = exam_plan(d_model=64, threads=1)
    truth = truth_plan(plan)
    assert [case.label for case in plan.cases] == ["relu", "swiglu", "swiglu5"]
    assert truth.cases == plan.cases[:2]
    assert plan.cases[1].ffn == plan.cases[2].ffn
    assert (plan.protocol.precision, plan.protocol.budget_s) == (0.01, 15.0)
    assert (truth.protocol.precision, truth.protocol.budget_s) == (0.003, 60.0)
    assert plan.cases[0].workload.tokens == 512


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Runs are simulated and no neighbour comes; which ones were asked for."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(live, "Neighbour", lambda world, seed: asked.append((world.name, seed)) or nullcontext())
    monkeypatch.setattr(live, "run", lambda plan, real=live.run: simulated(plan, real))
    return asked


def simulated(plan, real):
    """A machine with little scatter, on which swiglu is 10 % slower than relu."""

    def slower(case: Case) -> Case:
        share = 1.0 if case.label == REFERENCE else 1.1
        return replace(case, workload=replace(case.workload, slowdown=share * (1 + case.workload.slowdown) - 1))

    world = World(name="calm", layout=0.001, starter=0.0, sample=0.01)
    true = replace(plan, cases=tuple(map(slower, plan.cases)))
    return Machine(world, true, plan.protocol.seed).measure(plan, real)


def flat(found) -> list[Reading]:
    return [one for some in found for one in some]


def test_every_repeat_measures_in_every_world(beside) -> None:
    found = flat(live.readings(exam_plan(d_model=64, threads=1), chosen(()), 2, 5))
    assert len(found) == 2 * 6 * 2
    assert [(r.repeat, r.world) for r in found[::2]] == [(n, name) for n in (5, 6) for name in LIVE_WORLDS]
    assert beside == [(name, seed_of(n, name)) for n in (5, 6) for name in LIVE_WORLDS]
    assert {(r.truth_low < 1.1 < r.truth_high, r.truth) for r in found if r.row == "swiglu"} == {(True, found[0].truth)}
    assert found[1].truth == pytest.approx(found[0].truth * 1.05)
    assert contradictions(found) == []
    assert score_of(found, QUIET, OURS).decided == 2


def test_the_script_ends_with_1_where_ours_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    wrong = reading(ratio=1.1, low=1.05, high=1.15, verdict="slower")
    for readings, code in (([wrong, reading(repeat=1)], 1), ([replace(wrong, method=RIVALS[0]), reading()], 0)):
        monkeypatch.setattr(live, "readings", lambda *_, readings=readings, **__: iter([readings]))
        assert script.main([]) == code
        assert ("1 of 2 runs are wrong" in capsys.readouterr().out) == bool(code)
