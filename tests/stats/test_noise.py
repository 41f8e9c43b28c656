"""What samples and the machine say of noise: each warning where it belongs, silence
where all is well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_runs import plan_of, run_of, with_control

from ffnbench.plan.plan import CONTROL
from ffnbench.record.result import Verdict
from ffnbench.run.world import Watch
from ffnbench.stats.verdict import summarise


def test_a_reference_that_differs_from_itself_makes_the_machine_unfit() -> None:
    a, slower, off = (
        [[1.0] * 6] * 3,
        [[1.04] * 6, [1.05] * 6, [1.06] * 6],
        [[1.09] * 6, [1.10] * 6, [1.11] * 6],
    )
    plan = with_control(plan_of(workers=3, rounds=6))
    good = summarise(
        run_of(
            plan, {"a": a, "b": slower, CONTROL: [[0.999] * 6, [1.0] * 6, [1.001] * 6]}
        )
    )
    verdicts = {c.case: c.verdict for c in good[1]}
    assert verdicts["b"] is Verdict.SLOWER
    assert not good[2]
    bad = summarise(run_of(plan, {"a": a, "b": slower, CONTROL: off}))
    by = {c.case: c for c in bad[1]}
    assert by["b"].verdict is Verdict.UNCLEAR
    assert "differs from itself" in by["b"].reason
    assert any(
        "the machine is too noisy: the reference differs from itself" in note.text
        for note in bad[2]
    )


def test_what_other_processes_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds pass; this process uses none of them."""
    seconds = iter([0.0, 10.0, 0.0, 1.0])
    monkeypatch.setattr("ffnbench.run.world.time.monotonic", lambda: next(seconds))
    idle = type("Usage", (), {"ru_utime": 0.0, "ru_stime": 0.0})
    monkeypatch.setattr("ffnbench.run.world.resource.getrusage", lambda who: idle)
    stat, told = tmp_path / "stat", []
    for _ in ("long enough", "too short to tell"):
        stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
        watch = Watch(stat)
        stat.write_text(
            "cpu  700 0 0 9000 0 0 0 200 0 0\n"
        )  # hundredths: busy, idle, stolen
        told.append(watch.around().others_cpus)
    assert told == [pytest.approx(0.7), None]
    assert Watch(tmp_path / "nowhere").around().others_cpus is None
